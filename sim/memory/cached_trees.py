"""Prefix trees that do more at each use than the plain one: adaptive replacement, and telling a watcher what rests.

They are classes of their own so that the plain tree, which evicts by one rank, pays nothing for them.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Protocol

from sim.memory.allocators.paged import BlockPool
from sim.memory.prefix_tree import Node, PrefixTree
from sim.policies.eviction import Arc, Eviction


class ArcTree(PrefixTree):
    """A prefix tree that evicts by adaptive replacement (see `sim.policies.eviction.arc`).

    A node counts as used again once a later prompt has found it dormant, or when blocks of it come back that the ghosts
    remember. Within a list the node used longest ago goes first.
    """

    __slots__ = ("_again", "lists", "once")

    def __init__(self, pool: BlockPool, policy: Arc, *, whole_nodes: bool = False, exact_tail: bool = False) -> None:
        super().__init__(pool, whole_nodes=whole_nodes, exact_tail=exact_tail)
        self.lists = policy.start(pool.total)
        #: Dormant blocks of nodes used once.
        self.once = 0
        self._again: list[tuple[float, int, int, Node]] = []

    def extend(self, node: Node, end: int, tokens: int) -> None:
        """Give `node` blocks (see `PrefixTree.extend`); ghosts that come back with them are learned from."""
        if self.lists.recall(node.stream, end - node.end) and node.uses == 0:
            self.once -= max(0, node.end - node.used_end)
            node.uses = 1
        dormant = self.dormant
        super().extend(node, end, tokens)
        if node.uses == 0:
            self.once += self.dormant - dormant

    def evict(self, count: int, now_s: float) -> int:
        """Free at least `count` blocks if there are so many to evict; return how many were freed."""
        freed = 0
        while freed < count:
            order = [self._heap, self._again]
            if not self.lists.takes_from_once(self.once, self.dormant - self.once):
                order.reverse()
            heap = next((heap for heap in order if self._tail(heap)), None)
            if heap is None:
                break
            node, tail = heap[0][3], self._tail(heap)
            step = tail if self.whole_nodes else min(tail, count - freed)
            self.lists.evicted(node.stream, step, used_again=node.uses > 0)
            self._free_tail(node, step, now_s)
            freed += step
            if step == tail:
                heappop(heap)
                node.stamp += 1
                if node.end == node.first:
                    self.discard_if_empty(node, now_s)
        self.evicted += freed
        return freed

    def _tail(self, heap: list[tuple[float, int, int, Node]]) -> int:
        """Return the blocks that the first leaf of a heap can give, after taking off what is none any more."""
        while heap:
            _, _, stamp, node = heap[0]
            if node.stamp == stamp:
                tail = node.end - max(node.used_end, *node.kids, 0)
                if tail > 0:
                    return tail
                node.stamp += 1
            heappop(heap)
        return 0

    def _wake(self, node: Node, woken: int, now_s: float) -> None:
        idle = node.end - node.used_end
        if node.uses == 0:
            self.once -= idle
        super()._wake(node, woken, now_s)
        if idle > woken and node.uses == 1:
            self._push(node)  # what stays dormant has changed its list

    def _rest(self, node: Node, now_s: float) -> None:
        dormant = self.dormant
        super()._rest(node, now_s)
        if node.uses == 0:
            self.once += self.dormant - dormant

    def _push(self, node: Node) -> None:
        if node.uses == 0:
            super()._push(node)
            return
        node.stamp += 1
        self._sequence += 1
        heap = self._again
        heappush(heap, (node.last_use_s, self._sequence, node.stamp, node))
        if len(heap) > 4 * len(self.nodes) + 1024:
            heap[:] = sorted(entry for entry in heap if entry[3].stamp == entry[2])

    def _free_tail(self, node: Node, count: int, now_s: float) -> None:
        if node.uses == 0:
            self.once -= count
        super()._free_tail(node, count, now_s)


class Watcher(Protocol):
    """Whoever is told what happens to dormant content."""

    def rested(self, node: Node) -> None:
        """Blocks of `node` have gone dormant."""

    def freed(self, node: Node, end: int, *, evicted: bool) -> None:
        """Blocks of `node` from its present end up to `end` were freed."""

    def removed(self, node: Node) -> None:
        """`node` is no longer in the tree."""


class _Watched:
    """Tells a watcher what rests, what is freed and what is removed; goes before a tree among the bases of a class."""

    __slots__ = ()

    def evict(self: Any, count: int, now_s: float) -> int:
        """Free blocks (see `PrefixTree.evict`)."""
        self.evicting = True
        freed: int = super().evict(count, now_s)  # type: ignore[misc]
        self.evicting = False
        return freed

    def _rest(self: Any, node: Node, now_s: float) -> None:
        super()._rest(node, now_s)  # type: ignore[misc]
        if node.end > node.used_end and self.watcher is not None:
            self.watcher.rested(node)

    def _free_tail(self: Any, node: Node, count: int, now_s: float) -> None:
        end = node.end
        super()._free_tail(node, count, now_s)  # type: ignore[misc]
        if self.watcher is not None:
            self.watcher.freed(node, end, evicted=self.evicting)

    def _remove(self: Any, node: Node, now_s: float) -> None:
        super()._remove(node, now_s)  # type: ignore[misc]
        if self.watcher is not None:
            self.watcher.removed(node)


class WatchedTree(_Watched, PrefixTree):
    """A prefix tree with a watcher."""

    __slots__ = ("evicting", "watcher")
    evicting: bool
    watcher: Watcher | None


class WatchedArcTree(_Watched, ArcTree):
    """A prefix tree that evicts by adaptive replacement, with a watcher."""

    __slots__ = ("evicting", "watcher")
    evicting: bool
    watcher: Watcher | None


def tree_of(pool: BlockPool, eviction: Eviction, *, whole_nodes: bool = False, exact_tail: bool = False,
            watched: bool = False) -> PrefixTree:
    """Return the prefix tree that an eviction policy asks for; `watched` for one that can tell a watcher."""
    tree: PrefixTree
    if eviction.policy == "arc":
        kind = WatchedArcTree if watched else ArcTree
        tree = kind(pool, eviction, whole_nodes=whole_nodes, exact_tail=exact_tail)
    else:
        rank = None if eviction.policy == "lru" else eviction.rank
        plain = WatchedTree if watched else PrefixTree
        tree = plain(pool, rank, whole_nodes=whole_nodes, exact_tail=exact_tail)
    if isinstance(tree, WatchedTree | WatchedArcTree):
        tree.evicting, tree.watcher = False, None
    return tree
