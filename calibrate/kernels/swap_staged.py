"""Swap through a staging buffer: gather the blocks on the GPU, one large copy, scatter on the other side."""

from __future__ import annotations

from collections.abc import Callable

import torch

from calibrate.kernels.swap import Swap

KERNEL, NAME = "swap", "staged"


def missing(device: torch.device) -> str | None:
    """Return why it cannot run here: it can."""
    return None


def version() -> str:
    """Return torch's version."""
    return str(torch.__version__)


def prepare(swap: Swap) -> Callable[[], torch.Tensor]:
    """Return the kernel for a problem.

    On the host the moved blocks lie together, as in a tier that is written by whole offloads: only the GPU's side is
    scattered. The rows `host_rows` are then the first ones.
    """
    near, far = swap.device_cache, swap.host_cache
    count = len(swap.device_list)
    staging = torch.empty(count, near.shape[1], dtype=torch.uint8, device=near.device)
    if not swap.out:
        far[:count] = far[swap.host_rows].clone()
    swap.host_rows = torch.arange(count)
    swap.host_list = list(range(count))
    together = far[:count]

    def out() -> torch.Tensor:
        torch.index_select(near, 0, swap.device_rows, out=staging)
        together.copy_(staging, non_blocking=True)
        return far

    def back() -> torch.Tensor:
        staging.copy_(together, non_blocking=True)
        near.index_copy_(0, swap.device_rows, staging)
        return near

    return out if swap.out else back
