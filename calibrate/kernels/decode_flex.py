"""Decode attention by torch's FlexAttention; see `flex`."""

from __future__ import annotations

from calibrate.kernels.flex import NAME, missing, prepare, version

KERNEL = "decode_attention"

__all__ = ["KERNEL", "NAME", "missing", "prepare", "version"]
