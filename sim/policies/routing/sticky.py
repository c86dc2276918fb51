"""A trajectory stays where it began."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from sim.policies.base import PolicyConfig
from sim.policies.routing.base import ReplicaView


class Sticky(PolicyConfig):
    """The first turn goes to the least loaded replica, the others follow it."""

    policy: Literal["sticky"] = "sticky"
    """Name of the policy."""
    needs_match: ClassVar[bool] = False

    def choose(self, replicas: Sequence[ReplicaView], previous: int | None, turn: int, prompt_tokens: int) -> int:
        """Return the trajectory's `previous` replica, or the one with the fewest turns."""
        if previous is not None:
            return previous
        return min(range(len(replicas)), key=lambda index: replicas[index].load)
