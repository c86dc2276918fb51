"""Does a tier keep within its capacity, never lose a block under a copy, and forget the least recently used first?"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import TierModel, grown

from sim.memory.tiers import Entry, Tier, cover
from workloads.trajectory import Stream

PROGRAMS = st.tuples(st.integers(0, 1 << 32), st.sampled_from((5, 15, 30, 60, 120)))


class Pair:
    """A tier and its model, driven by the same operations."""

    SIZE = 4

    def __init__(self, seed: int, tame: bool = True) -> None:
        self.rng = random.Random(seed)
        #: Only give up copies of entries that nothing else pins; only replace an entry by what has room.
        self.tame = tame
        capacity = self.rng.randint(0, 16)
        self.tier = Tier(capacity * 100 + self.rng.randrange(100), 100)
        self.model = TierModel(capacity, 100)
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
            self.model.copied(stream, copy)

    def cancel(self) -> None:
        open_copies = [copy for copy in self.copies if copy[1].pins == 1 or not self.tame]
        if open_copies:
            stream, entry, copy = self.rng.choice(open_copies)
            self.copies.remove((stream, entry, copy))
            self.tier.cancel(entry, self.now_s)
            self.model.cancel(stream, copy)

    def hold(self) -> None:
        stream = self.rng.choice(self.streams)
        entry = self.tier.hold(stream)
        assert (entry is not None) == self.model.hold(stream)
        if entry is not None:
            self.holds.append((stream, entry))

    def release(self) -> None:
        if self.holds:
            stream, entry = self.holds.pop(self.rng.randrange(len(self.holds)))
            self.tier.release(entry, self.now_s)
            self.model.release(stream)

    def forget(self) -> None:
        stream = self.rng.choice(self.streams)
        self.tier.forget(stream, self.now_s)
        self.model.forget(stream)

    def settle(self) -> None:
        self.tier.settle(self.now_s)
        assert self.tier.byte_s == pytest.approx(self.model.byte_s)

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


def test_a_tier_without_room_holds_nothing() -> None:
    tier = Tier(99.0, 100)
    assert tier.reserve(Stream(None, 0), 0, 1, 0.0) is None
    assert tier.room_blocks() == 0
