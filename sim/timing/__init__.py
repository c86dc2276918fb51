"""How long a step takes: one contract (`base`), and the models behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.timing.base import Bound, Chunks, Line, StepCost
from sim.timing.measured import MeasuredCost
from sim.timing.roofline import Replica, RooflineCost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Bound", "Chunks", "Line", "MeasuredCost", "Replica", "RooflineCost", "StepCost", "attention_efficiency",
           "build"]


def attention_efficiency(timing: Any, deployment: Any) -> float:
    """Return what a deployment's block size leaves of the rate of decode attention (see `block_size.efficiency`)."""
    from sim.timing.block_size import efficiency

    table: Mapping[str, Any] = {}
    if timing.measured is not None:
        from sim.timing.measured_profile import read as read_profile

        table = read_profile(timing.measured).block_efficiency
    return efficiency(table, deployment.lookup_tokens)


def block_tokens(deployment: Any) -> int:
    """Return the tokens of a deployment's KV blocks; 0 for contiguous buffers."""
    return int(deployment.block_size) if deployment.allocator.paged else 0


def build(timing: Any, deployment: Any) -> StepCost:
    """Return the step cost that a scenario's `timing` asks for, on the replica that `deployment` describes."""
    read: Callable[[float], float] = deployment.step_weight_bytes
    replica = Replica(
        active_params=deployment.n_active_params, weight_read_bytes=read, full_layers=deployment.full_layers,
        window_layers=deployment.window_layers, window=deployment.window, d_attn=deployment.d_attn,
        d_model=deployment.d_model, n_layers=deployment.n_layers, kv_bytes_per_token=deployment.kv_bytes_per_token,
        state_bytes=deployment.state_bytes_per_sequence, peak_flops=deployment.peak_flops, hbm_Bps=deployment.hbm_Bps,
        nvlink_Bps=deployment.nvlink_Bps, tp=deployment.tp, pp=deployment.pp,
        block_tokens=deployment.lookup_tokens)
    if getattr(timing, "measured", None) is not None:
        from sim.timing.measured_profile import read as read_profile

        profile = read_profile(timing.measured)
        if not profile.planning:
            raise InputError(f"was measured on {profile.device}, which is not for planning", field="timing.measured",
                             got=timing.measured)
        return MeasuredCost(profile, replica, deployment.model, deployment.weights_dtype, deployment.kv_dtype,
                            deployment.step_overhead_s)
    roofline = timing.roofline
    return RooflineCost(replica, roofline.mode, roofline.mfu, roofline.mbu, deployment.step_overhead_s,
                        roofline.collective_latency_s)
