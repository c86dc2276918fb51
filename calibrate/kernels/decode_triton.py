"""Decode attention over a block table in Triton: our own, so that a box with torch alone measures a real paged kernel.

Flash-decoding: each program reads a share of one sequence's blocks for one KV head, all query heads of its group
together, keeps a running maximum and sum, and writes a partial result; a second kernel joins the shares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from calibrate.kernels import lacking, version_of
from calibrate.kernels.paged import Paged

KERNEL, NAME = "decode_attention", "triton-own"

#: Tokens a program reads at a time.
TILE = 64


def missing(device: torch.device) -> str | None:
    """Return why it cannot run here, or None; on a CPU it runs in Triton's interpreter, which only tests ask for."""
    return lacking(device, "triton")


def version() -> str:
    """Return Triton's version."""
    return version_of("triton")


def prepare(problem: Paged) -> Callable[[], torch.Tensor]:
    """Return the kernel for a problem. The output is poisoned with NaN before each run."""
    from calibrate.kernels import decode_triton_source as source

    batch, _, heads, dim = problem.query.shape
    kv_heads, group = problem.keys.shape[2], problem.group
    length = int(problem.lengths.max())
    device = problem.query.device
    splits = _splits(batch * kv_heads, length, device)
    share = -(-length // splits)
    share = -(-share // TILE) * TILE
    query = problem.query[:, 0]
    partial = torch.empty(batch, heads, splits, dim, dtype=torch.float32, device=device)
    weight = torch.empty(batch, heads, splits, dtype=torch.float32, device=device)
    out = torch.empty(batch, heads, dim, dtype=problem.query.dtype, device=device)
    rows = max(16, 1 << (group - 1).bit_length())

    def run() -> torch.Tensor:
        source.partial[(batch, kv_heads, splits)](
            query, problem.keys, problem.values, problem.table, problem.lengths, partial, weight, problem.scale,
            problem.table.stride(0), query.stride(0), query.stride(1), problem.keys.stride(0), problem.keys.stride(1),
            problem.keys.stride(2), share, splits, heads, BLOCK=problem.block, DIM=dim, GROUP=group, ROWS=rows,
            TILE=TILE, num_warps=4)
        source.join[(batch, heads)](partial, weight, out, splits, heads, DIM=dim, WIDTH=1 << (splits - 1).bit_length())
        return out.unsqueeze(1)

    out.fill_(float("nan"))
    return run


def _splits(programs: int, length: int, device: Any) -> int:
    """Return how many shares fill the GPU twice, none of them shorter than 256 tokens."""
    units = 1
    if device.type == "cuda":
        units = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = -(-4 * units // programs)
    return max(1, min(wanted, -(-length // 256), 128))
