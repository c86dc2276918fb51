"""A trajectory stays where it began."""

from __future__ import annotations

from typing import Literal

from sim.policies.base import PolicyConfig
from sim.policies.routing.base import ReplicasView


class Sticky(PolicyConfig):
    """The first turn goes to the least loaded replica, the others follow it."""

    policy: Literal["sticky"] = "sticky"
    """Name of the policy."""

    def choose(self, replicas: ReplicasView, previous: int | None, turn: int, prompt_tokens: int) -> int:
        """Return the trajectory's `previous` replica, or the one with the fewest turns."""
        if previous is not None:
            return previous
        loads = replicas.loads()
        return loads.index(min(loads))
