"""What FlashInfer's two paged wrappers have in common; they need the flashinfer package and a GPU."""

from __future__ import annotations

from typing import Any

import torch

from calibrate.kernels import lacking, version_of
from calibrate.kernels.paged import Paged

NAME = "flashinfer"


def missing(device: torch.device) -> str | None:
    """Return why it cannot run here, or None."""
    return lacking(device, "flashinfer")


def version() -> str:
    """Return FlashInfer's version."""
    return version_of("flashinfer-python") or version_of("flashinfer")


def workspace(problem: Paged) -> torch.Tensor:
    """Return the scratch memory a wrapper is made with."""
    return torch.empty(256 << 20, dtype=torch.uint8, device=problem.query.device)


def layout(problem: Paged) -> tuple[torch.Tensor, list[Any], dict[str, Any]]:
    """Return what ``plan`` is told: steps of one a sequence, then pages and heads by place, and formats by name.

    The pages are where each sequence's begin, all page numbers, tokens in each last page, query heads, KV heads,
    elements of a head and tokens of a page.
    """
    batch, logical = problem.table.shape
    device = problem.query.device
    length = problem.new + problem.past
    steps = torch.arange(batch + 1, dtype=torch.int32, device=device)
    last = torch.full((batch,), (length - 1) % problem.block + 1, dtype=torch.int32, device=device)
    pages = [steps * logical, problem.table.flatten(), last, problem.query.shape[2], problem.keys.shape[2],
             problem.query.shape[3], problem.block]
    return steps, pages, {"q_data_type": problem.query.dtype, "kv_data_type": problem.keys.dtype}
