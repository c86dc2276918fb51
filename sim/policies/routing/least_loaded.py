"""The replica with the fewest turns."""

from __future__ import annotations

from typing import Literal

from sim.policies.base import PolicyConfig
from sim.policies.routing.base import ReplicasView


class LeastLoaded(PolicyConfig):
    """Each turn goes where the fewest turns are."""

    policy: Literal["least_loaded"] = "least_loaded"
    """Name of the policy."""

    def choose(self, replicas: ReplicasView, previous: int | None, turn: int, prompt_tokens: int) -> int:
        """Return the index of the replica with the fewest turns, the first of equals."""
        loads = replicas.loads()
        return loads.index(min(loads))
