"""Break-even: keep short pauses, move long ones, recompute where that is cheaper."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.analytic.break_even import break_even_wait_s
from sim.policies.retention.base import DROP, KEEP, OFFLOAD, Decision, PauseView, RetentionConfig, TierName
from sim.units import Seconds


class BreakEven(RetentionConfig):
    """Compare what holding a byte in HBM costs with what moving it there and back, or computing it again, costs.

    Holding the context costs `mu_hbm` a byte-second; in DRAM `mu_dram`. A round trip pays off when the wait exceeds
    ``T* = (M/B_out + M/B_in) mu_hbm / (mu_hbm - mu_dram) + stall_allowance``, which is longer than the round trip
    itself. A context that is quicker to compute again than to bring back, or that finds no room, is dropped instead
    when the wait exceeds the time to compute it.
    """

    policy: Literal["break_even"] = "break_even"
    """Name of the policy."""
    prices: Literal["given", "estimated"] = "given"
    """`given`: the shadow prices below. `estimated`: HBM costs as much as the share of recent time in which turns
    queued for blocks, so that a pool without pressure keeps everything."""
    mu_hbm: float = Field(1.0, gt=0)
    """Shadow price of a byte-second of HBM (only the ratio to `mu_dram` matters)."""
    mu_dram: float = Field(0.05, ge=0)
    """Shadow price of a byte-second of DRAM."""
    stall_allowance: Seconds = Field(0.0, ge=0)
    """Added to the break-even wait for the stall a reload may cause."""

    def targets(self) -> tuple[TierName, ...]:
        """Return where contexts may go."""
        return ("dram",)

    def decide(self, pause: PauseView) -> Decision:
        """Return the cheapest of keep, offload and drop at the expected wait."""
        mu_hbm = self.mu_hbm if self.prices == "given" else pause.blocked_share
        wait_s = pause.wait.mean()
        if pause.room_in("dram") and pause.tiers["dram"].back_s <= pause.recompute_s:
            tier = pause.tiers["dram"]
            threshold_s = break_even_wait_s(tier.out_s + tier.back_s, mu_hbm, self.mu_dram, self.stall_allowance)
            return OFFLOAD["dram"] if wait_s > threshold_s else KEEP
        if mu_hbm <= 0.0:
            return KEEP
        return DROP if wait_s > pause.recompute_s + self.stall_allowance else KEEP
