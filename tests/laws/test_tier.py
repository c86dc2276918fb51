"""Does a tier keep within its capacity, never lose a block under a copy, and forget the least recently used first?"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import EVICTIONS, TierModel, grown

from sim.memory.tiers import Entry, Tier, cover
from sim.policies.eviction import Arc, Lru
from workloads.trajectory import Stream

PROGRAMS = st.tuples(st.integers(0, 1 << 32), st.sampled_from((5, 15, 30, 60, 120)))


class Pair:
    """A tier and its model, driven by the same operations."""

    SIZE = 4

    def __init__(self, seed: int, tame: bool = True, eviction: Any = None) -> None:
        self.rng = random.Random(seed)
        #: Only give up copies of entries that nothing else pins; only replace an entry by what has room.
        self.tame = tame
        capacity = self.rng.randint(0, 16)
        self.tier = Tier(capacity * 100 + self.rng.randrange(100), 100, eviction, self.SIZE)
        self.model = TierModel(capacity, 100)
        #: Whether the model, which knows only the last use, evicts the same.
        self.plain = eviction is None
        self.streams = [Stream(None, 0)]
        self.lengths = [40]
        for _ in range(4):
            parent = self.rng.randrange(len(self.streams))
            self.streams.append(grown(self.streams[parent], self.rng.randint(0, self.lengths[parent])))
            self.lengths.append(self.streams[-1].attach + 24)
        self.copies: list[tuple[Stream, Entry, tuple[int, int]]] = []
        self.holds: list[tuple[Stream, Entry]] = []
        self.now_s = 0.0

    def step(self) -> None:
        self.now_s += self.rng.choice((0.0, 1.0, 2.5))
        self.model.advance(self.now_s)
        getattr(self, self.rng.choice(("reserve", "reserve", "reserve", "copied", "copied", "cancel", "hold", "release",
                                       "forget", "settle")))()

    def reserve(self) -> None:
        index = self.rng.randrange(len(self.streams))
        stream = self.streams[index]
        low = stream.attach // self.SIZE
        first = self.rng.choice((low, self.rng.randint(low, low + 4)))
        end = first + self.rng.randint(1, 6)
        old = self.tier.entries.get(stream)
        replaced = old is not None and not old.first <= first <= old.ready
        if self.tame and replaced and end - first > self.tier.room_blocks():
            return
        entry = self.tier.reserve(stream, first, end, self.now_s)
        assert (entry is not None) == self.model.reserve(stream, first, end) or not self.tame
        if entry is not None:
            assert entry.first <= first <= entry.ready
            assert entry.end >= end
            self.copies.append((stream, entry, (first, end)))

    def copied(self) -> None:
        if self.copies:
            stream, entry, copy = self.copies.pop(self.rng.randrange(len(self.copies)))
            self.tier.copied(entry, copy[1], self.now_s)
            if self.plain:
                self.model.copied(stream, copy)

    def cancel(self) -> None:
        open_copies = [copy for copy in self.copies if copy[1].pins == 1 or not self.tame]
        if open_copies:
            stream, entry, copy = self.rng.choice(open_copies)
            self.copies.remove((stream, entry, copy))
            self.tier.cancel(entry, self.now_s)
            if self.plain:
                self.model.cancel(stream, copy)

    def hold(self) -> None:
        stream = self.rng.choice(self.streams)
        entry = self.tier.hold(stream, self.now_s)
        assert (entry is not None) == self.model.hold(stream) or not self.plain
        if entry is not None:
            self.holds.append((stream, entry))

    def release(self) -> None:
        if self.holds:
            stream, entry = self.holds.pop(self.rng.randrange(len(self.holds)))
            self.tier.release(entry, self.now_s)
            if self.plain:
                self.model.release(stream)

    def forget(self) -> None:
        stream = self.rng.choice(self.streams)
        self.tier.forget(stream, self.now_s)
        self.model.forget(stream)

    def settle(self) -> None:
        self.tier.settle(self.now_s)
        assert self.tier.byte_s == pytest.approx(self.model.byte_s) or not self.plain

    def check(self) -> None:
        tier, model = self.tier, self.model
        assert tier.used == sum(entry.end - entry.first for entry in tier.entries.values()) <= tier.capacity_blocks
        assert tier.pinned == sum(entry.end - entry.first for entry in tier.entries.values() if entry.pins)
        for stream, entry in [(stream, entry) for stream, entry, _ in self.copies] + self.holds:
            assert tier.entries.get(stream) is entry, "an entry was lost while a copy pinned it"
        for _, entry, (_, end) in self.copies:
            assert entry.end >= end
        assert tier.used == model.used()
        assert tier.evicted == model.evicted
        assert list(tier.entries) == list(model.blocks), "order of last use"
        for stream, length in zip(self.streams, self.lengths, strict=True):
            for have in (0, self.SIZE, stream.attach, self.rng.randrange(length)):
                found = cover([tier], stream, length, have, self.SIZE)
                reach = model.reach(stream, length, have, self.SIZE)
                assert [have // self.SIZE + blocks for blocks in found] == [reach]


@settings(max_examples=400)
@given(PROGRAMS)
def test_tier_equals_a_model_that_names_every_block(program: tuple[int, int]) -> None:
    pair = Pair(program[0])
    for _ in range(program[1]):
        pair.step()
        pair.check()
    pair.settle()


@settings(max_examples=300)
@given(PROGRAMS)
def test_what_no_copy_brings_does_not_stay(program: tuple[int, int]) -> None:
    """A copy is given up while something else pins its entry: its blocks are gone when the last pin is."""
    pair = Pair(program[0], tame=False)
    for _ in range(program[1]):
        pair.step()
        for entry in pair.tier.entries.values():
            assert entry.pins or entry.ready == entry.end


@settings(max_examples=300)
@given(PROGRAMS)
def test_a_copy_makes_room_or_changes_nothing(program: tuple[int, int]) -> None:
    """A reservation that is refused leaves every block where it was."""
    pair = Pair(program[0], tame=False)
    for _ in range(program[1]):
        copies = len(pair.copies)
        before = {stream: (entry.first, entry.end, entry.ready) for stream, entry in pair.tier.entries.items()}
        pair.reserve()
        if len(pair.copies) == copies:
            after = {stream: (entry.first, entry.end, entry.ready) for stream, entry in pair.tier.entries.items()}
            assert before == after
        pair.copied()


@settings(max_examples=200)
@given(PROGRAMS)
def test_two_tiers_cover_what_either_holds(program: tuple[int, int]) -> None:
    upper, lower = Pair(program[0]), Pair(program[0] + 1)
    lower.streams, lower.lengths = upper.streams, upper.lengths
    for _ in range(program[1]):
        upper.step()
        lower.step()
        for stream, length in zip(upper.streams, upper.lengths, strict=True):
            have = upper.rng.randrange(length)
            block = have // Pair.SIZE
            while block < length // Pair.SIZE and any(
                    pair.model.holds_block(stream, block, Pair.SIZE) for pair in (upper, lower)):
                block += 1
            found = cover([upper.tier, lower.tier], stream, length, have, Pair.SIZE)
            assert sum(found) == block - have // Pair.SIZE
            if found[0] == 0 < found[1]:
                assert not upper.model.holds_block(stream, have // Pair.SIZE, Pair.SIZE)


@pytest.mark.parametrize("policy", EVICTIONS, ids=lambda policy: policy.__name__)
@settings(max_examples=150)
@given(PROGRAMS)
def test_under_every_policy_blocks_and_byte_seconds_add_up(policy: Any, program: tuple[int, int]) -> None:
    """Nothing under a copy goes, no more is held than fits, and every byte-second has one use."""
    pair = Pair(program[0], tame=False, eviction=policy())
    tier = pair.tier
    before = (0.0,) * 4
    for _ in range(program[1]):
        pair.step()
        assert tier.used == sum(entry.end - entry.first for entry in tier.entries.values()) <= tier.capacity_blocks
        for stream, entry in [(stream, entry) for stream, entry, _ in pair.copies] + pair.holds:
            assert tier.entries.get(stream) is entry, "an entry was lost while a copy pinned it"
        order = list(tier.victims())
        assert {id(entry) for entry in order} == {id(e) for e in tier.entries.values() if not e.pins}
        ledger = tier.ledger(pair.now_s)
        assert sum(ledger) == pytest.approx(tier.capacity_blocks * 100 * pair.now_s, abs=1e-6)
        assert min(ledger) >= -1e-6
        assert ledger[1] >= before[1] - 1e-6, "what was read stays read"
        before = ledger


def test_a_tiers_ledger_on_an_example_worked_by_hand() -> None:
    """Two contexts of 2 and 3 blocks of 10 bytes, written over 1 s; one is read after 4 s more, the other evicted."""
    tier = Tier(50.0, 10)
    first, second = Stream(None, 0), Stream(None, 0)
    entries = [tier.reserve(stream, 0, end, 0.0) for stream, end in ((first, 2), (second, 3))]
    for entry, end in zip(entries, (2, 3), strict=True):
        tier.copied(entry, end, 1.0)
    held = tier.hold(first, 5.0)
    assert tier.ledger(5.0) == (50.0, 80.0, 120.0, 0.0)
    tier.release(held, 5.0)
    assert tier.reserve(Stream(None, 0), 0, 3, 6.0) is not None
    assert tier.evicted == 3
    assert tier.ledger(8.0) == (50.0 + 60.0, 80.0, 150.0 + 60.0, 0.0)


def scanned(eviction: Any) -> int:
    """Read two contexts of 4 blocks again and again from a tier of 12, with contexts in between that nobody reads."""
    tier, found, now_s = Tier(12.0, 1, eviction), 0, 0.0
    agents = [Stream(None, 0) for _ in range(2)]

    def write(stream: Stream) -> None:
        entry = tier.reserve(stream, 0, 4, now_s)
        assert entry is not None
        tier.copied(entry, 4, now_s)

    for stream in agents:
        write(stream)
    for _ in range(20):
        for stream in agents:
            now_s += 1.0
            entry = tier.hold(stream, now_s)
            found += entry is not None
            if entry is not None:
                tier.release(entry, now_s)
            write(stream)
        for _ in range(4):
            now_s += 1.0
            write(Stream(None, 0))
    return found


def test_a_scan_flushes_a_tier_under_lru_but_not_under_arc() -> None:
    assert scanned(Lru()) == 2  # the first time, before the scan
    assert scanned(Arc()) == 2 * 20


def test_fewer_blocks_than_a_tier_asks_for_are_none() -> None:
    tier = Tier(100.0, 1)
    stream = Stream(None, 0)
    entry = tier.reserve(stream, 0, 3, 0.0)
    assert entry is not None
    tier.copied(entry, 3, 0.0)
    assert cover([tier], stream, 12, 0, 4) == [3]
    tier.least_blocks = 3
    assert cover([tier], stream, 12, 0, 4) == [3]
    assert cover([tier], stream, 12, 4, 4) == [0]
    tier.least_blocks = 4
    assert cover([tier], stream, 12, 0, 4) == [0]


def test_a_tier_without_room_holds_nothing() -> None:
    tier = Tier(99.0, 100)
    assert tier.reserve(Stream(None, 0), 0, 1, 0.0) is None
    assert tier.room_blocks() == 0
