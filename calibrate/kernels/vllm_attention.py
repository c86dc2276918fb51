"""Attention by the kernel vLLM ships (its build of flash-attention over a block table); needs vLLM and a GPU.

One call serves decoding (one new token) and a chunk on a cached past.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from calibrate.kernels import lacking, version_of
from calibrate.kernels.paged import Paged

NAME = "vllm"


def missing(device: torch.device) -> str | None:
    """Return why it cannot run here, or None."""
    return lacking(device, "vllm")


def version() -> str:
    """Return vLLM's version."""
    return version_of("vllm")


def prepare(problem: Paged) -> Callable[[], torch.Tensor]:
    """Return the kernel for a problem."""
    from vllm.vllm_flash_attn import flash_attn_varlen_func

    batch = problem.query.shape[0]
    starts = torch.arange(batch + 1, dtype=torch.int32, device=problem.query.device) * problem.new
    query = problem.query.flatten(0, 1)

    def run() -> torch.Tensor:
        out = flash_attn_varlen_func(query, problem.keys, problem.values, max_seqlen_q=problem.new,
                                     cu_seqlens_q=starts, max_seqlen_k=problem.new + problem.past,
                                     seqused_k=problem.lengths, softmax_scale=problem.scale, causal=True,
                                     block_table=problem.table)
        return out.view(problem.query.shape)

    return run
