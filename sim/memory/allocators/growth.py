"""Buffers that grow like a vector: a new one, `factor` times as large, the tokens copied, the old one freed."""

from __future__ import annotations

from typing import ClassVar

from sim.analytic.fragmentation import growth_buffer_tokens
from sim.memory.allocators.address_space import AddressSpace, Fit
from sim.memory.allocators.contiguous import ContiguousAllocator


class GrowthAllocator(ContiguousAllocator):
    """Contiguous buffers of sizes in geometric progression, in a space with real holes.

    Old and new buffer live together during the copy (three times the old one when the factor is 2), so a sequence
    may be refused although the pool has room for its tokens.

    Parameters
    ----------
    total
        Token slots of the pool.
    factor
        Ratio of one buffer to the one before, above 1.
    initial
        Tokens of the smallest buffer. With None a sequence's first buffer has exactly the tokens it is first asked for
        (its prompt), and grows from there.
    fit
        Which hole serves a request: the first or the best.

    Raises
    ------
    ValueError
        If a size is not positive or the factor not above 1.
    """

    driver_calls: ClassVar[int] = 1

    def __init__(self, total: int, factor: float = 2.0, initial: int | None = 1, fit: Fit = "first") -> None:
        if not factor > 1.0:
            raise ValueError(f"a growing buffer needs a factor above 1 (got {factor})")
        if initial is not None and initial < 1:
            raise ValueError(f"a buffer holds at least one token (got {initial})")
        super().__init__(AddressSpace(total, fit))
        self.factor = factor
        self.initial = initial

    def buffer_tokens(self, tokens: int, first: int | None) -> int | None:
        """Return the smallest size of the sequence's progression that holds `tokens` tokens."""
        return growth_buffer_tokens(tokens, self.initial or first or tokens, self.factor)
