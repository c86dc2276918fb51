"""Break-even: keep short pauses, move long ones, recompute where that is cheaper."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from sim.analytic.break_even import break_even_wait_s
from sim.policies.retention.base import Action, PauseView, RetentionConfig
from sim.units import Seconds


class BreakEven(RetentionConfig):
    """Compare what holding a byte in HBM costs with what moving it there and back, or computing it again, costs.

    Holding the context costs `mu_hbm` a byte-second; in DRAM `mu_dram`. A round trip pays off when the wait exceeds
    ``T* = 2 M / B * mu_hbm / (mu_hbm - mu_dram) + stall_allowance`` and is feasible only when the wait exceeds the
    round trip itself. A context that is quicker to compute again than to bring back is dropped instead.
    """

    policy: Literal["break_even"] = "break_even"
    """Name of the policy."""
    needs_prediction: ClassVar[bool] = True
    mu_hbm: float = Field(1.0, gt=0)
    """Shadow price of a byte-second of HBM (only the ratio to `mu_dram` matters)."""
    mu_dram: float = Field(0.05, ge=0)
    """Shadow price of a byte-second of DRAM."""
    stall_allowance: Seconds = Field(0.0, ge=0)
    """Added to the break-even wait for the stall a reload may cause."""

    def decide(self, pause: PauseView) -> Action:
        """Return the cheapest of keep, offload and drop at the expected wait."""
        wait_s = pause.expected_wait_s
        round_trip_s = pause.offload_s + pause.reload_s
        if pause.private_bytes <= pause.dram_free_bytes and pause.reload_s <= pause.recompute_s:
            threshold_s = break_even_wait_s(round_trip_s, self.mu_hbm, self.mu_dram, self.stall_allowance)
            return "offload" if wait_s > threshold_s else "keep"
        return "drop" if wait_s > pause.recompute_s + self.stall_allowance else "keep"
