"""FLOP-aware: recency, and the arithmetic a byte saves."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.policies.base import PolicyConfig
from sim.policies.eviction.base import EntryView
from sim.units import Seconds


class FlopAware(PolicyConfig):
    """Evict the leaf with the lowest recency plus `alpha` times the FLOP saved per byte (Marconi, MLSys 2025).

    A token far into a context costs more to compute again, since it attends to all before it, and takes the same bytes:
    FLOP per byte grow with the position. They are taken relative to those of a token at `reference` tokens.
    """

    policy: Literal["flop_aware"] = "flop_aware"
    """Name of the policy."""
    alpha: Seconds = Field(60.0, ge=0)
    """How many seconds of recency a leaf at the reference position is worth."""
    reference: int = Field(32_768, ge=1)
    """Position at which `alpha` counts once."""

    def rank(self, entry: EntryView) -> float:
        """Return recency in seconds, advanced by the value of the leaf's middle position."""
        middle = (entry.first_token + entry.end_token) / 2
        return entry.last_use_s + self.alpha * middle / self.reference
