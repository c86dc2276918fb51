"""A trajectory stays where it began."""

from __future__ import annotations

from typing import Literal

from sim.policies.base import PolicyConfig
from sim.policies.routing.base import ReplicasView


class Sticky(PolicyConfig):
    """The first turn goes to the replica with the fewest trajectories alive, the others follow it.

    Turns in flight would say little of what a replica will have to hold: most agents are waiting at any time.
    """

    policy: Literal["sticky"] = "sticky"
    """Name of the policy."""

    def choose(self, replicas: ReplicasView, previous: int | None, turn: int, prompt_tokens: int) -> int:
        """Return the trajectory's `previous` replica, or the one with the fewest trajectories, then turns."""
        if previous is not None:
            return previous
        held = list(zip(replicas.alive(), replicas.loads(), strict=True))
        return held.index(min(held))
