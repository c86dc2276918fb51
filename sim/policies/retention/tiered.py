"""Tiered: the longer the wait, the further down the context goes."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from sim.policies.retention.base import DROP, KEEP, OFFLOAD, Decision, PauseView, RetentionConfig, Sees, TierName
from sim.units import Seconds

#: Where a context goes that belongs on NVMe, in order of preference.
_NEAR: tuple[TierName, ...] = ("nvme", "remote", "dram")


class Tiered(RetentionConfig):
    """Choose by the expected wait: HBM, then DRAM, NVMe and remote memory, and beyond that drop.

    A tier that does not exist or has no room is passed over for the next one down.
    """

    policy: Literal["tiered"] = "tiered"
    """Name of the policy."""
    sees: ClassVar[Sees] = "room"
    hbm_below: Seconds = Field(2.0, ge=0)
    """Waits expected to be shorter stay in HBM."""
    dram_below: Seconds = Field(120.0, ge=0)
    """Waits expected to be shorter go to DRAM."""
    nvme_below: Seconds = Field(3600.0, ge=0)
    """Waits expected to be shorter go to NVMe."""
    remote_below: Seconds = Field(24 * 3600.0, ge=0)
    """Waits expected to be shorter go to remote memory, where there is one; longer ones are dropped."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.hbm_below <= self.dram_below <= self.nvme_below <= self.remote_below:
            raise ValueError("hbm_below, dram_below, nvme_below and remote_below must not decrease")
        return self

    def targets(self) -> tuple[TierName, ...]:
        """Return where contexts may go."""
        return ("dram", "nvme", "remote")

    def decide(self, pause: PauseView) -> Decision:
        """Return the place the expected wait belongs to."""
        wait_s = pause.wait.mean()
        if wait_s < self.hbm_below:
            return KEEP
        if wait_s < self.dram_below and pause.room_in("dram"):
            return OFFLOAD["dram"]
        if wait_s < self.nvme_below:
            for tier in _NEAR:
                if pause.room_in(tier):
                    return OFFLOAD[tier]
        if wait_s < self.remote_below and pause.room_in("remote"):
            return OFFLOAD["remote"]
        return DROP
