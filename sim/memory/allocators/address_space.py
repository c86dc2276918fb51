"""A range of slots with real holes: buffers are cut out of them, and holes that touch become one."""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal, get_args

from sim.memory.allocators.base import NoRoomError

#: Which of the holes that are large enough serves a request: the lowest, or the smallest (the lowest of those).
Fit = Literal["first", "best"]


class AddressSpace:
    """`total` slots, free at first.

    Holes are kept by address, so giving a buffer back takes a bisection; finding one looks at the holes, of which there
    is at most one more than there are buffers.

    Raises
    ------
    ValueError
        If there is no slot, if `fit` is unknown, or if what is given back is (partly) free already.
    """

    __slots__ = ("_sizes", "_starts", "fit", "free", "total")

    def __init__(self, total: int, fit: Fit = "first") -> None:
        if total < 1:
            raise ValueError(f"an address space needs at least one slot (got {total})")
        if fit not in get_args(Fit):
            raise ValueError(f"unknown fit: first or best (got {fit!r})")
        self.total = total
        self.fit: Fit = fit
        self.free = total
        self._starts = [0]
        self._sizes = [total]

    @property
    def largest(self) -> int:
        """Largest buffer there could be if all were free."""
        return self.total

    def room(self, size: int) -> bool:
        """Return whether a hole holds a buffer of `size` slots."""
        return self._find(size) is not None

    def take(self, size: int) -> int:
        """Cut a buffer off the low end of a hole; return its first slot."""
        index = self._find(size) if size > 0 else None
        if index is None:
            raise NoRoomError(f"no hole of {size} slots: {self.free} of {self.total} are free, "
                              f"at most {max(self._sizes, default=0)} together")
        return self._cut(index, size)

    def gather(self, count: int) -> list[tuple[int, int]]:
        """Take the `count` lowest free slots wherever they are; return (first slot, slots) of each run."""
        if not 0 <= count <= self.free:
            raise NoRoomError(f"cannot take {count} slots: {self.free} of {self.total} are free")
        runs = []
        while count > 0:
            size = min(count, self._sizes[0])
            runs.append((self._cut(0, size), size))
            count -= size
        return runs

    def give(self, start: int, size: int) -> None:
        """Give slots back and join the holes that touch."""
        starts, sizes = self._starts, self._sizes
        after = bisect_right(starts, start)
        before = after - 1
        free_below = starts[before] + sizes[before] if before >= 0 else 0
        free_above = starts[after] if after < len(starts) else self.total
        if size < 1 or start < free_below or start + size > free_above:
            raise ValueError(f"slots {start} to {start + size} of {self.total} are not all taken")
        joins_below = before >= 0 and free_below == start
        joins_above = after < len(starts) and free_above == start + size
        self.free += size
        if joins_below and joins_above:
            sizes[before] += size + sizes[after]
            del starts[after], sizes[after]
        elif joins_below:
            sizes[before] += size
        elif joins_above:
            starts[after] = start
            sizes[after] += size
        else:
            starts.insert(after, start)
            sizes.insert(after, size)

    def holes(self) -> list[tuple[int, int]]:
        """Return (first slot, slots) of the holes, by address."""
        return list(zip(self._starts, self._sizes, strict=True))

    def _find(self, size: int) -> int | None:
        if size > self.free:
            return None
        if self.fit == "first":
            return next((index for index, hole in enumerate(self._sizes) if hole >= size), None)
        return min((index for index, hole in enumerate(self._sizes) if hole >= size), key=self._sizes.__getitem__,
                   default=None)

    def _cut(self, index: int, size: int) -> int:
        start = self._starts[index]
        if size == self._sizes[index]:
            del self._starts[index], self._sizes[index]
        else:
            self._starts[index] += size
            self._sizes[index] -= size
        self.free -= size
        return start
