"""A prefix tree that evicts by adaptive replacement, and the choice of a tree by eviction policy.

It does more at each use than the plain tree, which evicts by one rank and pays nothing for it.
"""

from __future__ import annotations

from heapq import heappush

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
            freed += self._take_tail(heap, self._tail(heap), count - freed, now_s)
        self.evicted += freed
        return freed

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

    def _free_tail(self, node: Node, count: int, now_s: float, *, evicted: bool = False) -> None:
        if evicted:
            self.lists.evicted(node.stream, count, used_again=node.uses > 0)
        if node.uses == 0:
            self.once -= count
        super()._free_tail(node, count, now_s, evicted=evicted)


def tree_of(pool: BlockPool, eviction: Eviction, *, whole_nodes: bool = False, exact_tail: bool = False) -> PrefixTree:
    """Return the prefix tree that an eviction policy asks for."""
    if eviction.policy == "arc":
        return ArcTree(pool, eviction, whole_nodes=whole_nodes, exact_tail=exact_tail)
    rank = None if eviction.policy == "lru" else eviction.rank
    return PrefixTree(pool, rank, whole_nodes=whole_nodes, exact_tail=exact_tail)
