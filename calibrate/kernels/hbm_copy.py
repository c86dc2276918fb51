"""A plain copy within HBM: the bandwidth that every other kernel is held against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

KERNEL, NAME = "hbm_copy", "torch"


def make(point: dict[str, Any], device: torch.device, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return source and poisoned target of a point's bytes."""
    source = torch.empty(int(point["bytes"]), dtype=torch.uint8, device=device).random_(0, 255)
    return source, torch.full_like(source, 255)


def reference(pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return the ends of what the target must hold (the whole in fp32 would be four times as large)."""
    return torch.cat([pair[0][:4096], pair[0][-4096:]]).float()


def result(pair: tuple[torch.Tensor, torch.Tensor], _output: Any) -> torch.Tensor:
    """Return the ends of what it holds."""
    return torch.cat([pair[1][:4096], pair[1][-4096:]])


def missing(device: torch.device) -> str | None:
    """Return why it cannot run here: it can."""
    return None


def version() -> str:
    """Return torch's version."""
    return str(torch.__version__)


def prepare(pair: tuple[torch.Tensor, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Return the copy."""
    return lambda: pair[1].copy_(pair[0])
