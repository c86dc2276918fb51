"""Which dormant cache entry goes first when blocks run short."""

from __future__ import annotations

from sim.policies.eviction.lru import Lru

Eviction = Lru

__all__ = ["Eviction", "Lru"]
