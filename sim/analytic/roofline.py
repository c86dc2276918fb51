"""How long a step takes at best: arithmetic against memory traffic (SI floats: FLOP, bytes, seconds)."""

from __future__ import annotations

import math


def ridge_point(peak_flops: float, hbm_Bps: float) -> float:
    """Return the FLOP per byte above which compute is the limit: ``peak / bandwidth``."""
    return peak_flops / hbm_Bps


def linear_flop(n_params: float, tokens: float) -> float:
    """Return the FLOP of the matrix products of `tokens` tokens: ``2 N T`` (N active parameters)."""
    return 2.0 * n_params * tokens


def square_attention_flop(n_layers: int, d_attn: int, tokens: float) -> float:
    """Return the FLOP of attention over a prompt without the causal mask: ``4 L d_attn S^2`` (a mask halves it)."""
    return 4.0 * n_layers * d_attn * float(tokens) ** 2


def chunk_attention_flop(n_layers: int, d_attn: int, new: float, past: float) -> float:
    """Return the FLOP of causal attention for `new` tokens on `past` ones: ``4 L d_attn c (p + c/2)``."""
    return 4.0 * n_layers * d_attn * new * (past + new / 2.0)


def compute_s(flop: float, peak_flops: float, mfu: float = 1.0) -> float:
    """Return the seconds of `flop` at the achieved share `mfu` of `peak_flops`."""
    return flop / (peak_flops * mfu)


def memory_s(read_bytes: float, hbm_Bps: float, mbu: float = 1.0) -> float:
    """Return the seconds to read `read_bytes` at the achieved share `mbu` of `hbm_Bps`."""
    return read_bytes / (hbm_Bps * mbu)


def step_s(flop: float, read_bytes: float, peak_flops: float, hbm_Bps: float, mfu: float = 1.0,
           mbu: float = 1.0) -> float:
    """Return the seconds of a step in which compute and memory traffic overlap: the larger of the two."""
    return max(compute_s(flop, peak_flops, mfu), memory_s(read_bytes, hbm_Bps, mbu))


def chunks(tokens: int, chunk: int) -> int:
    """Return the steps a prompt of `tokens` takes in chunks of `chunk` tokens."""
    return math.ceil(tokens / chunk)


def compute_bound_tokens(n_params: float, read_weight_bytes: float, peak_flops: float, hbm_Bps: float,
                         mfu: float = 1.0, mbu: float = 1.0) -> float:
    """Return the tokens in a step from which its matrix products, not the weights' read, set its length.

    ``2 N T / (peak mfu) = W / (bandwidth mbu)`` solved for T.
    """
    return memory_s(read_weight_bytes, hbm_Bps, mbu) * peak_flops * mfu / (2.0 * n_params)
