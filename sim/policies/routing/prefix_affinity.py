"""Weigh the cached prefix against the load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from sim.analytic.routing import router_score
from sim.policies.base import PolicyConfig
from sim.policies.routing.base import ReplicaView


class PrefixAffinity(PolicyConfig):
    """The highest ``mu match/S - (1 - mu) (load/load_max)^gamma`` wins, the first of equals."""

    policy: Literal["prefix_affinity"] = "prefix_affinity"
    """Name of the policy."""
    mu: float = Field(0.7, ge=0, le=1)
    """Weight of the cached share of the prompt against the load."""
    gamma: float = Field(1.0, gt=0)
    """How sharply load repels."""
    needs_match: ClassVar[bool] = True

    def choose(self, replicas: Sequence[ReplicaView], previous: int | None, turn: int, prompt_tokens: int) -> int:
        """Return the index of the replica with the highest score."""
        load_max = max(view.load for view in replicas)
        return max(
            range(len(replicas)),
            key=lambda index: router_score(replicas[index].match_tokens, prompt_tokens, replicas[index].load,
                                           load_max, self.mu, self.gamma),
        )
