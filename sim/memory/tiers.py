"""Tiers below HBM: contexts of paused trajectories, least recently used first to go.

A tier belongs to a node and is shared by its replicas. It holds, per stream, one run of whole blocks
``[first, end)``; a copy under way pins its entry, and blocks can be found only when their copy has ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from workloads.trajectory import Stream


class Entry:
    """Blocks ``[first, end)`` of a stream in this tier, of which those below `ready` can be read."""

    __slots__ = ("end", "first", "pins", "ready", "stream")

    def __init__(self, stream: Stream, first: int) -> None:
        self.stream = stream
        self.first = first
        self.end = first
        self.ready = first
        self.pins = 0


class Tier:
    """A capacity in bytes, filled with blocks of `block_bytes`.

    Raises
    ------
    ValueError
        If the capacity is negative or a block has no size.
    """

    __slots__ = ("_since_s", "block_bytes", "byte_s", "capacity_blocks", "entries", "evicted", "pinned", "used")

    def __init__(self, capacity_bytes: float, block_bytes: int) -> None:
        if capacity_bytes < 0 or block_bytes < 1:
            raise ValueError(f"a tier needs a capacity >= 0 and a block size >= 1 byte (got {capacity_bytes}, "
                             f"{block_bytes})")
        self.block_bytes = block_bytes
        self.capacity_blocks = int(capacity_bytes // block_bytes)
        self.used = 0
        #: Blocks of entries that a copy pins.
        self.pinned = 0
        self.evicted = 0
        self.entries: OrderedDict[Stream, Entry] = OrderedDict()
        self.byte_s = 0.0
        self._since_s = 0.0

    def room_blocks(self) -> int:
        """Return the blocks that could be stored now: free ones and those of entries that no copy pins."""
        return self.capacity_blocks - self.pinned

    def reserve(self, stream: Stream, first: int, end: int, now_s: float) -> Entry | None:
        """Make room for blocks ``[first, end)`` of `stream` and pin its entry; None if there is none.

        Blocks the tier already holds are not stored twice: the copy is of ``[entry.ready, end)``. An entry that does
        not reach down to `first` cannot be joined to the new blocks and is replaced.
        """
        entry = self.entries.get(stream)
        if entry is not None and not entry.first <= first <= entry.ready:
            if entry.pins or end - first > self.capacity_blocks - self.pinned:
                return None
            self._shrink(entry, entry.first, now_s)
            entry = None
        if entry is not None:
            self._pin(entry)
        need = end - (first if entry is None else entry.end)
        if need > 0 and not self._make_room(need, now_s):
            if entry is not None:
                self._unpin(entry, now_s)
            return None
        if entry is None:
            entry = self.entries[stream] = Entry(stream, first)
            self._pin(entry)
        self._book(now_s)
        if need > 0:
            self.used += need
            self.pinned += need
            entry.end = end
        self.entries.move_to_end(stream)
        return entry

    def hold(self, stream: Stream) -> Entry | None:
        """Pin the stream's entry while it is read; None if there is none. Undo with `release`."""
        entry = self.entries.get(stream)
        if entry is not None:
            self._pin(entry)
            self.entries.move_to_end(stream)
        return entry

    def release(self, entry: Entry, now_s: float) -> None:
        """Undo `hold`."""
        self._unpin(entry, now_s)

    def copied(self, entry: Entry, end: int, now_s: float) -> None:
        """The copy of blocks up to `end` has ended: they can be read."""
        entry.ready = max(entry.ready, end)
        self._unpin(entry, now_s)

    def cancel(self, entry: Entry, now_s: float) -> None:
        """A copy into `entry` was cancelled: forget the blocks it did not bring, unless another copy brings them."""
        self._unpin(entry, now_s)

    def forget(self, stream: Stream, now_s: float) -> None:
        """Drop the stream's entry unless a copy pins it (its trajectory has ended, or HBM holds it again)."""
        entry = self.entries.get(stream)
        if entry is not None and not entry.pins:
            self._shrink(entry, entry.first, now_s)

    def oldest(self) -> Entry | None:
        """Return the entry used longest ago that no copy pins, or None."""
        return next((entry for entry in self.entries.values() if not entry.pins), None)

    def settle(self, now_s: float) -> None:
        """Bring the byte-seconds up to date."""
        self._book(now_s)

    def _pin(self, entry: Entry) -> None:
        if entry.pins == 0:
            self.pinned += entry.end - entry.first
        entry.pins += 1

    def _unpin(self, entry: Entry, now_s: float) -> None:
        """Lift one pin; with the last, forget blocks that no copy has brought."""
        entry.pins -= 1
        if entry.pins == 0:
            self.pinned -= entry.end - entry.first
            if entry.ready < entry.end:
                self._shrink(entry, entry.ready, now_s)

    def _make_room(self, need: int, now_s: float) -> bool:
        short = need - (self.capacity_blocks - self.used)
        if short <= 0:
            return True
        if short > self.used - self.pinned:
            return False
        victims: list[tuple[Entry, int]] = []
        for entry in self.entries.values():
            if not entry.pins:
                step = min(entry.end - entry.first, short)
                victims.append((entry, step))
                short -= step
                if not short:
                    break
        for entry, step in victims:
            self.evicted += step
            self._shrink(entry, entry.end - step, now_s)
        return True

    def _shrink(self, entry: Entry, end: int, now_s: float) -> None:
        self._book(now_s)
        self.used -= entry.end - end
        entry.end = end
        entry.ready = min(entry.ready, end)
        if entry.end == entry.first and not entry.pins:
            del self.entries[entry.stream]

    def _book(self, now_s: float) -> None:
        self.byte_s += self.used * self.block_bytes * (now_s - self._since_s)
        self._since_s = now_s


def cover(tiers: Sequence[Tier], stream: Stream, tokens: int, have_tokens: int, block_tokens: int) -> list[int]:
    """Return how many blocks of a prompt each tier can add to the `have_tokens` tokens that HBM holds.

    The prompt is the first `tokens` tokens of `stream`. Entries of the stream and of its ancestors, in whichever tier,
    are joined as long as they leave no gap; where two tiers hold a block, the first of them gives it.
    """
    pieces: list[tuple[Stream, int]] = []
    at: Stream | None = stream
    while at is not None and tokens > have_tokens:
        pieces.append((at, tokens // block_tokens))
        tokens = min(tokens, at.attach)
        at = at.parent
    found = [0] * len(tiers)
    covered = have_tokens // block_tokens
    for piece, upto in reversed(pieces):
        while covered < upto:
            for index, tier in enumerate(tiers):
                entry = tier.entries.get(piece)
                if entry is not None and entry.first <= covered < entry.ready:
                    reach = min(entry.ready, upto)
                    found[index] += reach - covered
                    covered = reach
                    break
            else:
                return found
    return found
