"""Decode attention by flash-attn; see `flash_attn`."""

from __future__ import annotations

from calibrate.kernels.flash_attn import NAME, missing, prepare, version

KERNEL = "decode_attention"

__all__ = ["KERNEL", "NAME", "missing", "prepare", "version"]
