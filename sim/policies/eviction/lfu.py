"""Least frequently used."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from sim.policies.base import PolicyConfig
from sim.policies.eviction.base import EntryView
from sim.units import Seconds


class Lfu(PolicyConfig):
    """Evict the dormant leaf used least often; old uses fade, or nothing new would ever stay."""

    policy: Literal["lfu"] = "lfu"
    """Name of the policy."""
    half_life: Seconds = Field(600.0, gt=0)
    """A use counts half as much as one that came so much later."""

    def rank(self, entry: EntryView) -> float:
        """Return the logarithm of the faded count, up to a term that is the same for all leaves."""
        return math.log2(max(entry.uses, 1)) + entry.last_use_s / self.half_life
