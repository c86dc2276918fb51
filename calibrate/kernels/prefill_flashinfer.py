"""A chunk on a cached past by FlashInfer's paged batch prefill; see `flashinfer_paged`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from calibrate.kernels.flashinfer_paged import NAME, layout, missing, version, workspace
from calibrate.kernels.paged import Paged

KERNEL = "prefill_attention"

__all__ = ["KERNEL", "NAME", "missing", "prepare", "version"]


def prepare(problem: Paged) -> Callable[[], torch.Tensor]:
    """Return the kernel for a problem; planning is done once."""
    import flashinfer

    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(problem), "NHD")
    steps, pages, formats = layout(problem)
    wrapper.plan(steps * problem.new, *pages, causal=True, **formats)
    query = problem.query.flatten(0, 1)

    def run() -> torch.Tensor:
        return wrapper.run(query, (problem.keys, problem.values)).view(problem.query.shape)

    return run
