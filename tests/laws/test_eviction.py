"""Does every eviction policy take only what nobody uses, and does each keep what it says it keeps?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import EVICTIONS, FollowingModel
from test_paged_memory import PROGRAMS, SHAPES, Pair, operations

from sim.memory.allocators.paged import BlockPool
from sim.memory.cached_trees import ArcTree, tree_of
from sim.memory.kv_cache import KvCache
from sim.policies.eviction import Arc, ArcLists, Lru
from workloads.trajectory import Stream

EVERY_POLICY = pytest.mark.parametrize("policy", EVICTIONS, ids=lambda policy: policy.__name__)


class Listener:
    """A watcher that adds up what it is told."""

    def __init__(self) -> None:
        self.evicted = 0
        self.dropped = 0
        self.gone: list[Any] = []

    def rested(self, node: Any) -> None:
        assert node.end > node.used_end

    def freed(self, node: Any, end: int, *, evicted: bool) -> None:
        assert end > node.end >= node.used_end
        if evicted:
            self.evicted += end - node.end
        else:
            self.dropped += end - node.end

    def removed(self, node: Any) -> None:
        self.gone.append(node)


def following(policy: Any, shape: dict[str, Any]) -> Pair:
    pair = Pair(**shape, eviction=policy())
    gone = pair.model.gone
    pair.model = FollowingModel(pair.pool.total, pair.size, cow=shape["cow"], on_chunk=shape["on_chunk"],
                                whole_nodes=shape["whole_nodes"], enabled=True)
    pair.model.gone = gone
    return pair


@EVERY_POLICY
@settings(max_examples=120)
@given(SHAPES, PROGRAMS, st.booleans())
def test_every_policy_evicts_dormant_leaves_only(policy: Any, shape: dict[str, Any], program: tuple[int, int],
                                                 watched: bool) -> None:
    """The cache under any policy is the model that names every block, but for who goes first."""
    pair, told = following(policy, shape), Listener()
    tree: Any = pair.tree
    if watched:
        tree.watcher = told
    for operation in operations(program):
        pair.apply(*operation)
        pair.check()
        if isinstance(tree, ArcTree):
            dormant = {node: max(0, node.end - node.used_end) for node in tree.nodes.values()}
            assert tree.once == sum(blocks for node, blocks in dormant.items() if node.uses == 0)
            assert 0.0 <= tree.lists.share <= 1.0
    pair.drain()
    if watched:
        assert told.evicted == tree.evicted


@settings(max_examples=200)
@given(st.integers(1, 20), st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 6), st.integers(1, 5)),
                                    max_size=60))
def test_ghosts_stay_within_their_bounds(capacity: int, steps: list[tuple[bool, bool, int, int]]) -> None:
    """Each list remembers at most a cache full of blocks (or one entry), and only what it was told of."""
    lists = ArcLists(capacity)
    known: dict[bool, set[int]] = {False: set(), True: set()}
    for back, used_again, key, blocks in steps:
        before = lists.share
        if back:
            found = lists.recall(key, blocks)
            assert not found or key in known[False] | known[True]
            if found and key not in known[True]:
                assert lists.share >= before
            elif found and key not in known[False]:
                assert lists.share <= before
            assert not lists.recall(key, blocks)
            known[False].discard(key)
            known[True].discard(key)
        else:
            lists.evicted(key, blocks, used_again=used_again)
            known[used_again].add(key)
        for kind in (False, True):
            assert 0 <= lists.ghost_blocks(used_again=kind) <= max(capacity, 5 * 60)
        assert 0.0 <= lists.share <= 1.0


class Cache:
    """A cache of 40 blocks of one token that serves prompts one after another."""

    def __init__(self, policy: Any, blocks: int = 40) -> None:
        self.pool = BlockPool(blocks, 1)
        self.tree = tree_of(self.pool, policy)
        self.kv = KvCache(self.pool, self.tree)
        self.now_s = 0.0

    def serve(self, stream: Stream, tokens: int) -> int:
        """Serve a prompt; return the tokens found."""
        self.now_s += 1.0
        node, hit = self.kv.match(stream, tokens)
        sequence = self.kv.open(stream, tokens, node, hit, self.now_s)
        self.kv.grow(sequence, tokens, self.now_s)
        self.kv.commit(sequence, tokens)
        self.kv.close(sequence, tokens, self.now_s)
        return hit


def scanned(policy: Any, scan: int) -> int:
    """Use three contexts of 8 again and again, with `scan` prompts seen once in between; return tokens found later."""
    cache = Cache(policy)
    agents = [Stream() for _ in range(3)]
    for agent in agents * 2:
        cache.serve(agent, 8)
    found = 0
    for _ in range(20):
        for _ in range(scan):
            cache.serve(Stream(), 8)
        found += sum(cache.serve(agent, 8) for agent in agents)
    return found


def test_a_scan_flushes_lru_but_not_arc() -> None:
    """Contexts in use fit beside a few prompts; many prompts that never come back push them out of LRU only."""
    assert scanned(Lru(), 1) == scanned(Arc(), 1) == 20 * 3 * 7
    assert scanned(Lru(), 6) == 0
    assert scanned(Arc(), 6) == 20 * 3 * 7


def test_arc_makes_room_for_new_content_when_its_ghosts_return() -> None:
    """Contexts used again long ago are dead; new ones come back just after they were lost: the split moves to them."""
    cache = Cache(Arc())
    tree: Any = cache.tree
    dead = [Stream() for _ in range(4)]
    for stream in dead * 2:
        cache.serve(stream, 9)
    assert tree.lists.share == 0.0
    fresh = [Stream() for _ in range(3)]
    found = [sum(cache.serve(stream, 9) for stream in fresh) for _ in range(6)]
    assert tree.lists.share > 0.0
    assert found[0] == 0
    assert found[-1] == 3 * 8, "the new contexts stay"
