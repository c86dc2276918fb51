"""A chunk on a cached past by torch's FlexAttention; see `flex`."""

from __future__ import annotations

from calibrate.kernels.flex import NAME, missing, prepare, version

KERNEL = "prefill_attention"

__all__ = ["KERNEL", "NAME", "missing", "prepare", "version"]
