"""Copy-on-write: copy whole blocks within the cache, as an engine does when a shared tail is written to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

KERNEL, NAME = "copy_blocks", "torch-index"


@dataclass(slots=True)
class Copy:
    """Blocks to copy: rows `source` of a cache (blocks, bytes) to rows `target`."""

    cache: torch.Tensor
    source: torch.Tensor
    target: torch.Tensor


def make(point: dict[str, Any], device: torch.device, seed: int = 0) -> Copy:
    """Return the copies of a point: `pieces` blocks of `piece_bytes`, in no order; targets are poisoned."""
    generator = torch.Generator(device=device).manual_seed(seed)
    pieces, size = int(point["pieces"]), int(point["piece_bytes"])
    cache = torch.randint(0, 255, (2 * pieces + 1, size), generator=generator, device=device, dtype=torch.uint8)
    order = torch.randperm(2 * pieces, generator=generator, device=device)
    cache[order[pieces:]] = 255
    return Copy(cache, order[:pieces], order[pieces:])


def reference(copy: Copy) -> torch.Tensor:
    """Return what the targets must hold."""
    return copy.cache[copy.source].float()


def missing(device: torch.device) -> str | None:
    """Return why it cannot run here: it can."""
    return None


def version() -> str:
    """Return torch's version."""
    return str(torch.__version__)


def prepare(copy: Copy) -> Callable[[], torch.Tensor]:
    """Return the kernel; its output is the target rows (a view is taken only for the check)."""
    def run() -> torch.Tensor:
        copy.cache.index_copy_(0, copy.target, copy.cache.index_select(0, copy.source))
        return copy.cache

    return run


def result(copy: Copy, output: torch.Tensor) -> torch.Tensor:
    """Return what is to be compared with the reference."""
    return output[copy.target]
