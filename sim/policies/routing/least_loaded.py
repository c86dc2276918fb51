"""The replica with the fewest turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from sim.policies.base import PolicyConfig
from sim.policies.routing.base import ReplicaView


class LeastLoaded(PolicyConfig):
    """Each turn goes where the fewest turns are."""

    policy: Literal["least_loaded"] = "least_loaded"
    """Name of the policy."""
    needs_match: ClassVar[bool] = False

    def choose(self, replicas: Sequence[ReplicaView], previous: int | None, turn: int, prompt_tokens: int) -> int:
        """Return the index of the replica with the fewest turns, the first of equals."""
        return min(range(len(replicas)), key=lambda index: replicas[index].load)
