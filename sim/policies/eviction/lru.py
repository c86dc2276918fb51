"""Least recently used."""

from __future__ import annotations

from typing import Literal

from sim.policies.base import PolicyConfig


class Lru(PolicyConfig):
    """Evict the dormant leaf that was used longest ago."""

    policy: Literal["lru"] = "lru"
    """Name of the policy."""

    def priority(self, last_use_s: float, uses: int) -> float:
        """Return the rank of a dormant leaf: the lowest goes first."""
        return last_use_s
