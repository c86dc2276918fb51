"""Paged allocation with named blocks: a table a sequence, shared blocks, copy-on-write.

The engine counts blocks (`BlockPool`) and shares them through the prefix tree. This is the same rule for sequences that
are extended, forked and freed by number, with the place of every block: to set paging beside the contiguous
allocators on the same operations, and to draw it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sim.memory.allocators.address_space import AddressSpace
from sim.memory.allocators.base import NOTHING, Growth, NoRoomError, Segment, Stats
from sim.memory.allocators.paged import BlockPool

#: Runs of blocks: (first, count).
Extents = list[tuple[int, int]]


class Trunk:
    """Full blocks that sequences share, behind those of `parent`; `users` are sequences and further trunks on it."""

    __slots__ = ("extents", "parent", "users")

    def __init__(self, parent: Trunk | None, extents: Extents) -> None:
        self.parent = parent
        self.extents = extents
        self.users = 1


class Tail:
    """A partly filled block that sequences share until they write; `users` are those that have not."""

    __slots__ = ("block", "users")

    def __init__(self, block: int) -> None:
        self.block = block
        self.users = 1


class Table:
    """A sequence's blocks in order: a shared trunk, then blocks of its own or one shared tail."""

    __slots__ = ("own", "tail", "tokens", "trunk")

    def __init__(self, trunk: Trunk | None = None, tail: Tail | None = None, tokens: int = 0) -> None:
        self.trunk = trunk
        self.own: Extents = []
        self.tail = tail
        self.tokens = tokens


class PagedAllocator:
    """Blocks of `block_tokens` tokens over a pool that says how many are free.

    Extents stand for block tables, and the users of a run of blocks for the reference count of each.

    Parameters
    ----------
    pool
        Whose blocks are handed out; all of them must be free, and nobody else may take any.
    """

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.block_tokens = pool.block_tokens
        self._where = AddressSpace(pool.total)
        self._tables: dict[int, Table] = {}
        self._useful = 0
        self._peak = 0

    def fits(self, tokens: int) -> bool:
        """Return whether a new sequence of `tokens` tokens would find room in the pool if it were empty."""
        return self.pool.blocks(tokens) <= self.pool.total

    def can_extend(self, sequence: int, tokens: int) -> bool:
        """Return whether `extend` would do it."""
        return self._needs(self._tables.get(sequence), tokens) <= self.pool.free

    def extend(self, sequence: int, tokens: int) -> Growth:
        """Let a sequence hold `tokens` tokens in all; its first write to a shared tail copies that block."""
        if tokens < 1:
            raise ValueError(f"a sequence holds at least one token (got {tokens} for sequence {sequence})")
        table = self._tables.get(sequence)
        need = self._needs(table, tokens)
        if need > self.pool.free:
            raise NoRoomError(f"cannot take {need} blocks: {self.pool.free} of {self.pool.total} are free")
        if table is None:
            table = self._tables[sequence] = Table()
        if tokens <= table.tokens:
            return NOTHING
        copied = 0
        tail = table.tail
        if tail is not None:
            table.tail = None
            tail.users -= 1
            if tail.users:
                copied = table.tokens % self.block_tokens
            else:
                table.own.append((tail.block, 1))
        self._take(table.own, need)
        self._useful += tokens - table.tokens + copied
        table.tokens = tokens
        return Growth(copied) if copied else NOTHING

    def can_fork(self, parent: int) -> bool:
        """Return True: a fork takes no memory."""
        self._known(parent)
        return True

    def fork(self, parent: int, child: int) -> Growth:
        """Share all blocks of `parent`, without moving any."""
        table = self._known(parent)
        if child in self._tables:
            raise ValueError(f"sequence {child} is there already")
        own, table.own = table.own, []
        if own and table.tokens % self.block_tokens:
            first, count = own.pop()
            table.tail = Tail(first + count - 1)
            if count > 1:
                own.append((first, count - 1))
        if own:
            table.trunk = Trunk(table.trunk, own)
        if table.trunk is not None:
            table.trunk.users += 1
        if table.tail is not None:
            table.tail.users += 1
        self._tables[child] = Table(table.trunk, table.tail, table.tokens)
        return NOTHING

    def free(self, sequence: int) -> Growth:
        """End a sequence: blocks that nobody else uses are free."""
        table = self._known(sequence)
        del self._tables[sequence]
        used = table.tokens % self.block_tokens
        tail, trunk = table.tail, table.trunk
        if tail is not None:
            tail.users -= 1
            if not tail.users:
                self._give([(tail.block, 1)])
                self._useful -= used
        elif table.own:
            blocks = self._give(table.own)
            self._useful -= blocks * self.block_tokens - (-table.tokens % self.block_tokens)
        while trunk is not None:
            trunk.users -= 1
            if trunk.users:
                break
            self._useful -= self._give(trunk.extents) * self.block_tokens
            trunk = trunk.parent
        return NOTHING

    def capacity_tokens(self, sequence: int) -> int:
        """Return the tokens a sequence's blocks hold, those of a tail that it must copy first left out."""
        table = self._known(sequence)
        if table.tail is not None and table.tail.users > 1:
            return table.tokens
        return self.pool.blocks(table.tokens) * self.block_tokens

    def table(self, sequence: int) -> list[int]:
        """Return the block table of a sequence: the number of each block, in order."""
        table = self._known(sequence)
        trunks = []
        trunk = table.trunk
        while trunk is not None:
            trunks.append(trunk.extents)
            trunk = trunk.parent
        extents = [extent for part in reversed(trunks) for extent in part] + table.own
        blocks = [first + index for first, count in extents for index in range(count)]
        return blocks if table.tail is None else [*blocks, table.tail.block]

    def stats(self) -> Stats:
        """Return the state of the pool; a request may be served from any free blocks."""
        size = self.block_tokens
        return Stats(self._useful, (self.pool.total - self.pool.free) * size, self.pool.free * size, self._peak * size,
                     tuple(count * size for _, count in self._where.holes()), piece=size)

    def segments(self) -> list[Segment]:
        """Return the whole address space, by address; what is shared has no owner."""
        found = list(self._pieces(self._where.holes(), "hole", None))
        trunks: dict[int, Trunk] = {}
        for number, table in self._tables.items():
            used = table.tokens % self.block_tokens
            if table.tail is not None:
                found += self._partial(table.tail.block, used, None)
            elif table.own:
                full = list(table.own)
                if used:
                    first, count = full.pop()
                    full.append((first, count - 1))
                    found += self._partial(first + count - 1, used, number)
                found += self._pieces(full, "useful", number)
            trunk = table.trunk
            while trunk is not None and id(trunk) not in trunks:
                trunks[id(trunk)] = trunk
                trunk = trunk.parent
        for trunk in trunks.values():
            found += self._pieces(trunk.extents, "useful", None)
        return sorted(set(found), key=lambda segment: segment.start)

    def _pieces(self, extents: Iterable[tuple[int, int]], use: str, owner: int | None) -> Iterator[Segment]:
        size = self.block_tokens
        return (Segment(first * size, (first + count) * size, use, owner) for first, count in extents if count)

    def _partial(self, block: int, used: int, owner: int | None) -> list[Segment]:
        start = block * self.block_tokens
        return [Segment(start, start + used, "useful", owner),
                Segment(start + used, start + self.block_tokens, "reserved", owner)]

    def _known(self, sequence: int) -> Table:
        table = self._tables.get(sequence)
        if table is None:
            raise ValueError(f"there is no sequence {sequence}")
        return table

    def _needs(self, table: Table | None, tokens: int) -> int:
        """Return the blocks that `tokens` tokens take beyond those a table has, the copy of a shared tail included."""
        if table is None:
            return self.pool.blocks(tokens)
        if tokens <= table.tokens:
            return 0
        copy = table.tail is not None and table.tail.users > 1
        return self.pool.blocks(tokens) - self.pool.blocks(table.tokens) + copy

    def _take(self, own: Extents, count: int) -> None:
        self.pool.take(count)
        for first, size in self._where.gather(count):
            if own and sum(own[-1]) == first:
                own[-1] = (own[-1][0], own[-1][1] + size)
            else:
                own.append((first, size))
        self._peak = max(self._peak, self.pool.total - self.pool.free)

    def _give(self, extents: Extents) -> int:
        """Free blocks; return how many."""
        for first, count in extents:
            self._where.give(first, count)
        blocks = sum(count for _, count in extents)
        self.pool.give(blocks)
        return blocks
