"""Is a block ever lost, shared wrongly, read before it is computed, or evicted under its user?

The cache keeps extents and counters; here it runs step for step beside a model in which every block has a name.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from models import BlockModel, Table, grown, path

from sim.memory.allocators.paged import BlockPool
from sim.memory.cached_trees import tree_of
from sim.memory.kv_cache import KvCache, ceiling
from sim.policies.eviction import Lru
from workloads.trajectory import Stream, trunk

#: A program is a seed and a length: what is done (some of it more often), and three numbers that choose on what.
PROGRAMS = st.tuples(st.integers(0, 1 << 32), st.sampled_from((10, 40, 80, 150, 150)))
SHAPES = st.fixed_dictionaries({
    "total": st.integers(3, 24), "size": st.sampled_from((1, 2, 4, 5)), "cow": st.booleans(),
    "on_chunk": st.booleans(), "whole_nodes": st.booleans(),
})


def operations(program: tuple[int, int]) -> Iterator[tuple[str, int, int, int]]:
    """Yield the operations of a program."""
    seed, length = program
    rng = random.Random(seed)
    for _ in range(length):
        yield rng.choice("ooogggggccccffffpebbkkuer"), rng.randrange(64), rng.randrange(64), rng.randrange(64)


class Pair:
    """The cache and its model, driven by the same operations."""

    def __init__(self, total: int, size: int, cow: bool, on_chunk: bool, whole_nodes: bool,
                 enabled: bool = True, eviction: Any = None) -> None:
        self.size = size
        self.pool = BlockPool(total, size)
        self.tree = tree_of(self.pool, eviction or Lru(), whole_nodes=whole_nodes, exact_tail=cow)
        self.kv = KvCache(self.pool, self.tree, enabled=enabled, on_chunk=on_chunk)
        self.model = BlockModel(total, size, cow=cow, on_chunk=on_chunk, whole_nodes=whole_nodes, enabled=enabled)
        self.model.gone = lambda key: key[0] not in self.tree.nodes or self.tree.nodes[key[0]].end <= key[1]
        self.streams = [Stream(None, 0, "root")]
        self.lengths = [1]
        self.running: list[tuple[Any, Table, list[int]]] = []
        self.kept: list[tuple[Any, int, tuple[Stream, int]]] = []
        self.now_s = 0.0

    def apply(self, what: str, a: int, b: int, c: int) -> None:
        self.now_s += 1.0 + (a + b + c) % 3
        self.model.advance(self.now_s)
        {"o": self.open, "g": self.grow, "c": self.commit, "f": self.finish, "p": self.preempt, "e": self.evict,
         "b": self.branch, "k": self.finish_and_keep, "u": self.unkeep, "r": self.restore}[what](a, b, c)

    def branch(self, a: int, b: int, c: int) -> None:
        parent = a % len(self.streams)
        attach = b % (self.lengths[parent] + 1)
        attach = attach if c % 8 else 0
        self.streams.append(grown(self.streams[parent], attach))
        self.lengths.append(attach + 1)

    def open(self, a: int, b: int, c: int) -> None:
        index = a % len(self.streams)
        stream = self.streams[index]
        prompt = max(1, stream.attach) + b % (self.lengths[index] - stream.attach + 2 * self.size)
        limit = prompt + c % 7
        self.lengths[index] = max(self.lengths[index], limit)
        node, hit = self.kv.match(stream, prompt)
        assert hit == self.model.match(stream, prompt)
        assert hit < prompt
        room = self.kv.available(stream, limit, node, hit)
        assert room == self.model.available(stream, limit, hit)
        if room < 1:
            return
        total = limit + c % 3
        sequence = self.kv.open(stream, limit, node, hit, self.now_s)
        self.running.append((sequence, self.model.open(stream, limit, hit), [hit, total, hit]))

    def grow(self, a: int, b: int, c: int) -> None:
        if not self.running:
            return
        sequence, table, (position, total, _) = self.running[a % len(self.running)]
        tokens = min(total, position + 1 + b % (2 * self.size))
        if self.pool.blocks(tokens) - sequence.end <= self.pool.free + self.tree.dormant:
            self.kv.grow(sequence, tokens, self.now_s)
            self.model.grow(table, tokens)

    def commit(self, a: int, b: int, c: int) -> None:
        if not self.running:
            return
        sequence, table, state = self.running[a % len(self.running)]
        room = min(state[1], sequence.end * self.size) - state[0]
        if room > 0:
            state[0] += 1 + b % room
            self.kv.commit(sequence, state[0])
            self.model.commit(table, state[0])

    def finish(self, a: int, b: int, c: int) -> Any:
        """Close a sequence that has computed something; now and then drop its private part at once."""
        done = [entry for entry in self.running if entry[2][0] > entry[2][2]]
        if not done:
            return None
        sequence, table, (position, _, _) = entry = done[a % len(done)]
        self.running.remove(entry)
        node = self.kv.close(sequence, position, self.now_s)
        self.model.close(table, position, finished=True)
        if node is None:
            return None
        assert self.tree.nodes[node.stream] is node
        if c % 4 == 0:
            self.drop(node)
            return None
        return node

    def finish_and_keep(self, a: int, b: int, c: int) -> None:
        node = self.finish(a, b, c)
        if node is not None:
            self.tree.lock(node, node.end, False, self.now_s)
            self.kept.append((node, node.end, self.model.keep(node.stream, node.end)))

    def restore(self, a: int, b: int, c: int) -> None:
        """Bring whole blocks of a paused context back, as a prefetch does: what held their place becomes a pin."""
        stream = self.streams[a % len(self.streams)]
        node, hit = self.kv.match(stream, self.lengths[a % len(self.streams)] + 1)
        reach = (hit // self.size + 1 + b % 4) * self.size
        if not self.kv.enabled or reach > self.lengths[a % len(self.streams)]:
            return
        if self.kv.available(stream, reach, node, hit) < reach // self.size - hit // self.size:
            return
        stream = trunk(stream, reach)
        sequence = self.kv.open(stream, reach, node, hit, self.now_s, running=False)
        table = self.model.open(stream, reach, hit)
        self.kv.grow(sequence, reach, self.now_s)
        self.model.grow(table, reach)
        if c % 4 == 0:  # given up
            self.kv.close(sequence, hit, self.now_s, finished=False)
            self.model.close(table, hit, finished=False)
            return
        filled = self.kv.keep(sequence, reach, self.now_s)
        assert all(node.end > node.first for node in filled)
        self.model.commit(table, reach)
        self.model.close(table, reach, finished=True)
        self.kept.append((sequence.lock_node, sequence.lock_upto, self.model.keep(stream, reach // self.size)))

    def unkeep(self, a: int, b: int, c: int) -> None:
        """Let a kept pause go; now and then drop its private part then (its copy elsewhere has ended)."""
        if self.kept:
            node, upto, kept = self.kept.pop(a % len(self.kept))
            self.tree.unlock(node, upto, False, self.now_s)
            self.model.unkeep(kept)
            if b % 2:
                self.drop(node)

    def drop(self, node: Any) -> None:
        part = self.kv.private_part(node)
        keys = {(at.stream, block) for at, floor in part for block in range(floor, at.end)}
        assert keys == self.model.private(node.stream)
        assert self.kv.drop(part, self.now_s) == len(keys)
        self.model.drop(keys)

    def preempt(self, a: int, b: int, c: int) -> None:
        if self.running:
            sequence, table, (position, _, _) = self.running.pop(a % len(self.running))
            self.kv.close(sequence, position, self.now_s, finished=False)
            self.model.close(table, position, finished=False)

    def evict(self, a: int, b: int, c: int) -> None:
        assert self.tree.evict(1 + b % 4, self.now_s) == self.model.evict(1 + b % 4)

    def check(self) -> None:
        """Compare everything that others can see."""
        tree, model = self.tree, self.model
        model.check()
        assert self.pool.free == len(model.free)
        assert tree.resident == len(model.cached)
        assert tree.dormant == len(model.dormant())
        assert self.kv.copies == model.copies
        wasted, reused = tree.dormant_block_s(self.now_s)
        assert wasted + reused == pytest.approx(model.dormant_block_s)
        assert wasted > -1e-9
        assert reused > -1e-9
        for stream, length in zip(self.streams, self.lengths, strict=True):
            for tokens in (length + 1, max(1, length - self.size), max(1, stream.attach)):
                assert self.kv.match(stream, tokens)[1] == model.match(stream, tokens)
        for stream, node in tree.nodes.items():
            assert node.stream is stream
            assert {(stream, block) for block in range(node.first, node.end)} <= model.cached.keys()
            if node.parent is not None:
                assert tree.nodes.get(node.parent.stream) is node.parent, "an orphan is cached"
                assert node.parent.end >= node.first or node.end == node.first

    def drain(self) -> None:
        """End everything: nothing may be left behind."""
        while self.running:
            self.apply("f", 0, 0, 1)
            self.apply("p", 0, 0, 1)
        while self.kept:
            self.apply("u", 0, 0, 0)
        self.check()
        assert self.pool.free + self.tree.resident == self.pool.total
        assert self.tree.resident == self.tree.dormant
        assert self.tree.kept == 0
        assert all(not node.locks and getattr(node, "writer", None) is None for node in self.tree.nodes.values())
        assert self.tree.evict(self.pool.total, self.now_s) == self.model.evict(self.pool.total)
        assert self.pool.free == self.pool.total
        assert not self.tree.nodes


@settings(max_examples=1200)
@given(SHAPES, PROGRAMS)
# A branch is given up while its parent's own content lies dormant behind the branching.
@example({"total": 15, "size": 4, "cow": False, "on_chunk": False, "whole_nodes": True}, (1319, 150))
@example({"total": 18, "size": 4, "cow": False, "on_chunk": True, "whole_nodes": False}, (1129, 150))
# A longer half-filled tail takes the place of a shorter one.
@example({"total": 7, "size": 5, "cow": True, "on_chunk": False, "whole_nodes": False}, (6301, 60))
# A pin that covers nothing of a stream is no use of it.
@example({"total": 15, "size": 4, "cow": True, "on_chunk": True, "whole_nodes": True}, (1225, 150))
def test_cache_equals_a_model_that_names_every_block(shape: dict[str, Any], program: tuple[int, int]) -> None:
    pair = Pair(**shape)
    for operation in operations(program):
        pair.apply(*operation)
        pair.check()
    pair.drain()


@settings(max_examples=100)
@given(SHAPES, PROGRAMS)
def test_without_a_prefix_cache_nothing_is_shared(shape: dict[str, Any], program: tuple[int, int]) -> None:
    pair = Pair(**shape, enabled=False)
    for operation in operations(program):
        pair.apply(*operation)
        pair.check()
        assert pair.tree.resident == 0
    pair.drain()


@settings(max_examples=150)
@given(SHAPES, PROGRAMS)
def test_kept_blocks_are_those_that_only_paused_trajectories_pin(shape: dict[str, Any],
                                                                 program: tuple[int, int]) -> None:
    pair = Pair(**shape)
    for operation in operations(program):
        pair.apply(*operation)
        assert pair.tree.kept == len(pair.model.only_kept())


@settings(max_examples=150)
@given(SHAPES, PROGRAMS)
def test_ceiling_is_what_a_pool_without_end_finds(shape: dict[str, Any], program: tuple[int, int]) -> None:
    """With room for everything and nothing dropped, hits are the ceiling, up to the block a copy could add."""
    pair = Pair(**{**shape, "total": 10_000, "cow": False, "on_chunk": True})
    for what, a, b, c in operations(program):
        if what in "eu":
            continue
        pair.apply(what, a, b, 1 if what in "fk" else c)
        for stream, length in zip(pair.streams, pair.lengths, strict=True):
            assert ceiling(stream, length, pair.size) == pair.model.match(stream, length)


def test_the_model_shares_and_copies_as_blocks_do() -> None:
    """The reference itself, on an example worked by hand: two branches of a context of 10 tokens, 4 to a block."""
    model = BlockModel(8, 4, cow=True, on_chunk=True, whole_nodes=False, enabled=True)
    root = Stream(None, 0)
    table = model.open(root, 10, 0)
    model.grow(table, 10)
    model.commit(table, 9)
    assert model.match(root, 20) == 8
    model.close(table, 10, finished=True)
    assert model.match(root, 20) == 10
    assert len(model.free) == 5
    left, right = Stream(root, 10), Stream(root, 6)
    first = model.open(left, 14, model.match(left, 14))
    second = model.open(right, 14, model.match(right, 14))
    assert (first.hit, second.hit, model.copies) == (10, 6, 2)
    model.grow(first, 14)
    model.grow(second, 14)
    assert len(model.free) == 0
    assert len(model.dormant()) == 1  # the half-filled block that was copied
    assert path(right, 4, 4) == [(root, 0), (right, 1), (right, 2), (right, 3)]
    assert model.evict(2) == 1
