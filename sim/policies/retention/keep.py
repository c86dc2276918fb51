"""Keep: the paused context stays pinned in HBM."""

from __future__ import annotations

from typing import Literal

from sim.policies.retention.base import Action, PauseView, RetentionConfig


class Keep(RetentionConfig):
    """Pin the context until the trajectory returns; given up only when running turns find no block."""

    policy: Literal["keep"] = "keep"
    """Name of the policy."""

    def decide(self, pause: PauseView) -> Action:
        """Return ``keep``, always."""
        return "keep"
