"""What a step is made of, and in which order turns wait."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sim.policies.schedule.base import ORDERS, Order, ScheduleConfig, WaitingView
from sim.policies.schedule.chunked import Chunked
from sim.policies.schedule.monolithic import Monolithic
from sim.policies.schedule.prefill_first import PrefillFirst
from sim.policies.schedule.unbatched import Unbatched

Schedule = Annotated[Chunked | Monolithic | PrefillFirst | Unbatched, Field(discriminator="policy")]

__all__ = ["ORDERS", "Chunked", "Monolithic", "Order", "PrefillFirst", "Schedule", "ScheduleConfig", "Unbatched",
           "WaitingView"]
