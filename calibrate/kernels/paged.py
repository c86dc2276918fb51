"""Attention over a paged KV cache: inputs with shuffled, poisoned blocks, and the fp32 reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from calibrate.kernels.check import DTYPES, TAIL

#: Scores the reference holds at a time (1 GiB in fp32).
_SCORES = 1 << 28


@dataclass(slots=True)
class Paged:
    """One attention problem over blocks.

    Attributes
    ----------
    query
        (sequences, new tokens, heads, head_dim).
    keys, values
        (physical blocks, block size, KV heads, head_dim).
    table
        (sequences, logical blocks) of int32: the physical block of each logical one, in no order.
    lengths
        Tokens each sequence's keys hold, the new ones included, int32.
    new, past, block, dtype
        New and past tokens of each sequence, tokens of a block, format of all tensors.
    """

    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    table: torch.Tensor
    lengths: torch.Tensor
    new: int
    past: int
    block: int
    dtype: str

    @property
    def scale(self) -> float:
        """Factor of the scores, ``1 / sqrt(head_dim)``."""
        return 1.0 / math.sqrt(self.query.shape[-1])

    @property
    def group(self) -> int:
        """Query heads a KV head serves."""
        return self.query.shape[2] // self.keys.shape[2]


def make(point: dict[str, Any], device: torch.device, seed: int = 0) -> Paged:
    """Return the problem of a point.

    Physical blocks are drawn in random order from a pool a quarter larger than needed; blocks that belong to nobody
    hold NaN, the rows of last blocks behind a sequence's end a large number: a kernel that reads a wrong block, or past
    the end, is found out.
    """
    batch, block = int(point["batch"]), int(point["block"])
    new = int(point.get("new", 1))
    past = int(point["past"]) if "past" in point else int(point["context"]) - new
    heads, kv_heads, dim = int(point["heads"]), int(point["kv_heads"]), int(point["head_dim"])
    length = new + past
    dtype = DTYPES[point["kv_dtype"]]
    generator = torch.Generator(device=device).manual_seed(seed)
    logical = -(-length // block)
    physical = batch * logical + max(1, batch * logical // 4)
    order = torch.randperm(physical, generator=generator, device=device)
    table = order[:batch * logical].view(batch, logical).to(torch.int32).contiguous()
    keys, values = (_cache(physical, block, kv_heads, dim, dtype, generator, device) for _ in range(2))
    for cache in (keys, values):
        cache[order[batch * logical:]] = math.nan
        if length % block:
            cache[table[:, -1].long(), length % block:] = TAIL
    query = torch.randn(batch, new, heads, dim, dtype=torch.float32, generator=generator, device=device).to(dtype)
    return Paged(query, keys, values, table, torch.full((batch,), length, dtype=torch.int32, device=device), new, past,
                 block, point["kv_dtype"])


def _cache(blocks: int, block: int, heads: int, dim: int, dtype: torch.dtype, generator: torch.Generator,
           device: torch.device) -> torch.Tensor:
    cache = torch.empty(blocks, block, heads, dim, dtype=dtype, device=device)
    for start in range(0, blocks, 4096):  # in parts: a whole cache in fp32 would not fit beside it
        part = cache[start:start + 4096]
        part.copy_(torch.randn(part.shape, generator=generator, device=device))
    return cache


def reference(problem: Paged) -> torch.Tensor:
    """Return the result in fp32, one sequence at a time: gather its blocks, then softmax(q k) v as written."""
    rows = []
    for index in range(problem.query.shape[0]):
        length = int(problem.lengths[index])
        blocks = problem.table[index].long()
        keys, values = (cache[blocks].flatten(0, 1)[:length].float().repeat_interleave(problem.group, dim=1)
                        for cache in (problem.keys, problem.values))
        limit = torch.arange(problem.new, device=keys.device) + length - problem.new
        seen = torch.arange(length, device=keys.device)
        tile = max(1, _SCORES // (keys.shape[1] * length))
        parts = []
        for start in range(0, problem.new, tile):
            scores = torch.einsum("qhd,khd->hqk", problem.query[index, start:start + tile].float(), keys)
            hidden = seen[None, None, :] > limit[None, start:start + tile, None]
            scores = (scores * problem.scale).masked_fill_(hidden, -math.inf)
            parts.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), values))
        rows.append(torch.cat(parts))
    return torch.stack(rows)


def gathered(problem: Paged) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys and values of all sequences in order, (sequences, KV heads, tokens, head_dim); lengths are equal."""
    length = problem.new + problem.past
    shape = (problem.table.shape[0], -1, problem.keys.shape[2], problem.keys.shape[3])
    flat = problem.table.long().flatten()
    keys, values = (cache.index_select(0, flat).view(shape)[:, :length].transpose(1, 2)
                    for cache in (problem.keys, problem.values))
    return keys, values
