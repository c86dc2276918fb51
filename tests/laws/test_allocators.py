"""Does an allocator ever own a slot twice, lose one, leave holes that touch apart, or change something in vain?

Every allocator runs beside a model that has a name for every slot and finds its buffers by looking at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.memory.allocators.address_space import AddressSpace
from sim.memory.allocators.base import NOTHING, Allocator, Growth, NoRoomError
from sim.memory.allocators.block_tables import PagedAllocator
from sim.memory.allocators.buddy import BuddyAllocator, BuddySpace
from sim.memory.allocators.growth import GrowthAllocator
from sim.memory.allocators.paged import BlockPool
from sim.memory.allocators.static import StaticAllocator

#: What is done (extend, fork, free), to which sequence, and how far.
PROGRAMS = st.lists(st.tuples(st.sampled_from("eeeeekff"), st.integers(0, 7), st.integers(0, 30)), max_size=80)
TOTALS = st.one_of(st.integers(1, 96), st.integers(64, 160))

KINDS = ("static", "growth", "buddy", "paged")

Holes = list[tuple[int, int]]


# -------------------------------------------------------------------------------------------------- the models


def runs(slots: list[Any]) -> Holes:
    """Return (first, length) of the longest runs of free slots."""
    found: Holes = []
    for index, owner in enumerate(slots):
        if owner is not None:
            continue
        if found and sum(found[-1]) == index:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((index, 1))
    return found


def lowest(slots: list[Any], size: int) -> int | None:
    return next((start for start, length in runs(slots) if length >= size), None)


def tightest(slots: list[Any], size: int) -> int | None:
    return min(((length, start) for start, length in runs(slots) if length >= size), default=(0, None))[1]


def aligned(slots: list[Any], smallest: int) -> Holes:
    """Return the largest free blocks of a power of two at a multiple of their size, looked for from the top."""
    def within(start: int, size: int) -> Iterator[tuple[int, int]]:
        if all(owner is None for owner in slots[start:start + size]):
            yield start, size
        elif size > smallest:
            yield from within(start, size // 2)
            yield from within(start + size // 2, size // 2)

    found: Holes = []
    start, size = 0, 1 << 20
    while size >= smallest:
        if start + size <= len(slots):
            found += within(start, size)
            start += size
        size //= 2
    return found


class ContiguousModel:
    """Slots with the number of the sequence whose buffer they are in; which buffer and where is for two functions."""

    def __init__(self, total: int, size: Callable[[int, int | None], int | None],
                 place: Callable[[list[Any], int], int | None], holes: Callable[[list[Any]], Holes] = runs) -> None:
        self.slots: list[int | None] = [None] * total
        self.size, self.place, self.holes = size, place, holes
        self.buffers: dict[int, range] = {}
        self.tokens: dict[int, int] = {}
        self.first: dict[int, int] = {}
        self.peak = 0

    def extend(self, number: int, tokens: int) -> Growth | None:
        """Return the cost, None if there is no room."""
        old = self.buffers.get(number)
        if old is not None and tokens <= len(old):
            self.tokens[number] = max(tokens, self.tokens[number])
            return NOTHING
        if not self._buffer(number, tokens, self.first.get(number)):
            return None
        held = self.tokens.get(number, 0)
        self.tokens[number] = tokens
        for slot in old or ():
            self.slots[slot] = None
        return Growth(held, transient=len(old)) if old is not None else NOTHING

    def fork(self, parent: int, child: int) -> Growth | None:
        if not self._buffer(child, self.tokens[parent], self.first[parent]):
            return None
        self.tokens[child] = self.tokens[parent]
        return Growth(self.tokens[parent])

    def free(self, number: int) -> None:
        for slot in self.buffers.pop(number):
            self.slots[slot] = None
        del self.tokens[number], self.first[number]

    def _buffer(self, number: int, tokens: int, first: int | None) -> bool:
        size = self.size(tokens, first)
        start = self.place(self.slots, size) if size is not None else None
        if size is None or start is None:
            return False
        assert all(owner is None for owner in self.slots[start:start + size])
        self.slots[start:start + size] = [number] * size
        self.buffers[number] = range(start, start + size)
        self.first[number] = size if first is None else first
        self.peak = max(self.peak, self.allocated)
        return True

    @property
    def allocated(self) -> int:
        return sum(owner is not None for owner in self.slots)

    @property
    def useful(self) -> int:
        return sum(self.tokens.values())

    def uses(self) -> list[tuple[str, int | None]]:
        found: list[tuple[str, int | None]] = [("hole", None)] * len(self.slots)
        for number, buffer in self.buffers.items():
            for index, slot in enumerate(buffer):
                found[slot] = ("useful" if index < self.tokens[number] else "reserved", number)
        return found

    def capacity(self, number: int) -> int:
        return len(self.buffers[number])

    def check(self, allocator: Any) -> None:
        """Nothing else than what everybody sees."""


class PagedModel:
    """Blocks with numbers, a list of them for every sequence, and a count of the lists each is in."""

    def __init__(self, blocks: int, size: int) -> None:
        self.size = size
        self.filled: list[int | None] = [None] * blocks
        self.refs = [0] * blocks
        self.tables: dict[int, list[int]] = {}
        self.tokens: dict[int, int] = {}
        self.peak = 0

    def extend(self, number: int, tokens: int) -> Growth | None:
        held = self.tokens.get(number, 0)
        if tokens <= held:
            return NOTHING
        table = list(self.tables.get(number, ()))
        free = [block for block, refs in enumerate(self.refs) if not refs]
        tail, copied = held % self.size, 0
        if tail and self.refs[table[-1]] > 1:
            if not free:
                return None
            copied = tail
            shared, table[-1] = table[-1], free.pop(0)
        need = -(-tokens // self.size) - len(table)
        if need > len(free):
            return None
        if copied:
            self.refs[shared] -= 1
            self.refs[table[-1]] = 1
        for block in free[:need]:
            self.refs[block] = 1
        table += free[:need]
        self.tables[number] = table
        self.tokens[number] = tokens
        for index in range(held // self.size, len(table)):
            self.filled[table[index]] = min(tokens - index * self.size, self.size)
        self.peak = max(self.peak, self.allocated)
        return Growth(copied)

    def fork(self, parent: int, child: int) -> Growth:
        self.tables[child] = list(self.tables[parent])
        self.tokens[child] = self.tokens[parent]
        for block in self.tables[child]:
            self.refs[block] += 1
        return NOTHING

    def free(self, number: int) -> None:
        for block in self.tables.pop(number):
            self.refs[block] -= 1
            if not self.refs[block]:
                self.filled[block] = None
        del self.tokens[number]

    @property
    def slots(self) -> list[int | None]:
        return [refs or None for refs in self.refs for _ in range(self.size)]

    @property
    def allocated(self) -> int:
        return sum(refs > 0 for refs in self.refs) * self.size

    @property
    def useful(self) -> int:
        return sum(filled or 0 for filled in self.filled)

    def holes(self, slots: list[Any]) -> Holes:
        return runs(slots)

    def uses(self) -> list[tuple[str, int | None]]:
        found: list[tuple[str, int | None]] = []
        for filled in self.filled:
            found += [("hole" if filled is None else "useful" if index < filled else "reserved", None)
                      for index in range(self.size)]
        return found

    def capacity(self, number: int) -> int:
        tokens, table = self.tokens[number], self.tables[number]
        return tokens if tokens % self.size and self.refs[table[-1]] > 1 else len(table) * self.size

    def check(self, allocator: PagedAllocator) -> None:
        for number, table in self.tables.items():
            assert allocator.table(number) == table
        counts = [sum(block in table for table in self.tables.values()) for block in range(len(self.refs))]
        assert counts == self.refs
        assert allocator.pool.free == self.refs.count(0)


def progression(first: int, factor: float, tokens: int) -> int:
    """Return the size reached from `first` by steps of `factor`, as soon as it holds `tokens`."""
    size = float(first)
    while size < tokens:
        size = size * factor
    return int(size)


def power(tokens: int, smallest: int) -> int:
    while smallest < tokens:
        smallest = smallest * 2
    return smallest


@st.composite
def allocators(draw: st.DrawFn, kind: str | None = None) -> tuple[Any, Any]:
    """An allocator and its model."""
    kind = kind or draw(st.sampled_from(KINDS))
    total = draw(TOTALS)
    if kind == "static":
        s_max = draw(st.integers(1, 40))
        return StaticAllocator(total, s_max), ContiguousModel(total, lambda n, _: s_max if n <= s_max else None, lowest)
    if kind == "growth":
        factor = draw(st.sampled_from((1.25, 1.5, 2.0, 3.0)))
        initial = draw(st.sampled_from((None, 1, 2, 5)))
        fit = draw(st.sampled_from(("first", "best")))
        return (GrowthAllocator(total, factor, initial, fit),
                ContiguousModel(total, lambda n, first: progression(initial or first or n, factor, n),
                                lowest if fit == "first" else tightest))
    if kind == "buddy":
        smallest = draw(st.sampled_from((1, 2, 4)))
        total = max(total, smallest)

        def place(slots: list[Any], size: int) -> int | None:
            return min(((length, start) for start, length in aligned(slots, smallest) if length >= size),
                       default=(0, None))[1]

        return (BuddyAllocator(total, smallest),
                ContiguousModel(total - total % smallest, lambda n, _: power(n, smallest), place,
                                lambda slots: aligned(slots, smallest)))
    size = draw(st.sampled_from((1, 2, 4, 5)))
    blocks = max(1, total // size)
    return PagedAllocator(BlockPool(blocks, size)), PagedModel(blocks, size)


def picture(allocator: Allocator) -> tuple[Any, Any]:
    return allocator.segments(), allocator.stats()


class Pair:
    """An allocator and its model, driven by the same operations."""

    def __init__(self, allocator: Allocator, model: ContiguousModel | PagedModel) -> None:
        self.allocator, self.model = allocator, model
        self.calls = getattr(allocator, "driver_calls", 0)
        self.born = 0

    def apply(self, what: str, which: int, amount: int) -> None:
        live = sorted(self.model.tokens)
        if what == "e" and (which > len(live) or not live):
            self.born += 1
            self.extend(self.born, 1 + amount)
        elif what == "e":
            number = live[which % len(live)]
            self.extend(number, max(1, self.model.tokens[number] + amount - 4))
        elif live and what == "k":
            self.born += 1
            self.fork(live[which % len(live)], self.born)
        elif live:
            number = live[which % len(live)]
            self.model.free(number)
            assert self.allocator.free(number) == Growth(frees=self.calls)

    def extend(self, number: int, tokens: int) -> None:
        new = number not in self.model.tokens
        wanted = self.model.extend(number, tokens)
        assert self.allocator.can_extend(number, tokens) == (wanted is not None)
        if wanted is None:
            self.refused(lambda: self.allocator.extend(number, tokens))
            return
        assert not new or self.allocator.fits(tokens)
        mallocs = self.calls * (new or wanted.transient > 0)
        frees = self.calls * (wanted.transient > 0)
        assert self.allocator.extend(number, tokens) == Growth(wanted.copied, mallocs, frees, wanted.transient)

    def fork(self, parent: int, child: int) -> None:
        wanted = self.model.fork(parent, child)
        assert self.allocator.can_fork(parent) == (wanted is not None)
        if wanted is None:
            self.refused(lambda: self.allocator.fork(parent, child))
        else:
            assert self.allocator.fork(parent, child) == Growth(wanted.copied, self.calls)

    def refused(self, call: Callable[[], Any]) -> None:
        before = picture(self.allocator)
        with pytest.raises(NoRoomError):
            call()
        assert picture(self.allocator) == before

    def check(self) -> None:
        """Compare everything that others can see."""
        allocator, model = self.allocator, self.model
        self.check_places()
        stats = allocator.stats()
        slots = model.slots
        free = slots.count(None)
        assert (stats.useful, stats.allocated, stats.free) == (model.useful, model.allocated, free)
        assert stats.free + stats.allocated == stats.pool == len(slots)
        assert stats.peak == model.peak
        holes = sorted(model.holes(slots))
        assert list(stats.holes) == [size for _, size in holes]
        assert stats.allocation_efficiency == (model.useful / model.allocated if model.allocated else 1.0)
        assert stats.effective_occupancy == model.useful / len(slots)
        for request in (1, 3, 8, 40):
            large = sum(size for _, size in holes if size >= request)
            wanted = 0.0 if not free or stats.piece is not None else 1.0 - large / free
            assert stats.external_fragmentation(request) == wanted
        for number in model.tokens:
            assert allocator.capacity_tokens(number) == model.capacity(number)
        model.check(allocator)

    def check_places(self) -> None:
        """Every slot is in one segment, of the use and the owner that the model says."""
        at = 0
        uses = self.model.uses()
        for start, end, use, owner in self.allocator.segments():
            assert start == at
            assert end > start
            for slot in range(start, end):
                assert use == uses[slot][0]
                if isinstance(self.model, ContiguousModel):
                    assert owner == uses[slot][1]
                elif owner is not None:
                    block = slot // self.model.size
                    assert self.model.refs[block] == 1
                    assert block in self.model.tables[owner]
            at = end
        assert at == len(uses)

    def drain(self) -> None:
        """End everything: nothing may be left behind."""
        while self.model.tokens:
            self.apply("f", 0, 0)
            self.check()
        assert self.allocator.stats().useful == self.allocator.stats().allocated == 0


# ------------------------------------------------------------------------------------------------------ the laws


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=300)
@given(data=st.data(), program=PROGRAMS)
def test_an_allocator_equals_a_model_that_names_every_slot(kind: str, data: Any, program: Any) -> None:
    pair = Pair(*data.draw(allocators(kind)))
    for operation in program:
        pair.apply(*operation)
        pair.check()
    pair.drain()


@settings(max_examples=200)
@given(allocators(), PROGRAMS)
def test_up_to_its_capacity_a_sequence_takes_nothing_and_beyond_it_something(both: Any, program: Any) -> None:
    pair = Pair(*both)
    allocator = pair.allocator
    for operation in program:
        pair.apply(*operation)
        for number in list(pair.model.tokens)[:2]:
            before = allocator.stats()
            capacity = allocator.capacity_tokens(number)
            assert pair.model.extend(number, capacity) == allocator.extend(number, capacity) == NOTHING
            after = allocator.stats()
            assert (after.allocated, after.holes, after.peak) == (before.allocated, before.holes, before.peak)
            if allocator.can_extend(number, capacity + 1):
                growth = allocator.extend(number, capacity + 1)
                pair.model.extend(number, capacity + 1)
                assert growth.transient or growth.copied or allocator.stats().allocated > after.allocated
    pair.check()


@settings(max_examples=100)
@given(allocators(), st.integers(1, 100))
def test_what_fits_finds_room_in_an_empty_pool_before_and_after_use(both: Any, tokens: int) -> None:
    allocator, _ = both
    assert allocator.fits(tokens) == allocator.can_extend(0, tokens)
    for number in range(6):
        if allocator.can_extend(number, 1 + number):
            allocator.extend(number, 1 + number)
    for number in (3, 0, 5, 1, 4, 2):
        if any(segment.sequence == number for segment in allocator.segments()):
            allocator.free(number)
    assert allocator.fits(tokens) == allocator.can_extend(0, tokens)


@settings(max_examples=200)
@given(PROGRAMS, st.booleans())
def test_all_hold_the_same_tokens_where_there_is_room(program: list[tuple[str, int, int]], forks: bool) -> None:
    """The useful tokens are the same under each; only paging counts what is shared once."""
    room = 1 << 20
    four: list[Allocator] = [StaticAllocator(room, 4096), GrowthAllocator(room), BuddyAllocator(room),
                             PagedAllocator(BlockPool(room // 16, 16))]
    tokens: dict[int, int] = {}
    for index, (what, which, amount) in enumerate(program):
        live = sorted(tokens)
        number = live[which % len(live)] if live and which < 6 else index
        for allocator in four:
            if what == "e" or number not in tokens:
                allocator.extend(number, tokens.get(number, 0) + amount + 1)
            elif what == "k" and forks:
                allocator.fork(number, index)
            elif what == "f":
                allocator.free(number)
        if what == "e" or number not in tokens:
            tokens[number] = tokens.get(number, 0) + amount + 1
        elif what == "k" and forks:
            tokens[index] = tokens[number]
        elif what == "f":
            del tokens[number]
        *contiguous, paged = (allocator.stats() for allocator in four)
        assert [stats.useful for stats in contiguous] == [sum(tokens.values())] * 3
        assert paged.useful <= sum(tokens.values())
        if not forks:
            assert paged.useful == sum(tokens.values())
            assert paged.allocated - paged.useful == sum(-n % 16 for n in tokens.values())
            assert all(stats.allocated >= paged.useful for stats in contiguous)


@settings(max_examples=200)
@given(TOTALS, st.sampled_from(("first", "best")), PROGRAMS)
def test_holes_never_touch_and_never_overlap_what_is_taken(total: int, fit: Any, program: Any) -> None:
    space = AddressSpace(total, fit)
    slots: list[int | None] = [None] * total
    taken: list[tuple[int, int]] = []
    for what, which, amount in program:
        if what == "f" and taken:
            start, size = taken.pop(which % len(taken))
            space.give(start, size)
            slots[start:start + size] = [None] * size
        elif what == "k":
            count = min(amount, slots.count(None))
            wanted = [slot for slot, owner in enumerate(slots) if owner is None][:count]
            parts = space.gather(count)
            assert [slot for start, size in parts for slot in range(start, start + size)] == wanted
            taken += parts
            for slot in wanted:
                slots[slot] = 1
        elif what == "e":
            place = (lowest if fit == "first" else tightest)(slots, amount + 1)
            assert space.room(amount + 1) == (place is not None)
            if place is not None:
                assert space.take(amount + 1) == place
                slots[place:place + amount + 1] = [1] * (amount + 1)
                taken.append((place, amount + 1))
        assert space.holes() == runs(slots)
        assert space.free == slots.count(None)
        free = which >= total or slots[which] is None
        with pytest.raises(ValueError):
            space.give(which, 1 if free else total + 1)
        assert space.holes() == runs(slots)


@settings(max_examples=100)
@given(st.integers(1, 4000), st.sampled_from((1.5, 2.0, 4.0)))
def test_a_growing_buffer_copies_in_all_at_most_a_geometric_series(tokens: int, factor: float) -> None:
    allocator = GrowthAllocator(1 << 20, factor)
    total = NOTHING
    for held in range(1, tokens + 1):
        total += allocator.extend(0, held)
    assert total.copied <= tokens * factor / (factor - 1.0)
    assert total.mallocs == total.frees + 1
    assert total.transient < tokens


# ---------------------------------------------------------------------------------------------- calls without sense


@pytest.mark.parametrize("make", [lambda: StaticAllocator(64, 16), lambda: GrowthAllocator(64),
                                  lambda: BuddyAllocator(64), lambda: PagedAllocator(BlockPool(16, 4))])
def test_a_call_without_sense_changes_nothing(make: Callable[[], Allocator]) -> None:
    allocator = make()
    allocator.extend(1, 5)
    allocator.fork(1, 2)
    before = picture(allocator)
    for call in (lambda: allocator.extend(1, 0), lambda: allocator.free(7), lambda: allocator.fork(7, 8),
                 lambda: allocator.fork(1, 2), lambda: allocator.can_fork(7), lambda: allocator.capacity_tokens(7),
                 lambda: allocator.extend(3, 65)):
        with pytest.raises(ValueError):
            call()
        assert picture(allocator) == before
    assert allocator.extend(1, 3) == NOTHING
    assert picture(allocator) == before
    assert not allocator.fits(65)


def test_a_first_buffer_of_the_prompt_sets_the_sizes_of_all_that_follow_and_of_forks() -> None:
    allocator = GrowthAllocator(1000, 1.5, initial=None)
    sizes = []
    for tokens in (5, 6, 8, 12, 17):
        allocator.extend(0, tokens)
        sizes.append(allocator.capacity_tokens(0))
    assert sizes == [5, 7, 11, 16, 25]  # 5 times the powers of 1.5, rounded down
    allocator.fork(0, 1)
    allocator.extend(1, 26)
    assert [allocator.capacity_tokens(number) for number in (0, 1)] == [25, 37]
    allocator.extend(2, 17)
    assert allocator.capacity_tokens(2) == 17


def test_sizes_without_sense_are_refused() -> None:
    for make in (lambda: AddressSpace(0), lambda: AddressSpace(4, "worst"), lambda: StaticAllocator(4, 0),  # type: ignore[arg-type]
                 lambda: GrowthAllocator(4, 1.0), lambda: GrowthAllocator(4, 2.0, 0), lambda: BuddySpace(8, 3),
                 lambda: BuddySpace(3, 4)):
        with pytest.raises(ValueError):
            make()


def test_a_buddy_block_is_given_back_as_it_was_taken() -> None:
    space = BuddySpace(16)
    start = space.take(3)
    assert (start, space.holes()) == (0, [(4, 4), (8, 8)])
    for wrong in ((start, 8), (start + 1, 4), (4, 4)):
        with pytest.raises(ValueError):
            space.give(*wrong)
    space.give(start, 3)
    assert space.holes() == [(0, 16)]


@settings(max_examples=200)
@given(st.sampled_from(KINDS[:3]), st.data(), PROGRAMS)
def test_forgetting_tokens_frees_none_and_what_a_change_needs_is_what_it_takes(kind: str, data: Any,
                                                                               program: Any) -> None:
    allocator = data.draw(allocators(kind))[0]
    lengths: dict[int, int] = {}
    for what, number, tokens in program:
        need = allocator.needs(number, tokens + 1)
        room = need is not None and (need == 0 or allocator.space.room(need))
        assert allocator.can_extend(number, tokens + 1) == room
        if what == "f" and number in lengths:
            allocator.free(number)
            del lengths[number]
        elif what == "k" and number in lengths:
            before = allocator.stats()
            kept = min(tokens, lengths[number])
            allocator.truncate(number, kept)
            after = allocator.stats()
            assert (after.allocated, after.holes) == (before.allocated, before.holes)
            assert before.useful - after.useful == lengths[number] - kept
            lengths[number] = kept
        elif what == "e" and room:
            before = allocator.space.free
            growth = allocator.extend(number, tokens + 1)
            assert before - allocator.space.free == need - growth.transient
            lengths[number] = max(lengths.get(number, 0), tokens + 1)
        assert allocator.stats().useful == sum(lengths.values())
    for number, held in lengths.items():
        with pytest.raises(ValueError, match="holds"):
            allocator.truncate(number, held + 1)
