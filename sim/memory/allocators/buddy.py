"""Powers of two: a block is split into two buddies until it is as small as it can be, and buddies merge when free."""

from __future__ import annotations

from bisect import bisect_left, insort

from sim.memory.allocators.base import NoRoomError
from sim.memory.allocators.contiguous import ContiguousAllocator


class BuddySpace:
    """Slots in blocks of `smallest` times a power of two, each at a multiple of its size.

    A number of slots that is no power of two is cut into the powers that add up to it, largest first; fewer than
    `smallest` slots at the end are left out.

    Raises
    ------
    ValueError
        If there is not a single block, if `smallest` is no power of two, or if what is given back was not taken.
    """

    __slots__ = ("_free", "_taken", "free", "smallest", "total")

    def __init__(self, total: int, smallest: int = 1) -> None:
        if power_of_two(smallest) != smallest:
            raise ValueError(f"the smallest block must be a power of two (got {smallest})")
        if total < smallest:
            raise ValueError(f"a pool needs at least one block (got {total} slots, blocks of {smallest} and more)")
        self.smallest = smallest
        self.total = self.free = total - total % smallest
        #: Free blocks by size: their first slots, in order.
        self._free: dict[int, list[int]] = {smallest << k: [] for k in range((total // smallest).bit_length())}
        #: First slot -> size of what is taken.
        self._taken: dict[int, int] = {}
        start = 0
        for size in sorted(self._free, reverse=True):
            if self.total & size:
                self._free[size].append(start)
                start += size

    @property
    def largest(self) -> int:
        """Largest block there could be if all were free."""
        return max(self._free)

    def block(self, size: int) -> int:
        """Return the size of the block that holds `size` slots."""
        return max(power_of_two(size), self.smallest)

    def room(self, size: int) -> bool:
        """Return whether a free block holds a buffer of `size` slots."""
        return any(starts and block >= size for block, starts in self._free.items())

    def take(self, size: int) -> int:
        """Take a block for `size` slots, the lowest of the smallest that do, split as far as possible."""
        wanted = self.block(size)
        found = next((block for block, starts in self._free.items() if starts and block >= wanted), None)
        if found is None:
            most = max((block for block, starts in self._free.items() if starts), default=0)
            raise NoRoomError(f"no block of {wanted} slots: {self.free} of {self.total} are free, "
                              f"in blocks of at most {most}")
        start = self._free[found].pop(0)
        while found > wanted:
            found //= 2
            insort(self._free[found], start + found)
        self._taken[start] = wanted
        self.free -= wanted
        return start

    def give(self, start: int, size: int) -> None:
        """Give a block back and merge it with its buddy as long as that is free."""
        size = self.block(size)
        if self._taken.get(start) != size:
            raise ValueError(f"there is no block of {size} slots at {start}")
        del self._taken[start]
        self.free += size
        while True:
            starts = self._free[size]
            buddy = start ^ size
            index = bisect_left(starts, buddy)
            if index == len(starts) or starts[index] != buddy or 2 * size not in self._free:
                break
            del starts[index]
            start = min(start, buddy)
            size *= 2
        insort(self._free[size], start)

    def holes(self) -> list[tuple[int, int]]:
        """Return (first slot, slots) of the free blocks, by address; neighbours may touch without being buddies."""
        return sorted((start, size) for size, starts in self._free.items() for start in starts)


class BuddyAllocator(ContiguousAllocator):
    """Contiguous buffers in a binary buddy system; a sequence that outgrows its block is copied to one twice as large.

    Parameters
    ----------
    total
        Token slots of the pool.
    smallest
        Tokens of the smallest block, a power of two.
    """

    def __init__(self, total: int, smallest: int = 1) -> None:
        space = BuddySpace(total, smallest)
        super().__init__(space)
        self._block = space.block

    def buffer_tokens(self, tokens: int, first: int | None) -> int | None:
        """Return the smallest block that holds `tokens` tokens."""
        return self._block(tokens)


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below `number`."""
    return 1 << (number - 1).bit_length() if number > 1 else 1
