"""Blocks between HBM and pinned host memory: the problem all swap kernels share, and their reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(slots=True)
class Swap:
    """Move `pieces` scattered blocks.

    Attributes
    ----------
    device_cache, host_cache
        (blocks, bytes) on the GPU and pinned on the host; twice as many blocks as are moved.
    device_rows, host_rows
        Which blocks, in no order; as lists too, for kernels that issue one copy a block.
    out
        From the GPU to the host.
    """

    device_cache: torch.Tensor
    host_cache: torch.Tensor
    device_rows: torch.Tensor
    host_rows: torch.Tensor
    device_list: list[int]
    host_list: list[int]
    out: bool


def make(point: dict[str, Any], device: torch.device, seed: int = 0) -> Swap:
    """Return the problem of a point; the side written to is poisoned."""
    generator = torch.Generator().manual_seed(seed)
    pieces, size = int(point["pieces"]), int(point["piece_bytes"])
    out = point["direction"] == "out"
    rows = [torch.randperm(2 * pieces, generator=generator)[:pieces] for _ in range(2)]
    pinned = device.type == "cuda"
    host = torch.empty(2 * pieces, size, dtype=torch.uint8, pin_memory=pinned)
    near = torch.empty(2 * pieces, size, dtype=torch.uint8, device=device)
    (near if out else host).view(torch.int64).random_()  # eight bytes at a time: the host draws slowly
    (host if out else near).fill_(255)
    return Swap(near, host, rows[0].to(device), rows[1], rows[0].tolist(), rows[1].tolist(), out)


def reference(swap: Swap) -> torch.Tensor:
    """Return what the moved blocks must hold, on the host."""
    if swap.out:
        return swap.device_cache[swap.device_rows].cpu().float()
    return swap.host_cache[swap.host_rows].float()


def result(swap: Swap, _output: torch.Tensor) -> torch.Tensor:
    """Return what they hold."""
    if swap.out:
        return swap.host_cache[swap.host_rows]
    return swap.device_cache[swap.device_rows].cpu()
