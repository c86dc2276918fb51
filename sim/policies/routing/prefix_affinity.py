"""Weigh the cached prefix against the load."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.analytic.routing import router_score
from sim.policies.base import PolicyConfig
from sim.policies.routing.base import ReplicasView


class PrefixAffinity(PolicyConfig):
    """The highest ``mu match/S - (1 - mu) (load/load_max)^gamma`` wins, the first of equals."""

    policy: Literal["prefix_affinity"] = "prefix_affinity"
    """Name of the policy."""
    mu: float = Field(0.7, ge=0, le=1)
    """Weight of the cached share of the prompt against the load."""
    gamma: float = Field(1.0, gt=0)
    """How sharply load repels."""

    def choose(self, replicas: ReplicasView, previous: int | None, turn: int, prompt_tokens: int) -> int:
        """Return the index of the replica with the highest score."""
        loads = replicas.loads()
        most = max(loads)
        scores = [router_score(match, prompt_tokens, load, most, self.mu, self.gamma)
                  for match, load in zip(replicas.matches(), loads, strict=True)]
        return scores.index(max(scores))
