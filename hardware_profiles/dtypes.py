"""Bytes per element of the number formats weights and KV are kept in."""

from __future__ import annotations

from typing import Literal

WeightsDtype = Literal["bf16", "fp16", "fp8", "nvfp4", "int4"]
KvDtype = Literal["bf16", "fp16", "fp8", "nvfp4"]

#: Bytes per element, scales included: nvfp4 keeps an 8-bit scale for every 16 elements
#: (modal.com/llm-almanac/block-quants, read 2026-11), int4 a 16-bit scale for every 128 (assumed: the usual group of
#: AWQ and GPTQ). The scales of fp8 are negligible.
DTYPE_BYTES: dict[str, float] = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "nvfp4": 0.5 + 1 / 16,
    "int4": 0.5 + 2 / 128,
}

#: The arithmetic a matrix product runs in, by the format of its weights, best first: 4-bit weights without hardware
#: for them are unpacked and multiplied in 16 bits.
COMPUTE_FORMATS: dict[str, tuple[str, ...]] = {
    "bf16": ("bf16",),
    "fp16": ("bf16",),
    "fp8": ("fp8", "bf16"),
    "nvfp4": ("fp4", "bf16"),
    "int4": ("bf16",),
}
