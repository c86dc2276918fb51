"""A chunk on a cached past by FlashInfer's paged batch prefill; needs the flashinfer package and a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch

from calibrate.kernels.decode_flashinfer import missing, version
from calibrate.kernels.paged import Paged

KERNEL, NAME = "prefill_attention", "flashinfer"

__all__ = ["KERNEL", "NAME", "missing", "prepare", "version"]


def prepare(problem: Paged) -> Callable[[], torch.Tensor]:
    """Return the kernel for a problem; planning is done once."""
    import flashinfer

    batch, logical = problem.table.shape
    device = problem.query.device
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device=device)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
    length = problem.new + problem.past
    steps = torch.arange(batch + 1, dtype=torch.int32, device=device)
    wrapper.plan(steps * problem.new, steps * logical, problem.table.flatten(),
                 torch.full((batch,), (length - 1) % problem.block + 1, dtype=torch.int32, device=device),
                 problem.query.shape[2], problem.keys.shape[2], problem.query.shape[3], problem.block, causal=True,
                 q_data_type=problem.query.dtype, kv_data_type=problem.keys.dtype)
    query = problem.query.flatten(0, 1)

    def run() -> torch.Tensor:
        return wrapper.run(query, (problem.keys, problem.values)).view(problem.query.shape)

    return run
