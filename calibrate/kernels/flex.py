"""Paged attention by torch's FlexAttention: logical positions are looked up in the block table by the mask."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from calibrate.kernels.paged import Paged

NAME = "torch-flex"


def missing(device: torch.device) -> str | None:
    """Return why it is not worth running here, or None: without a GPU it is not compiled (tests run it as it is)."""
    try:
        import torch.nn.attention.flex_attention  # noqa: F401
    except ImportError:
        return "this torch has no flex_attention"
    return None if device.type == "cuda" else "is compiled on a GPU only"


def version() -> str:
    """Return torch's version."""
    return str(torch.__version__)


def prepare(problem: Paged) -> Callable[[], torch.Tensor]:
    """Return the kernel for a problem; compiled on a GPU, as written elsewhere.

    The cache is one long sequence of physical tokens that all share; the mask lets sequence `b` see physical token `t`
    only if its block belongs to `b` and its logical position is not behind the query's.
    """
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    device = problem.query.device
    batch, logical = problem.table.shape
    physical = problem.keys.shape[0]
    owner = torch.full((physical,), -1, dtype=torch.int64, device=device)
    place = torch.zeros(physical, dtype=torch.int64, device=device)
    flat = problem.table.long().flatten()
    owner[flat] = torch.arange(batch, device=device).repeat_interleave(logical)
    place[flat] = torch.arange(logical, device=device).repeat(batch)
    block, past, length = problem.block, problem.past, problem.new + problem.past
    # NaN in blocks that belong to nobody would survive a mask (0 * NaN); this kernel reads no such block on a GPU, but
    # a block of the mask may hold several of the cache's.
    keys, values = (torch.nan_to_num(cache).flatten(0, 1).permute(1, 0, 2)[None].expand(batch, -1, -1, -1)
                    for cache in (problem.keys, problem.values))

    def mask(b: Any, _head: Any, q: Any, t: Any) -> Any:
        where = place[t // block] * block + t % block
        return (owner[t // block] == b) & (where <= q + past) & (where < length)

    query = problem.query.transpose(1, 2)
    blocks = create_block_mask(mask, batch, None, problem.new, physical * block, device=str(device))
    call = torch.compile(flex_attention, dynamic=False) if query.is_cuda else flex_attention

    def run() -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it is not compiled on a CPU is known
            out = call(query, keys, values, block_mask=blocks, scale=problem.scale, enable_gqa=True)
        return out.transpose(1, 2)

    return run
