"""Tiers below HBM: contexts of paused trajectories, and which of them go first.

A tier belongs to a node and is shared by its replicas. It holds, per stream, one run of whole blocks
``[first, end)``; a copy under way pins its entry, and blocks can be found only when their copy has ended. Where
trajectories share nothing, each has a run of its own of a stream.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from sim.policies.eviction import Arc, EntryView, Eviction
from workloads.trajectory import Stream

#: What an entry is found by: a stream, or a stream as one trajectory has it.
Place = Stream | tuple[int, Stream]
#: A place, the blocks ``[first, end)`` to be stored there, and whether several streams grew out of it.
Piece = tuple[Place, int, int, bool]


class Entry:
    """Blocks ``[first, end)`` at a place in this tier, of which those below `ready` can be read.

    `owner` is the trajectory that wrote it last, `shared` whether several streams grew out of it then.
    """

    __slots__ = ("end", "first", "last_use_s", "owner", "pins", "place", "ready", "shared", "since_s", "uses")

    def __init__(self, place: Place, first: int) -> None:
        self.place = place
        self.first = first
        self.end = first
        self.ready = first
        self.pins = 0
        self.owner = -1
        self.shared = False
        #: How often it was read, and when it was last read or written.
        self.uses = 0
        self.last_use_s = 0.0
        #: Sum over readable blocks of the time since which they lie here unread.
        self.since_s = 0.0


class Tier:
    """A capacity in bytes, filled with blocks of `block_bytes`.

    Parameters
    ----------
    eviction
        Who goes first when room is needed; None for the entry used longest ago.
    block_tokens
        Tokens of a block, for policies that look at positions.

    Attributes
    ----------
    used, pinned, evicted
        Blocks stored or being stored; those of entries that a copy pins; those evicted so far.
    byte_s, reused_byte_s
        Byte-seconds stored so far, and those of blocks that were then read.
    least_blocks
        A prompt that finds fewer blocks than this below HBM computes them instead (see `cover`).

    Raises
    ------
    ValueError
        If the capacity is negative or a block has no size.
    """

    __slots__ = ("_lists", "_policy", "_ready", "_since_s", "_since_sum_s", "_wasted_block_s", "block_bytes",
                 "block_tokens", "byte_s", "capacity_blocks", "entries", "evicted", "least_blocks", "pinned",
                 "reused_byte_s", "used")

    def __init__(self, capacity_bytes: float, block_bytes: int, eviction: Eviction | None = None,
                 block_tokens: int = 1) -> None:
        if capacity_bytes < 0 or block_bytes < 1:
            raise ValueError(f"a tier needs a capacity >= 0 and a block size >= 1 byte (got {capacity_bytes}, "
                             f"{block_bytes})")
        self.block_bytes = block_bytes
        self.block_tokens = block_tokens
        self.capacity_blocks = int(capacity_bytes // block_bytes)
        self.used = 0
        self.pinned = 0
        self.evicted = 0
        self.least_blocks = 0
        #: In order of their last use.
        self.entries: OrderedDict[Place, Entry] = OrderedDict()
        self.byte_s = 0.0
        self.reused_byte_s = 0.0
        self._wasted_block_s = 0.0
        self._since_s = 0.0
        #: Readable blocks, and the sum of the times since which they lie here unread.
        self._ready = 0
        self._since_sum_s = 0.0
        self._policy = None if eviction is None or eviction.policy == "lru" else eviction
        self._lists = eviction.start(self.capacity_blocks) if isinstance(eviction, Arc) else None

    def room_blocks(self) -> int:
        """Return the blocks that could be stored now: free ones and those of entries that no copy pins."""
        return self.capacity_blocks - self.pinned

    def reserve(self, place: Place, first: int, end: int, now_s: float, *, owner: int = -1,
                shared: bool = False) -> Entry | None:
        """Make room for blocks ``[first, end)`` at `place` and pin its entry; None if there is none.

        Blocks the tier already holds are not stored twice: the copy is of ``[entry.ready, end)``. An entry that does
        not reach down to `first` cannot be joined to the new blocks and is replaced.
        """
        entry = self.entries.get(place)
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
            entry = self.entries[place] = Entry(place, first)
            self._pin(entry)
        self._book(now_s)
        if need > 0:
            self.used += need
            self.pinned += need
            entry.end = end
            if self._lists is not None and self._lists.recall(place, need):
                entry.uses = max(entry.uses, 1)
        entry.owner, entry.shared = owner, shared
        entry.last_use_s = now_s
        self.entries.move_to_end(place)
        return entry

    def hold(self, place: Place, now_s: float) -> Entry | None:
        """Pin the entry at a place while it is read; None if there is none. Undo with `release`."""
        entry = self.entries.get(place)
        if entry is not None:
            if entry.pins == 0:
                self.pinned += entry.end - entry.first
            entry.pins += 1
            self.entries.move_to_end(place)
            entry.uses += 1
            entry.last_use_s = now_s
            unread_s = (entry.ready - entry.first) * now_s - entry.since_s
            self.reused_byte_s += self.block_bytes * unread_s
            self._since_sum_s += unread_s
            entry.since_s += unread_s
        return entry

    def touch(self, place: Place, now_s: float) -> None:
        """Note a use of the entry at a place, if there is one, for which it is not read."""
        entry = self.entries.get(place)
        if entry is not None:
            self.entries.move_to_end(place)
            entry.uses += 1
            entry.last_use_s = now_s

    def pin(self, entry: Entry) -> None:
        """Keep an entry while it is copied on to another tier, which is no use of it. Undo with `release`."""
        self._pin(entry)

    def release(self, entry: Entry, now_s: float) -> None:
        """Undo `hold` or `pin`."""
        self._unpin(entry, now_s)

    def copied(self, entry: Entry, end: int, now_s: float) -> None:
        """The copy of blocks up to `end` has ended: they can be read."""
        more = end - entry.ready
        if more > 0:
            entry.ready = end
            self._ready += more
            self._since_sum_s += more * now_s
            entry.since_s += more * now_s
        self._unpin(entry, now_s)

    def cancel(self, entry: Entry, now_s: float) -> None:
        """A copy into `entry` was cancelled: forget the blocks it did not bring, unless another copy brings them."""
        self._unpin(entry, now_s)

    def forget(self, place: Place, now_s: float) -> None:
        """Drop the entry at a place unless a copy pins it (its trajectory has ended, or HBM holds it again)."""
        entry = self.entries.get(place)
        if entry is not None and not entry.pins:
            self._shrink(entry, entry.first, now_s)

    def victims(self) -> Iterator[Entry]:
        """Yield the entries that no copy pins, the first to go first."""
        if self._policy is None:
            return self._unpinned()
        free = list(self._unpinned())
        if self._lists is None:
            rank = self._policy.rank  # type: ignore[union-attr]
            return iter(sorted(free, key=lambda entry: rank(self._view(entry))))
        return self._adaptive(free)

    def settle(self, now_s: float) -> None:
        """Bring the byte-seconds up to date."""
        self._book(now_s)

    def ledger(self, now_s: float) -> tuple[float, float, float, float]:
        """Return the byte-seconds so far by use, which sum to capacity x time.

        In the order of `records.TIER_USES`: being written, read later, not read (yet), free.
        """
        self._book(now_s)
        unread = self.block_bytes * (self._wasted_block_s + self._ready * now_s - self._since_sum_s)
        writing = self.byte_s - self.reused_byte_s - unread
        return writing, self.reused_byte_s, unread, self.capacity_blocks * self.block_bytes * now_s - self.byte_s

    def _unpinned(self) -> Iterator[Entry]:
        for entry in self.entries.values():
            if not entry.pins:
                yield entry

    def _view(self, entry: Entry) -> EntryView:
        size = self.block_tokens
        return EntryView(entry.last_use_s, entry.uses, entry.first * size, entry.end * size, entry.shared)

    def _adaptive(self, free: list[Entry]) -> Iterator[Entry]:
        """Yield entries read never and entries read before, each in order of last use, by the adaptive split."""
        assert self._lists is not None
        once, again = ([entry for entry in reversed(free) if (entry.uses > 0) is used] for used in (False, True))
        sizes = [sum(entry.end - entry.first for entry in part) for part in (once, again)]
        while once or again:
            part = 0 if self._lists.takes_from_once(*sizes) else 1
            if not (once, again)[part]:
                part = 1 - part
            entry = (once, again)[part].pop()
            sizes[part] -= entry.end - entry.first
            yield entry

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
        for entry in self.victims():
            step = min(entry.end - entry.first, short)
            victims.append((entry, step))
            short -= step
            if not short:
                break
        for entry, step in victims:
            self.evicted += step
            if self._lists is not None:
                self._lists.evicted(entry.place, step, used_again=entry.uses > 0)
            self._shrink(entry, entry.end - step, now_s)
        return True

    def _shrink(self, entry: Entry, end: int, now_s: float) -> None:
        self._book(now_s)
        self.used -= entry.end - end
        entry.end = end
        lost = entry.ready - end
        if lost > 0:
            age_s = entry.since_s / (entry.ready - entry.first)
            self._wasted_block_s += lost * (now_s - age_s)
            self._ready -= lost
            entry.ready = end
            self._since_sum_s -= lost * age_s
            entry.since_s -= lost * age_s
        if entry.end == entry.first and not entry.pins:
            del self.entries[entry.place]

    def _book(self, now_s: float) -> None:
        self.byte_s += self.used * self.block_bytes * (now_s - self._since_s)
        self._since_s = now_s


def cover(tiers: Sequence[Tier], stream: Stream, tokens: int, have_tokens: int, block_tokens: int,
          owner: int = -1) -> list[int]:
    """Return how many blocks of a prompt each tier can add to the `have_tokens` tokens that HBM holds.

    The prompt is the first `tokens` tokens of `stream`. Entries of the stream and of its ancestors, in whichever tier,
    are joined as long as they leave no gap; where two tiers hold a block, the first of them gives it. Fewer blocks in
    all than a tier that gives some asks for are none. With an `owner`, only what this trajectory has stored counts.
    """
    found = [0] * len(tiers)
    covered = have_tokens // block_tokens
    if tokens // block_tokens <= covered or not _any_has(tiers, stream, covered, block_tokens, owner):
        return found
    stores = [(index, tier.entries) for index, tier in enumerate(tiers) if tier.entries]
    pieces: list[tuple[Stream, int]] = []
    at: Stream | None = stream
    while at is not None and tokens > have_tokens:
        pieces.append((at, tokens // block_tokens))
        if at.attach < tokens:
            tokens = at.attach
        at = at.parent
    while pieces:
        piece, upto = pieces.pop()
        while covered < upto:
            before = covered
            for index, entries in stores:
                entry = entries.get(piece if owner < 0 else (owner, piece))
                if entry is not None and entry.first <= covered < entry.ready:
                    covered = entry.ready if entry.ready < upto else upto
                    found[index] += covered - before
                    break
            if covered == before:
                pieces.clear()
                break
    total = sum(found)
    for tier, blocks in zip(tiers, found, strict=True):
        if blocks and total < tier.least_blocks:
            return [0] * len(tiers)
    return found


def _any_has(tiers: Sequence[Tier], stream: Stream, block: int, block_tokens: int, owner: int) -> bool:
    """Return whether any tier holds block number `block` of `stream`."""
    at, behind = stream, (block + 1) * block_tokens
    while at.attach >= behind and at.parent is not None:
        at = at.parent
    for tier in tiers:
        entry = tier.entries.get(at if owner < 0 else (owner, at))
        if entry is not None and entry.first <= block < entry.ready:
            return True
    return False


def found_tokens(found: Sequence[int], have_tokens: int, block_tokens: int) -> tuple[int, ...]:
    """Return the tokens that each tier adds to `have_tokens`, given the blocks it can add (see `cover`).

    Where HBM holds a part of the first block, that part is not found twice.
    """
    tokens = [blocks * block_tokens for blocks in found]
    tokens[next(index for index, blocks in enumerate(found) if blocks)] -= have_tokens % block_tokens
    return tuple(tokens)
