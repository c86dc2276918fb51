"""Reservation for the worst case: one buffer of the largest length there may be, at admission."""

from __future__ import annotations

from sim.memory.allocators.address_space import AddressSpace
from sim.memory.allocators.contiguous import ContiguousAllocator


class StaticAllocator(ContiguousAllocator):
    """Buffers of `s_max` tokens; a sequence that has one never runs out of memory half-way.

    Parameters
    ----------
    total
        Token slots of the pool.
    s_max
        Tokens of every buffer; longer sequences are refused.

    Raises
    ------
    ValueError
        If a size is not positive.
    """

    def __init__(self, total: int, s_max: int) -> None:
        if s_max < 1:
            raise ValueError(f"a buffer holds at least one token (got {s_max})")
        super().__init__(AddressSpace(total))
        self.s_max = s_max

    def buffer_tokens(self, tokens: int, first: int | None) -> int | None:
        """Return `s_max`, or None for a sequence that is longer."""
        return self.s_max if tokens <= self.s_max else None
