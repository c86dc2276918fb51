"""What the block size makes of the rate at which decode attention reads KV.

A kernel looks up each block in a table and reads it from wherever it lies: small blocks mean more look-ups and shorter
reads. The *efficiency* of a block size is the time of decode attention with the reference size over its time with that
one. It is worked out once, when a deployment's times are built; a step costs nothing more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from math import log
from typing import Any

#: Tokens of the blocks that a profile's attention tables and the roofline's bandwidth share stand for.
REFERENCE = 16

#: Used where no profile has measured it. Assumed: 1 from 16 tokens up; below, decode attention on a B200-class GPU with
#: 1 and 8 tokens a page, 2.32 and 3.90 TB/s against 4.37 with 32 (github.com/Dao-AILab/flash-attention/pull/2104, the
#: kernel before that change; with it small pages lose less).
ASSUMED: Mapping[str, Any] = {"blocks": [1, 8, 16], "efficiency": [0.53, 0.89, 1.0]}


def efficiency(table: Mapping[str, Any], block_tokens: int) -> float:
    """Return the efficiency of decode attention with blocks of a size.

    Linear in the logarithm of the size between the table's sizes, flat outside them.

    Parameters
    ----------
    table
        ``blocks`` (tokens, rising) and ``efficiency``; a profile's `block_efficiency`. Empty for `ASSUMED`.
    block_tokens
        Tokens of a block; 0 for contiguous buffers, which have no table to look up: 1.
    """
    if not block_tokens:
        return 1.0
    known = table or ASSUMED
    blocks, values = known["blocks"], known["efficiency"]
    if block_tokens <= blocks[0] or block_tokens >= blocks[-1]:
        return float(values[0] if block_tokens <= blocks[0] else values[-1])
    right = bisect_right(blocks, block_tokens)
    left = right - 1
    share = log(block_tokens / blocks[left]) / log(blocks[right] / blocks[left])
    return float(values[left] + share * (values[right] - values[left]))


def source_of(table: Mapping[str, Any], block_tokens: int) -> str:
    """Return where the efficiency of a block size comes from, in words."""
    if not table:
        return "assumed, see docs/allocators.md"
    low, high = table["blocks"][0], table["blocks"][-1]
    if low <= block_tokens <= high:
        return "measured"
    return f"that of {low if block_tokens < low else high}, the nearest measured"
