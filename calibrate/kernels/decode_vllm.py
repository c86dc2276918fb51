"""Decode attention by the kernel vLLM ships; see `vllm_attention`."""

from __future__ import annotations

from calibrate.kernels.vllm_attention import NAME, missing, prepare, version

KERNEL = "decode_attention"

__all__ = ["KERNEL", "NAME", "missing", "prepare", "version"]
