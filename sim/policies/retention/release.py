"""Release: the paused context goes dormant and LRU decides, as in today's engines."""

from __future__ import annotations

from typing import Literal

from sim.policies.retention.base import Action, PauseView, RetentionConfig


class Release(RetentionConfig):
    """Leave the context in the prefix cache, unpinned."""

    policy: Literal["release"] = "release"
    """Name of the policy."""

    def decide(self, pause: PauseView) -> Action:
        """Return ``release``, always."""
        return "release"
