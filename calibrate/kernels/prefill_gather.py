"""A chunk on a cached past without a paged kernel: gather the blocks, then scaled-dot-product attention."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as functional

from calibrate.kernels.paged import Paged, gathered

KERNEL, NAME = "prefill_attention", "gather+sdpa"


def missing(device: torch.device) -> str | None:
    """Return why it cannot run here: it can."""
    return None


def version() -> str:
    """Return torch's version."""
    return str(torch.__version__)


def prepare(problem: Paged) -> Callable[[], torch.Tensor]:
    """Return the kernel for a problem; the mask is causal at the lower right."""
    query = problem.query.transpose(1, 2)
    if problem.past == 0:
        def whole() -> torch.Tensor:
            keys, values = gathered(problem)
            out = functional.scaled_dot_product_attention(query, keys, values, is_causal=True, scale=problem.scale,
                                                          enable_gqa=True)
            return out.transpose(1, 2)

        return whole
    from torch.nn.attention.bias import causal_lower_right

    mask = causal_lower_right(problem.new, problem.new + problem.past)

    def run() -> torch.Tensor:
        keys, values = gathered(problem)
        wide = (part.repeat_interleave(problem.group, dim=1) for part in (keys, values))
        out = functional.scaled_dot_product_attention(query, *wide, attn_mask=mask, scale=problem.scale)
        return out.transpose(1, 2)

    return run
