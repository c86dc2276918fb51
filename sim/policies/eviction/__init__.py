"""Which dormant cache entry goes first when blocks run short."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sim.policies.eviction.arc import Arc, ArcLists
from sim.policies.eviction.base import EntryView
from sim.policies.eviction.flop_aware import FlopAware
from sim.policies.eviction.lfu import Lfu
from sim.policies.eviction.lru import Lru
from sim.policies.eviction.priority import Priority

Eviction = Annotated[Lru | Lfu | Priority | Arc | FlopAware, Field(discriminator="policy")]

__all__ = ["Arc", "ArcLists", "EntryView", "Eviction", "FlopAware", "Lfu", "Lru", "Priority"]
