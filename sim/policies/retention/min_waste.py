"""Min-waste: the smallest of what preserving, discarding and swapping would waste."""

from __future__ import annotations

from typing import Literal

from sim.policies.retention.base import DROP, KEEP, OFFLOAD, Decision, PauseView, RetentionConfig, TierName


class MinWaste(RetentionConfig):
    """Compare three wastes in byte-seconds (InferCept, ICML 2024).

    Preserve: expected wait x private bytes. Discard: time to recompute x private bytes, and x the bytes of the batch
    that stands by while it is recomputed. Swap: time out and back x private bytes of HBM that are in transit; the
    copies run beside the steps, so the batch is not stalled.
    """

    policy: Literal["min_waste"] = "min_waste"
    """Name of the policy."""

    def targets(self) -> tuple[TierName, ...]:
        """Return where contexts may go."""
        return ("dram",)

    def decide(self, pause: PauseView) -> Decision:
        """Return the action with the smallest waste."""
        preserve = pause.wait.mean() * pause.private_bytes
        discard = pause.recompute_s * (pause.private_bytes + pause.batch_bytes)
        best, decision = min((preserve, KEEP), (discard, DROP))
        if pause.room_in("dram"):
            tier = pause.tiers["dram"]
            swap = (tier.out_s + tier.back_s) * pause.private_bytes
            if swap < best:
                return OFFLOAD["dram"]
        return decision
