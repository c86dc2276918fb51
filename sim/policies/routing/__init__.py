"""Which replica serves a turn."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sim.policies.routing.base import ReplicasView
from sim.policies.routing.least_loaded import LeastLoaded
from sim.policies.routing.prefix_affinity import PrefixAffinity
from sim.policies.routing.round_robin import RoundRobin
from sim.policies.routing.sticky import Sticky
from sim.policies.routing.weighted import Weighted

Routing = Annotated[RoundRobin | LeastLoaded | Sticky | PrefixAffinity | Weighted, Field(discriminator="policy")]

__all__ = ["LeastLoaded", "PrefixAffinity", "ReplicasView", "RoundRobin", "Routing", "Sticky", "Weighted"]
