"""Attention by flash-attn over a paged KV cache (``block_table``); needs the flash-attn package and a GPU.

One call serves decoding (one new token) and a chunk on a cached past.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from calibrate.kernels import lacking, version_of
from calibrate.kernels.paged import Paged

NAME = "flash-attn"


def missing(device: torch.device) -> str | None:
    """Return why it cannot run here, or None."""
    return lacking(device, "flash_attn")


def version() -> str:
    """Return flash-attn's version."""
    return version_of("flash-attn")


def prepare(problem: Paged) -> Callable[[], torch.Tensor]:
    """Return the kernel for a problem; blocks must be multiples of 256 tokens for flash-attn 2, of 16 for 3."""
    from flash_attn import flash_attn_with_kvcache

    def run() -> torch.Tensor:
        return flash_attn_with_kvcache(problem.query, problem.keys, problem.values, cache_seqlens=problem.lengths,
                                       block_table=problem.table, softmax_scale=problem.scale, causal=True)

    return run
