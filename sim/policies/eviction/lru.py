"""Least recently used."""

from __future__ import annotations

from typing import Literal

from sim.policies.base import PolicyConfig
from sim.policies.eviction.base import EntryView


class Lru(PolicyConfig):
    """Evict the dormant leaf that was used longest ago."""

    policy: Literal["lru"] = "lru"
    """Name of the policy."""

    def rank(self, entry: EntryView) -> float:
        """Return the rank of a dormant leaf: the lowest goes first."""
        return entry.last_use_s
