"""What becomes of a context while its trajectory waits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sim.policies.retention.base import Action, PauseView, RetentionConfig
from sim.policies.retention.break_even import BreakEven
from sim.policies.retention.drop import Drop
from sim.policies.retention.keep import Keep
from sim.policies.retention.offload import Offload
from sim.policies.retention.release import Release

Retention = Annotated[Keep | Release | Drop | Offload | BreakEven, Field(discriminator="policy")]

__all__ = ["Action", "BreakEven", "Drop", "Keep", "Offload", "PauseView", "Release", "Retention", "RetentionConfig"]
