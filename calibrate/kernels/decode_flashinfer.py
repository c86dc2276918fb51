"""Decode attention by FlashInfer's paged batch decode; needs the flashinfer package and a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch

from calibrate.kernels import installed, version_of
from calibrate.kernels.paged import Paged

KERNEL, NAME = "decode_attention", "flashinfer"


def missing(device: torch.device) -> str | None:
    """Return why it cannot run here, or None."""
    if device.type != "cuda":
        return "needs a GPU"
    return None if installed("flashinfer") else "flashinfer is not installed"


def version() -> str:
    """Return FlashInfer's version."""
    return version_of("flashinfer-python") or version_of("flashinfer")


def prepare(problem: Paged) -> Callable[[], torch.Tensor]:
    """Return the kernel for a problem; planning is done once, as engines do for a batch."""
    import flashinfer

    batch, logical = problem.table.shape
    device = problem.query.device
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device=device)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD")
    length = problem.new + problem.past
    wrapper.plan(torch.arange(batch + 1, dtype=torch.int32, device=device) * logical, problem.table.flatten(),
                 torch.full((batch,), (length - 1) % problem.block + 1, dtype=torch.int32, device=device),
                 problem.query.shape[2], problem.keys.shape[2], problem.query.shape[3], problem.block,
                 q_data_type=problem.query.dtype, kv_data_type=problem.keys.dtype)
    query = problem.query.squeeze(1)

    def run() -> torch.Tensor:
        return wrapper.run(query, (problem.keys, problem.values)).unsqueeze(1)

    return run
