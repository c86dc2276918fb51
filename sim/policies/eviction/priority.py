"""Priority: shared content outlives private content."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.policies.base import PolicyConfig
from sim.policies.eviction.base import EntryView
from sim.units import Seconds


class Priority(PolicyConfig):
    """Evict private content before content that several streams have grown out of; least recently used within each.

    TensorRT-LLM takes a priority from 0 to 100 with each request; here the workload says nothing, and what has proved
    to be shared stands for the higher one.
    """

    policy: Literal["priority"] = "priority"
    """Name of the policy."""
    lead: Seconds = Field(3600.0, ge=0)
    """How much longer shared content stays after its last use."""

    def rank(self, entry: EntryView) -> float:
        """Return the last use, later by `lead` for shared content."""
        return entry.last_use_s + (self.lead if entry.shared else 0.0)
