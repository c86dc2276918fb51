"""Drop: the paused context is freed now and computed again at return."""

from __future__ import annotations

from typing import ClassVar, Literal

from sim.policies.retention.base import DROP, Decision, PauseView, RetentionConfig, Sees


class Drop(RetentionConfig):
    """Free what no one else uses; recompute it when the trajectory returns."""

    policy: Literal["drop"] = "drop"
    """Name of the policy."""
    sees: ClassVar[Sees] = "nothing"

    def decide(self, pause: PauseView) -> Decision:
        """Return ``drop``, always."""
        return DROP
