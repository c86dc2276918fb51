"""The paged pool: fixed-size blocks, handed out and taken back by count.

Which block is where does not matter to anything the simulator answers, so a block table is an extent (first block,
end) kept by whoever owns it, and the pool is a counter. `tests/laws` holds the whole against a model that names every
block, with its table and its reference count.
"""

from __future__ import annotations


class BlockPool:
    """A pool of `total` blocks of `block_tokens` tokens each.

    Raises
    ------
    ValueError
        If a size is not positive, or if more blocks are taken or given back than there are.
    """

    __slots__ = ("block_tokens", "free", "total")

    def __init__(self, total: int, block_tokens: int) -> None:
        if total < 1 or block_tokens < 1:
            raise ValueError(f"a pool needs at least one block of one token (got {total} blocks of {block_tokens})")
        self.total = total
        self.block_tokens = block_tokens
        self.free = total

    def blocks(self, tokens: int) -> int:
        """Return the blocks that `tokens` tokens fill, the last one perhaps partly: ``ceil(tokens / B)``."""
        return -(-tokens // self.block_tokens)

    def take(self, count: int) -> None:
        """Take `count` free blocks."""
        if not 0 <= count <= self.free:
            raise ValueError(f"cannot take {count} blocks: {self.free} of {self.total} are free")
        self.free -= count

    def give(self, count: int) -> None:
        """Give `count` blocks back."""
        if not 0 <= count <= self.total - self.free:
            raise ValueError(f"cannot give back {count} blocks: only {self.total - self.free} are out")
        self.free += count
