"""What becomes of a context while its trajectory waits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sim.policies.retention.base import Action, Decision, PauseView, Prefetch, RetentionConfig, TierName, TierView
from sim.policies.retention.break_even import BreakEven
from sim.policies.retention.drop import Drop
from sim.policies.retention.keep import Keep
from sim.policies.retention.min_waste import MinWaste
from sim.policies.retention.offload import Offload
from sim.policies.retention.oracle import Oracle
from sim.policies.retention.release import Release
from sim.policies.retention.tiered import Tiered
from sim.policies.retention.ttl import Ttl

Retention = Annotated[
    Keep | Release | Drop | Offload | Tiered | BreakEven | Ttl | MinWaste | Oracle, Field(discriminator="policy")
]

__all__ = ["Action", "BreakEven", "Decision", "Drop", "Keep", "MinWaste", "Offload", "Oracle", "PauseView", "Prefetch",
           "Release", "Retention", "RetentionConfig", "TierName", "TierView", "Tiered", "Ttl"]
