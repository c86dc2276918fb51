"""What every allocator does, and the measures by which they are compared.

Memory is counted in token slots; how many bytes a slot has is the caller's affair. An allocator decides where the
tokens of a sequence lie and says what that costs; it knows neither time nor content.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sim.analytic import fragmentation


class NoRoomError(ValueError):
    """What was asked for cannot be had now; nothing has changed."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What a change costs besides the memory it takes.

    Attributes
    ----------
    copied
        Tokens copied within the pool: each is read once and written once.
    mallocs, frees
        Calls into the driver that stall the step loop; none where buffers are pieces of a region mapped at the start.
    transient
        Slots of the old buffer, which lives beside the new one until the copy has ended.
    """

    copied: int = 0
    mallocs: int = 0
    frees: int = 0
    transient: int = 0

    def __add__(self, other: Growth) -> Growth:
        """Return the cost of one change after the other; only one old buffer lives at a time."""
        return Growth(self.copied + other.copied, self.mallocs + other.mallocs, self.frees + other.frees,
                      max(self.transient, other.transient))


#: A change that costs nothing.
NOTHING = Growth()


@dataclass(frozen=True, slots=True)
class Stats:
    """The state of a pool, in token slots.

    Attributes
    ----------
    useful
        Slots that hold a token; one that several sequences share counts once.
    allocated, free, pool
        Slots that belong to a sequence, that belong to none, and their sum.
    peak
        Most slots allocated so far, old and new buffers of a copy together.
    holes
        Sizes of the free pieces that a request may be served from, by address.
    piece
        Slots into which a request may be cut (a block); None when it needs them in one piece.
    """

    useful: int
    allocated: int
    free: int
    peak: int
    holes: tuple[int, ...]
    piece: int | None = None

    @property
    def pool(self) -> int:
        """All slots."""
        return self.allocated + self.free

    @property
    def allocation_efficiency(self) -> float:
        """Useful over allocated slots; 1 when nothing is allocated."""
        return fragmentation.allocation_efficiency(self.useful, self.allocated)

    @property
    def effective_occupancy(self) -> float:
        """Useful slots over the pool."""
        return fragmentation.effective_occupancy(self.useful, self.pool)

    def external_fragmentation(self, request: int) -> float:
        """Return the share of free slots that lie in holes too small for a request of so many slots."""
        piece = request if self.piece is None else min(request, self.piece)
        return fragmentation.external_fragmentation(self.holes, piece)


class Segment(NamedTuple):
    """A run of slots from `start` to `end` of one use: ``useful``, ``reserved`` or ``hole``.

    `sequence` is its owner: None for a hole and for what sequences share or once shared.
    """

    start: int
    end: int
    use: str
    sequence: int | None


class Allocator(Protocol):
    """Divides a pool of token slots among sequences, which the caller numbers.

    Whatever cannot be done raises before anything has changed: `NoRoomError` when memory is short, ValueError when the
    call makes no sense (an unknown sequence, a number that is taken, fewer than one token).
    """

    def fits(self, tokens: int) -> bool:
        """Return whether a new sequence of `tokens` tokens would find room in the pool if it were empty."""
        ...

    def can_extend(self, sequence: int, tokens: int) -> bool:
        """Return whether `extend` would do it."""
        ...

    def extend(self, sequence: int, tokens: int) -> Growth:
        """Let a sequence, new or known, hold `tokens` tokens in all; fewer than it holds change nothing."""
        ...

    def can_fork(self, parent: int) -> bool:
        """Return whether `fork` would do it."""
        ...

    def fork(self, parent: int, child: int) -> Growth:
        """Start a sequence that holds what `parent` holds."""
        ...

    def free(self, sequence: int) -> Growth:
        """End a sequence."""
        ...

    def capacity_tokens(self, sequence: int) -> int:
        """Return how many tokens a sequence can hold in all before it must take memory (or copy) again."""
        ...

    def stats(self) -> Stats:
        """Return the state of the pool; takes time linear in the number of holes."""
        ...

    def segments(self) -> list[Segment]:
        """Return the whole address space, by address."""
        ...
