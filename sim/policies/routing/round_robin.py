"""Replicas in turn."""

from __future__ import annotations

from typing import Literal

from sim.policies.base import PolicyConfig
from sim.policies.routing.base import ReplicasView


class RoundRobin(PolicyConfig):
    """Each turn goes to the next replica, wherever its prefix is."""

    policy: Literal["round_robin"] = "round_robin"
    """Name of the policy."""

    def choose(self, replicas: ReplicasView, previous: int | None, turn: int, prompt_tokens: int) -> int:
        """Return the index of the replica for the `turn`-th turn to be routed."""
        return turn % len(replicas)
