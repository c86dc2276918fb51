"""A matrix product of the model's shard, as torch runs it (cuBLAS on a GPU)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional

from calibrate.kernels.check import DTYPES

KERNEL, NAME = "linear", "torch"


@dataclass(slots=True)
class Product:
    """``rows @ weight.T`` with rows (tokens, k) and weight (n, k)."""

    rows: torch.Tensor
    weight: torch.Tensor
    dtype: str


def make(point: dict[str, Any], device: torch.device, seed: int = 0) -> Product:
    """Return the product of a point."""
    generator = torch.Generator(device=device).manual_seed(seed)
    dtype = DTYPES[point["dtype"]]
    rows, weight = (torch.randn(size, int(point["k"]), generator=generator, device=device).to(dtype)
                    for size in (int(point["tokens"]), int(point["n"])))
    return Product(rows, weight, point["dtype"])


def reference(product: Product) -> torch.Tensor:
    """Return the product in fp32 (true fp32: no TF32)."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        return product.rows.float() @ product.weight.float().T
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def missing(device: torch.device) -> str | None:
    """Return why it cannot run here: it can."""
    return None


def version() -> str:
    """Return torch's version."""
    return str(torch.__version__)


def prepare(product: Product) -> Callable[[], torch.Tensor]:
    """Return the kernel for a product."""
    return lambda: functional.linear(product.rows, product.weight)
