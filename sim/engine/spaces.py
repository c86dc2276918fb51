"""What a replica's pool looks like at a moment: useful slots, empty ones, and holes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sim.memory.allocators.base import Segment

if TYPE_CHECKING:
    from sim.engine.replica import Replica


def extent(replica: Replica) -> tuple[int, int, int]:
    """Return the token slots of blocks that hold a token, that are taken, and that lie together in the largest hole.

    Only the last blocks of decoding turns are looked into: elsewhere a block that is taken counts as full.
    """
    pool = replica.kv.pool
    taken = (pool.total - pool.free) * pool.block_tokens
    return taken - min(replica.batch.slots, taken), taken, pool.free * pool.block_tokens


def segments(replica: Replica) -> list[Segment]:
    """Return the pool by use; blocks go by count, as any free one serves any request."""
    useful, taken, _ = extent(replica)
    parts = (Segment(0, useful, "useful", None), Segment(useful, taken, "reserved", None),
             Segment(taken, replica.kv.pool.total * replica.kv.pool.block_tokens, "hole", None))
    return [part for part in parts if part.end > part.start]


class SpaceMaps:
    """The address space of a replica at some moments, which thin out as a run grows longer."""

    MOST = 64

    __slots__ = ("_asked", "_every", "maps", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.maps: list[tuple[float, list[Segment]]] = []
        self._asked = 0
        self._every = 1

    def take(self, now_s: float) -> None:
        """Note how the pool is used now; of many calls, only some do."""
        self._asked += 1
        if self._asked % self._every:
            return
        self.maps.append((now_s, self.replica.segments()))
        if len(self.maps) >= self.MOST:
            self.maps = self.maps[1::2]
            self._every *= 2

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Return rows of `records.SPACE_COLUMNS`."""
        for time_s, parts in self.maps:
            for start, end, use, owner in parts:
                yield time_s, self.replica.number, start, end, use, -1 if owner is None else owner
