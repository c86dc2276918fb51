"""What the allocators with one contiguous buffer a sequence have in common.

They differ in how large a buffer is and in where it comes from.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from sim.memory.allocators.base import NOTHING, Growth, NoRoomError, Segment, Stats


class Space(Protocol):
    """Where contiguous buffers come from."""

    total: int
    free: int

    @property
    def largest(self) -> int:
        """Largest buffer there could be if all were free."""
        ...

    def room(self, size: int) -> bool:
        """Return whether a hole holds a buffer of `size` slots."""
        ...

    def take(self, size: int) -> int:
        """Take a buffer; return its first slot."""
        ...

    def give(self, start: int, size: int) -> None:
        """Give a buffer back, as it was taken."""
        ...

    def holes(self) -> list[tuple[int, int]]:
        """Return (first slot, slots) of the holes, by address."""
        ...


class Buffer:
    """One contiguous buffer: where it is, its size, the tokens in it, and the size that its sequence began with."""

    __slots__ = ("first", "size", "start", "tokens")

    def __init__(self, start: int, size: int, tokens: int, first: int) -> None:
        self.start = start
        self.size = size
        self.tokens = tokens
        self.first = first


class ContiguousAllocator:
    """One buffer a sequence; what does not fit is copied into a larger one while the old one is still there.

    A fork copies everything, since two sequences cannot write behind the same prefix.
    """

    #: Calls into the driver (cudaMalloc, cudaFree) that a buffer costs when it is taken, and when it is given back.
    driver_calls: ClassVar[int] = 0

    def __init__(self, space: Space) -> None:
        self.space = space
        self._buffers: dict[int, Buffer] = {}
        self._useful = 0
        self._peak = 0

    def buffer_tokens(self, tokens: int, first: int | None) -> int | None:
        """Return the size of the buffer that holds `tokens` tokens, None if there is no such buffer.

        `first` is the size of the sequence's first buffer, None if this is the first.
        """
        raise NotImplementedError

    def fits(self, tokens: int) -> bool:
        """Return whether a new sequence of `tokens` tokens would find room in the pool if it were empty."""
        size = self.buffer_tokens(tokens, None)
        return size is not None and size <= self.space.largest

    def can_extend(self, sequence: int, tokens: int) -> bool:
        """Return whether `extend` would do it."""
        buffer = self._buffers.get(sequence)
        if buffer is not None and tokens <= buffer.size:
            return True
        size = self.buffer_tokens(tokens, buffer.first if buffer is not None else None)
        return size is not None and self.space.room(size)

    def extend(self, sequence: int, tokens: int) -> Growth:
        """Let a sequence, new or known, hold `tokens` tokens in all; fewer than it holds change nothing."""
        if tokens < 1:
            raise ValueError(f"a sequence holds at least one token (got {tokens} for sequence {sequence})")
        buffer = self._buffers.get(sequence)
        if buffer is None:
            self._buffers[sequence] = self._new(tokens, None)
            self._useful += tokens
            return Growth(mallocs=self.driver_calls)
        growth = NOTHING
        if tokens > buffer.size:
            new = self._buffers[sequence] = self._new(tokens, buffer.first)
            self.space.give(buffer.start, buffer.size)
            growth = Growth(buffer.tokens, self.driver_calls, self.driver_calls, buffer.size)
            self._useful += tokens - buffer.tokens
            buffer = new
        elif tokens > buffer.tokens:
            self._useful += tokens - buffer.tokens
            buffer.tokens = tokens
        return growth

    def needs(self, sequence: int, tokens: int) -> int | None:
        """Return the slots of the buffer that `extend` would take, 0 if it would take none.

        None says that there is no buffer so large.
        """
        buffer = self._buffers.get(sequence)
        if buffer is not None and tokens <= buffer.size:
            return 0
        return self.buffer_tokens(tokens, buffer.first if buffer is not None else None)

    def truncate(self, sequence: int, tokens: int) -> None:
        """Forget what a sequence holds beyond its first `tokens` tokens; its buffer stays as large as it is."""
        buffer = self._known(sequence)
        if not 0 <= tokens <= buffer.tokens:
            raise ValueError(f"sequence {sequence} holds {buffer.tokens} tokens (got {tokens})")
        self._useful -= buffer.tokens - tokens
        buffer.tokens = tokens

    def can_fork(self, parent: int) -> bool:
        """Return whether `fork` would do it."""
        buffer = self._known(parent)
        size = self.buffer_tokens(buffer.tokens, buffer.first)
        return size is not None and self.space.room(size)

    def fork(self, parent: int, child: int) -> Growth:
        """Copy the tokens of `parent` into a buffer of the child's own."""
        buffer = self._known(parent)
        if child in self._buffers:
            raise ValueError(f"sequence {child} is there already")
        self._buffers[child] = self._new(buffer.tokens, buffer.first)
        self._useful += buffer.tokens
        return Growth(buffer.tokens, self.driver_calls)

    def free(self, sequence: int) -> Growth:
        """Give the buffer of a sequence back."""
        buffer = self._known(sequence)
        del self._buffers[sequence]
        self.space.give(buffer.start, buffer.size)
        self._useful -= buffer.tokens
        return Growth(frees=self.driver_calls)

    def capacity_tokens(self, sequence: int) -> int:
        """Return the size of a sequence's buffer."""
        return self._known(sequence).size

    def stats(self) -> Stats:
        """Return the state of the pool."""
        space = self.space
        return Stats(self._useful, space.total - space.free, space.free, self._peak,
                     tuple(size for _, size in space.holes()))

    def segments(self) -> list[Segment]:
        """Return the whole address space, by address."""
        found = [Segment(start, start + size, "hole", None) for start, size in self.space.holes()]
        for number, buffer in self._buffers.items():
            used = buffer.start + buffer.tokens
            found.append(Segment(buffer.start, used, "useful", number))
            if buffer.tokens < buffer.size:
                found.append(Segment(used, buffer.start + buffer.size, "reserved", number))
        return sorted(found, key=lambda segment: segment.start)

    def _known(self, sequence: int) -> Buffer:
        buffer = self._buffers.get(sequence)
        if buffer is None:
            raise ValueError(f"there is no sequence {sequence}")
        return buffer

    def _new(self, tokens: int, first: int | None) -> Buffer:
        size = self.buffer_tokens(tokens, first)
        if size is None:
            raise NoRoomError(f"no buffer is large enough for {tokens} tokens")
        start = self.space.take(size)
        self._peak = max(self._peak, self.space.total - self.space.free)
        return Buffer(start, size, tokens, size if first is None else first)
