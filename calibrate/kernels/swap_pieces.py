"""Swap with one asynchronous copy a block (``cudaMemcpyAsync`` each): what engines did first."""

from __future__ import annotations

from collections.abc import Callable

import torch

from calibrate.kernels.swap import Swap

KERNEL, NAME = "swap", "pieces"


def missing(device: torch.device) -> str | None:
    """Return why it cannot run here: it can."""
    return None


def version() -> str:
    """Return torch's version."""
    return str(torch.__version__)


def prepare(swap: Swap) -> Callable[[], torch.Tensor]:
    """Return the kernel for a problem."""
    near, far = swap.device_cache, swap.host_cache
    pairs = list(zip(swap.device_list, swap.host_list, strict=True))

    def out() -> torch.Tensor:
        for here, there in pairs:
            far[there].copy_(near[here], non_blocking=True)
        return far

    def back() -> torch.Tensor:
        for here, there in pairs:
            near[here].copy_(far[there], non_blocking=True)
        return near

    return out if swap.out else back
