"""Decode attention without a paged kernel: gather the blocks, then scaled-dot-product attention. Runs everywhere."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as functional

from calibrate.kernels.paged import Paged, gathered

KERNEL, NAME = "decode_attention", "gather+sdpa"


def missing(device: torch.device) -> str | None:
    """Return why it cannot run here: it can."""
    return None


def version() -> str:
    """Return torch's version."""
    return str(torch.__version__)


def prepare(problem: Paged) -> Callable[[], torch.Tensor]:
    """Return the kernel for a problem."""
    query = problem.query.transpose(1, 2)

    def run() -> torch.Tensor:
        keys, values = gathered(problem)
        out = functional.scaled_dot_product_attention(query, keys, values, scale=problem.scale, enable_gqa=True)
        return out.transpose(1, 2)

    return run
