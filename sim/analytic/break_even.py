"""What a pause costs: hold, move away and back, or compute again (SI floats in, SI floats out)."""

from __future__ import annotations

import math


def hold_cost_byte_s(held_bytes: float, wait_s: float) -> float:
    """Return what holding `held_bytes` for `wait_s` seconds costs, in byte-seconds: ``M T``."""
    return held_bytes * wait_s


def reload_s(moved_bytes: float, link_Bps: float, latency_s: float = 0.0) -> float:
    """Return the seconds one way of a link takes: ``M / B_link`` plus its latency.

    Parameters
    ----------
    moved_bytes
        Bytes moved over all links together.
    link_Bps
        Bandwidth of all links together, bytes per second; 0 stands for "no link" and gives infinity.
    latency_s
        Fixed cost of the transfer, in seconds.
    """
    if moved_bytes <= 0:
        return 0.0
    if link_Bps <= 0:
        return math.inf
    return latency_s + moved_bytes / link_Bps


def round_trip_s(moved_bytes: float, out_Bps: float, in_Bps: float, latency_s: float = 0.0) -> float:
    """Return the seconds out and back: ``M/B_out + M/B_in`` (``2 M / B_link`` where both ways are equal)."""
    return reload_s(moved_bytes, out_Bps, latency_s) + reload_s(moved_bytes, in_Bps, latency_s)


def recompute_flop(n_params: float, tokens: float, n_layers: int = 0, d_model: int = 0, *, linear: bool = True,
                   attention: bool = True) -> float:
    """Return the FLOP of computing the KV of `tokens` tokens again: ``2 N S + 4 L S^2 d_model``.

    Parameters
    ----------
    n_params
        Parameters a token passes through (the active ones of a mixture of experts).
    tokens
        Length of the context, S.
    n_layers, d_model
        Layers with full attention, and n_heads * head_dim.
    linear, attention
        Whether each of the two terms counts. The attention term leaves the causal mask out (a mask halves it).
    """
    flop = 2.0 * n_params * tokens if linear else 0.0
    if attention:
        flop += 4.0 * n_layers * float(tokens) ** 2 * d_model
    return flop


def recompute_s(n_params: float, tokens: float, n_layers: int, d_model: int, flops_per_s: float,
                attention: bool = True) -> float:
    """Return the seconds to compute the KV of `tokens` tokens again at `flops_per_s` achieved FLOP/s.

    The terms are those of `recompute_flop`; `attention` switches the quadratic one.
    """
    return recompute_flop(n_params, tokens, n_layers, d_model, attention=attention) / flops_per_s


def is_feasible(wait_s: float, trip_s: float) -> bool:
    """Return whether a wait is long enough for a round trip of `trip_s` seconds: ``T > 2 M / B_link``."""
    return wait_s > trip_s


def break_even_wait_s(round_trip_s: float, mu_hbm: float, mu_dram: float, stall_allowance_s: float = 0.0) -> float:
    """Return the wait beyond which moving a context away and back is cheaper than holding it in HBM.

    ``T* = 2M/B_link * mu_hbm / (mu_hbm - mu_dram) + stall allowance``: during the round trip the bytes are paid for
    in HBM, afterwards only in DRAM.

    Parameters
    ----------
    round_trip_s
        Seconds to move the context out and back.
    mu_hbm, mu_dram
        Shadow prices of a byte-second in HBM and in the lower tier (only their ratio matters).
    stall_allowance_s
        Seconds added for the stall a reload may cause.

    Returns
    -------
    float
        Seconds; infinity when the lower tier costs as much as HBM or more.
    """
    if mu_dram >= mu_hbm:
        return math.inf
    return round_trip_s * mu_hbm / (mu_hbm - mu_dram) + stall_allowance_s
