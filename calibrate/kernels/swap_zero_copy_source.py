"""The Triton function of `swap_zero_copy`; a file of its own, as Triton must be installed to import it."""

import triton
import triton.language as tl


@triton.jit
def move(source, target, source_rows, target_rows, words, TILE: tl.constexpr):
    """Copy one tile of one block of 8-byte words."""
    piece = tl.program_id(0)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    there = column < words
    row_in = tl.load(source_rows + piece)
    row_out = tl.load(target_rows + piece)
    tl.store(target + row_out * words + column, tl.load(source + row_in * words + column, mask=there), mask=there)
