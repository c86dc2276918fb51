"""Drop: the paused context is freed now and computed again at return."""

from __future__ import annotations

from typing import Literal

from sim.policies.retention.base import Action, PauseView, RetentionConfig


class Drop(RetentionConfig):
    """Free what no one else uses; recompute it when the trajectory returns."""

    policy: Literal["drop"] = "drop"
    """Name of the policy."""

    def decide(self, pause: PauseView) -> Action:
        """Return ``drop``, always."""
        return "drop"
