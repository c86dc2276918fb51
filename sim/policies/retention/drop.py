"""Drop: the paused context is freed now and computed again at return."""

from __future__ import annotations

from typing import ClassVar, Literal

from sim.policies.retention.base import DROP, Decision, PauseView, RetentionConfig


class Drop(RetentionConfig):
    """Free what no one else uses; recompute it when the trajectory returns."""

    policy: Literal["drop"] = "drop"
    """Name of the policy."""
    needs_view: ClassVar[bool] = False

    def decide(self, pause: PauseView) -> Decision:
        """Return ``drop``, always."""
        return DROP
