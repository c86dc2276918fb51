"""The prefix cache of one replica: which part of which stream lies in HBM, who uses it, what goes first.

A radix tree whose nodes are streams (see `workloads.trajectory`): a node owns the whole blocks of its stream from the
block its attach position falls in, ``[first, end)``; what lies before belongs to its ancestors. Because every stream
knows its parent, a prompt's longest cached prefix is found by walking up from its own stream, in as many hops as the
context has branchings.

Rules
-----
* A node's children hold it up to the block where they attach: nothing is cached whose prefix is not.
* A user locks a path up to a block; what no one locks is dormant. Only dormant blocks beyond the last child are
  evicted, from the tail, in the order of the eviction policy; a child's end makes its parent a leaf again.
* A dormant block's time is booked as reused when a later prompt finds it, as wasted when it is evicted.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from sim.memory.allocators.paged import BlockPool
from sim.policies.eviction import EntryView
from workloads.trajectory import Stream


class Node:
    """A stream's cached blocks ``[first, end)``, of which `tokens` tokens (absolute) are computed."""

    __slots__ = ("children", "end", "first", "kids", "last_use_s", "owner", "parent", "pause", "pins", "run_end",
                 "runs", "shared", "since_s", "stamp", "stream", "tokens", "used_end", "uses")

    def __init__(self, stream: Stream, parent: Node | None, first: int, owner: int) -> None:
        self.stream = stream
        #: Trajectory that made it; -1 if nobody asks.
        self.owner = owner
        #: Resident children; None until there is one.
        self.children: dict[Node, None] | None = None
        self.parent = parent
        self.first = first
        self.end = first
        self.tokens = stream.attach
        #: Locks of running turns and of kept pauses, by the block they reach; a node with any has one on its parent.
        self.runs: dict[int, int] = {}
        self.pins: dict[int, int] = {}
        #: The highest lock of a running turn, and the highest of all: from there on blocks are dormant.
        self.run_end = first
        self.used_end = first
        #: Resident children by the block they attach at.
        self.kids: dict[int, int] = {}
        self.last_use_s = 0.0
        self.uses = 0
        #: Whether more than one stream has grown out of it.
        self.shared = False
        self.since_s = 0.0
        self.stamp = 0
        #: The pause whose context ends here, told when blocks of it are evicted.
        self.pause: Any = None

    @property
    def locks(self) -> dict[int, int]:
        """Return all locks by the block they reach."""
        return {upto: self.runs.get(upto, 0) + self.pins.get(upto, 0) for upto in {*self.runs, *self.pins}}

    def kept_blocks(self, end: int) -> int:
        """Return the blocks up to `end` that only kept pauses hold, if that is where it ends."""
        return (self.used_end if self.used_end < end else end) - (self.run_end if self.run_end < end else end)

    def __repr__(self) -> str:
        return f"Node({self.stream!r}, blocks {self.first}..{self.end}, {self.tokens} tokens, locks {self.locks})"


class Watcher(Protocol):
    """Whoever is told what happens to dormant content."""

    def rested(self, node: Node) -> None:
        """Blocks of `node` have gone dormant."""

    def freed(self, node: Node, end: int, *, evicted: bool) -> None:
        """Blocks of `node` from its present end up to `end` were freed."""

    def removed(self, node: Node) -> None:
        """`node` is no longer in the tree."""


class PrefixTree:
    """Cached streams over a block pool.

    Parameters
    ----------
    pool
        Where blocks come from and go to.
    rank
        The eviction policy's rank of a dormant leaf, of which the lowest is evicted first; None for the time of the
        last use.
    whole_nodes
        Evict a leaf's whole dormant tail at once instead of as many blocks as are needed.
    exact_tail
        Match partly filled blocks too (their copy is billed by the caller); otherwise matches are whole blocks.
    """

    __slots__ = ("_dormant_since", "_heap", "_kept_since", "_sequence", "dormant", "evicted", "exact_tail", "kept",
                 "nodes", "pool", "rank", "resident", "reused_block_s", "wasted_block_s", "watcher", "whole_nodes")

    def __init__(self, pool: BlockPool, rank: Callable[[EntryView], float] | None = None, *,
                 whole_nodes: bool = False, exact_tail: bool = False) -> None:
        self.pool = pool
        self.rank = rank
        self.whole_nodes = whole_nodes
        self.exact_tail = exact_tail
        self.nodes: dict[Stream, Node] = {}
        #: Blocks owned by nodes; those that no one locks; those that only kept pauses lock.
        self.resident = 0
        self.dormant = 0
        self.kept = 0
        self.evicted = 0
        self.reused_block_s = 0.0
        self.wasted_block_s = 0.0
        #: Sum over dormant blocks of the time since which they are: their age in total is ``dormant * now - this``;
        #: likewise over kept blocks.
        self._dormant_since = self._kept_since = 0.0
        self._heap: list[tuple[float, int, int, Node]] = []
        self._sequence = 0
        self.watcher: Watcher | None = None

    def match(self, stream: Stream, tokens: int) -> tuple[Node | None, int]:
        """Return the node and the length in tokens of the longest cached prefix of `stream`'s first `tokens` tokens."""
        size = self.pool.block_tokens
        nodes = self.nodes
        at: Stream | None = stream
        while at is not None:
            node = nodes.get(at)
            if node is not None:
                found = node.tokens if node.tokens < tokens else tokens
                if not self.exact_tail:
                    found -= found % size
                if found > node.first * size and found > (at.attach if self.exact_tail else 0):
                    return node, found
            if at.attach < tokens:
                tokens = at.attach
            at = at.parent
        return None, 0

    def lock(self, node: Node | None, upto: int, running: bool, now_s: float) -> None:
        """Lock the path to `node` up to block `upto` (exclusive), for a running turn or for a kept pause.

        The first lock of a node locks its parent where it attaches; further ones leave the ancestors alone.
        """
        while node is not None:
            locks = node.runs if running else node.pins
            first = not locks
            locks[upto] = 1 if first else locks.get(upto, 0) + 1
            if running and upto > node.run_end:
                if node.used_end > node.run_end:
                    self._overtake(node, upto, now_s)
                node.run_end = upto
            used = node.used_end
            if upto > used:
                end = node.end
                if end > used:
                    woken = (upto if upto < end else end) - used
                    self._wake(node, woken, now_s)
                    if not running:
                        self.kept += woken
                        self._kept_since += woken * now_s
                node.used_end = upto
            if not first:
                return
            upto = node.first
            node = node.parent

    def _overtake(self, node: Node, upto: int, now_s: float) -> None:
        """A running turn's lock at `upto` reaches over blocks that only kept pauses held."""
        end = node.end
        reach = node.used_end if node.used_end < upto else upto
        less = (reach if reach < end else end) - (node.run_end if node.run_end < end else end)
        self.kept -= less
        self._kept_since -= less * now_s

    def keep(self, more: int, now_s: float) -> None:
        """So many more blocks are in the hands of kept pauses alone."""
        self.kept += more
        self._kept_since += more * now_s

    def unlock(self, node: Node | None, upto: int, running: bool, now_s: float) -> None:
        """Undo one `lock` with the same arguments; what no one locks any more goes dormant."""
        while node is not None:
            parent = node.parent
            locks = node.runs if running else node.pins
            count = locks[upto] - 1
            if count:
                locks[upto] = count
                return
            del locks[upto]
            if upto == (node.run_end if running else node.used_end):
                kept = node.kept_blocks(node.end) if node.used_end > node.run_end else 0
                if running:
                    node.run_end = max(locks) if locks else node.first
                self._rest(node, now_s)
                if node.used_end > node.run_end:
                    kept -= node.kept_blocks(node.end)
                if kept:
                    self.kept -= kept
                    self._kept_since -= kept * now_s
            if node.end == node.first:
                self.discard_if_empty(node, now_s)
            if locks:
                return
            upto, node = node.first, parent

    def add(self, stream: Stream, parent: Node | None, owner: int = -1) -> Node:
        """Create the node of `stream` under `parent` (None for a root); it owns no block yet."""
        node = Node(stream, parent, stream.attach // self.pool.block_tokens, owner)
        self.nodes[stream] = node
        if parent is not None:
            if parent.children is None:
                parent.children = {}
            parent.children[node] = None
            parent.shared = parent.shared or bool(parent.kids)
            parent.kids[node.first] = parent.kids.get(node.first, 0) + 1
        return node

    def extend(self, node: Node, end: int, tokens: int) -> None:
        """Give `node` blocks up to `end`, which the caller has taken from the pool, with `tokens` tokens computed.

        The caller is a running turn that holds a lock on the node.
        """
        before = node.end
        node.end = end
        node.tokens = tokens
        self.resident += end - before
        used = node.used_end
        if end > used:
            asleep = end - (used if used > before else before)
            self.dormant += asleep
            self._dormant_since += asleep * node.since_s

    def cut(self, node: Node, end: int, now_s: float) -> int:
        """Free the blocks of `node` from `end` on, which must be dormant and hold no child; return how many."""
        freed = node.end - end
        if freed <= 0:
            return 0
        if end < max(node.used_end, *node.kids, node.first):
            raise ValueError(f"cannot free blocks from {end} on of {node!r}: they are in use")
        self._free_tail(node, freed, now_s)
        if node.end == node.first:
            self.discard_if_empty(node, now_s)
        return freed

    def evict(self, count: int, now_s: float) -> int:
        """Free at least `count` blocks if there are so many to evict; return how many were freed."""
        heap = self._heap
        freed = 0
        while freed < count:
            tail = self._tail(heap)
            if not tail:
                break
            freed += self._take_tail(heap, tail, count - freed, now_s)
        self.evicted += freed
        return freed

    def discard_if_empty(self, node: Node, now_s: float) -> None:
        """Remove a node that owns nothing, that no one locks and that has no children."""
        empty = node.end == node.first and not (node.runs or node.pins or node.kids)
        if empty and self.nodes.get(node.stream) is node:
            self._remove(node, now_s)

    def is_dead(self, node: Node, owner: int) -> bool:
        """Return whether `node` and all that grew out of it is `owner`'s and in nobody's use."""
        if node.owner != owner or node.runs or node.pins:
            return False
        return not node.children or all(self.is_dead(child, owner) for child in node.children)

    def cut_dead(self, node: Node, end: int, now_s: float) -> int:
        """Free the children of `node` that attach behind block `end`, which must be dead; return the blocks freed."""
        freed = 0
        for child in [child for child in node.children or () if child.first > end]:
            freed += self.cut_dead(child, child.first - 1, now_s)
            freed += self.cut(child, child.first, now_s)
        return freed

    def dormant_block_s(self, now_s: float) -> tuple[float, float]:
        """Return the block-seconds of dormancy up to now: wasted, reused.

        What is dormant at this moment counts as wasted: nobody has come back for it yet.
        """
        return self.wasted_block_s + self.dormant * now_s - self._dormant_since, self.reused_block_s

    def kept_block_s(self, now_s: float) -> float:
        """Return the block-seconds up to now that kept pauses alone have held."""
        return self.kept * now_s - self._kept_since

    def _wake(self, node: Node, woken: int, now_s: float) -> None:
        """Book what was dormant up to now: `woken` (> 0) blocks found again, the rest of the tail not."""
        left = node.end - node.used_end - woken
        since_s = node.since_s
        self.reused_block_s += woken * (now_s - since_s)
        self._dormant_since -= woken * since_s
        if left:
            self.wasted_block_s += left * (now_s - since_s)
            self._dormant_since += left * (now_s - since_s)
        self.dormant -= woken
        node.since_s = now_s
        node.uses += 1

    def _rest(self, node: Node, now_s: float) -> None:
        """The highest lock is gone: what it alone held goes dormant."""
        used = max(node.run_end, *node.pins) if node.pins else node.run_end
        before = node.used_end
        if used == before:
            return
        end = node.end
        node.used_end = used
        asleep = end - used
        if end > before:
            idle = end - before
            self.wasted_block_s += idle * (now_s - node.since_s)
            self.dormant += asleep - idle
            self._dormant_since += asleep * now_s - idle * node.since_s
        elif asleep > 0:
            self.dormant += asleep
            self._dormant_since += asleep * now_s
        else:
            return
        node.since_s = node.last_use_s = now_s
        if not node.kids or max(node.kids) < end:
            self._push(node)
        if self.watcher is not None:
            self.watcher.rested(node)

    def _push(self, node: Node) -> None:
        node.stamp += 1
        self._sequence += 1
        heap = self._heap
        rank = node.last_use_s if self.rank is None else self.rank(self._view(node))
        heappush(heap, (rank, self._sequence, node.stamp, node))
        if len(heap) > 4 * len(self.nodes) + 1024:
            heap[:] = [entry for entry in heap if entry[3].stamp == entry[2]]
            heapify(heap)

    def _view(self, node: Node) -> EntryView:
        size = self.pool.block_tokens
        return EntryView(node.last_use_s, node.uses, node.first * size, node.end * size, node.shared)

    def _tail(self, heap: list[tuple[float, int, int, Node]]) -> int:
        """Return the blocks that the first leaf of a heap can give, after taking off what is none any more."""
        while heap:
            _, _, stamp, node = heap[0]
            if node.stamp == stamp:
                tail = node.end - (max(node.used_end, *node.kids) if node.kids else node.used_end)
                if tail > 0:
                    return tail
                node.stamp += 1
            heappop(heap)
        return 0

    def _take_tail(self, heap: list[tuple[float, int, int, Node]], tail: int, wanted: int, now_s: float) -> int:
        """Evict up to `wanted` blocks of the `tail` of a heap's first leaf, or all of it; return how many."""
        node = heap[0][3]
        step = tail if self.whole_nodes else min(tail, wanted)
        self._free_tail(node, step, now_s, evicted=True)
        if step == tail:
            heappop(heap)
            node.stamp += 1
            if node.end == node.first:
                self.discard_if_empty(node, now_s)
        return step

    def _free_tail(self, node: Node, count: int, now_s: float, *, evicted: bool = False) -> None:
        self.wasted_block_s += count * (now_s - node.since_s)
        self._dormant_since -= count * node.since_s
        if node.pause is not None:
            node.pause.lost(count, now_s)
        node.end -= count
        limit = node.end * self.pool.block_tokens
        if node.tokens > limit:
            node.tokens = max(limit, node.stream.attach)
        self.resident -= count
        self.dormant -= count
        self.pool.free += count
        if self.watcher is not None:
            self.watcher.freed(node, node.end + count, evicted=evicted)

    def _remove(self, node: Node, now_s: float) -> None:
        del self.nodes[node.stream]
        node.stamp += 1
        if self.watcher is not None:
            self.watcher.removed(node)
        parent = node.parent
        if parent is None:
            return
        if parent.children is not None:
            parent.children.pop(node, None)
        count = parent.kids[node.first] - 1
        if count:
            parent.kids[node.first] = count
            return
        del parent.kids[node.first]
        if parent.end > parent.used_end:
            self._push(parent)
        else:
            self.discard_if_empty(parent, now_s)
