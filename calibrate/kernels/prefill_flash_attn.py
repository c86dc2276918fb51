"""A chunk on a cached past by flash-attn; see `flash_attn`."""

from __future__ import annotations

from calibrate.kernels.flash_attn import NAME, missing, prepare, version

KERNEL = "prefill_attention"

__all__ = ["KERNEL", "NAME", "missing", "prepare", "version"]
