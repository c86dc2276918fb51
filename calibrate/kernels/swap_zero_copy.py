"""Swap by a kernel that reads or writes mapped host memory itself, without a copy engine (Triton, GPU only)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from calibrate.kernels import lacking, version_of
from calibrate.kernels.swap import Swap

KERNEL, NAME = "swap", "zero_copy"


def missing(device: torch.device) -> str | None:
    """Return why it cannot run here, or None."""
    return lacking(device, "triton")


def version() -> str:
    """Return Triton's version."""
    return version_of("triton")


def prepare(swap: Swap) -> Callable[[], torch.Tensor]:
    """Return the kernel for a problem; pinned memory is mapped into the GPU's address space by CUDA."""
    from calibrate.kernels import swap_zero_copy_source as source

    near, far = swap.device_cache.view(torch.int64), swap.host_cache.view(torch.int64)
    words = near.shape[1]
    host_rows = swap.host_rows.to(near.device)
    source_tensor, source_rows = (near, swap.device_rows) if swap.out else (far, host_rows)
    target, target_rows = (far, host_rows) if swap.out else (near, swap.device_rows)
    tile = min(1024, 1 << max(4, (words - 1).bit_length()))
    grid = (len(swap.device_list), -(-words // tile))
    output = swap.host_cache if swap.out else swap.device_cache

    def run() -> torch.Tensor:
        source.move[grid](source_tensor, target, source_rows, target_rows, words, TILE=tile)
        return output

    return run
