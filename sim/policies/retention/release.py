"""Release: the paused context goes dormant and LRU decides, as in today's engines."""

from __future__ import annotations

from typing import ClassVar, Literal

from sim.policies.retention.base import RELEASE, Decision, PauseView, RetentionConfig, Sees


class Release(RetentionConfig):
    """Leave the context in the prefix cache, unpinned."""

    policy: Literal["release"] = "release"
    """Name of the policy."""
    sees: ClassVar[Sees] = "nothing"

    def decide(self, pause: PauseView) -> Decision:
        """Return ``release``, always."""
        return RELEASE
