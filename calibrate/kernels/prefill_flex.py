"""Prefill attention by torch's FlexAttention; see `flex`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from calibrate.kernels import flex
from calibrate.kernels.flex import missing
from calibrate.kernels.paged import Paged

KERNEL, NAME = "prefill_attention", "torch-flex"

__all__ = ["KERNEL", "NAME", "missing", "prepare", "version"]


def version() -> str:
    """Return torch's version."""
    return str(torch.__version__)


def prepare(problem: Paged) -> Callable[[], torch.Tensor]:
    """Return the kernel for a problem; compiled on a GPU, as written elsewhere."""
    return flex.prepare(problem, compiled=problem.query.is_cuda)
