"""Decode attention by FlashInfer's paged batch decode; see `flashinfer_paged`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from calibrate.kernels.flashinfer_paged import NAME, layout, missing, version, workspace
from calibrate.kernels.paged import Paged

KERNEL = "decode_attention"

__all__ = ["KERNEL", "NAME", "missing", "prepare", "version"]

#: Query heads a KV head from which engines let it use tensor cores.
_TENSOR_CORES = 4


def prepare(problem: Paged) -> Callable[[], torch.Tensor]:
    """Return the kernel for a problem; planning is done once, as engines do for a batch."""
    import flashinfer

    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(problem), "NHD",
                                                            use_tensor_cores=problem.group >= _TENSOR_CORES)
    _, pages, formats = layout(problem)
    wrapper.plan(*pages, **formats)
    query = problem.query.squeeze(1)

    def run() -> torch.Tensor:
        return wrapper.run(query, (problem.keys, problem.values)).unsqueeze(1)

    return run
