"""Contexts that are written to DRAM without a policy's asking: when they are computed, or ahead of their eviction."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sim.engine.hops import Transfer
from sim.memory.kv_cache import PrivatePart
from sim.memory.links import BACKGROUND
from sim.memory.prefix_tree import Node
from sim.memory.tiers import Entry
from workloads.trajectory import Turn

if TYPE_CHECKING:
    from sim.engine.pauses import Pauses


@dataclass(frozen=True, slots=True)
class Writes:
    """When and what is written to DRAM.

    Attributes
    ----------
    when
        `on_pause`: when the retention policy offloads; `on_compute`: at every turn's end; `on_evict`: ahead of
        eviction.
    min_uses
        With `on_compute`, content is written at its so-manieth use.
    prompt_only
        With `on_compute`, output is written only when it has become part of a prompt.
    unit_tokens
        Only whole units of so many tokens are written.
    ahead
        With `on_evict`, the share of the pool that is to be free or written.
    """

    when: Literal["on_pause", "on_compute", "on_evict"] = "on_pause"
    min_uses: int = 1
    prompt_only: bool = False
    unit_tokens: int = 1
    ahead: float = 0.1

    def part(self, private: PrivatePart, turn: Turn, block_tokens: int) -> list[tuple[Node, int, int]]:
        """Return the blocks ``[first, end)`` of nodes to write when `turn` has ended, deepest first."""
        unit = max(1, self.unit_tokens // block_tokens)
        part = []
        for node, floor in private:
            end = node.end
            if self.prompt_only:
                end = min(end, turn.prompt_tokens // block_tokens)
            end -= end % unit
            if end > floor and node.uses + 1 >= self.min_uses:
                part.append((node, floor, end))
        return part


#: More tokens than any context has.
_ALL = 1 << 62


class _Flight:
    """A node's blocks ``[first, end)`` on their way out."""

    __slots__ = ("end", "entry", "first", "over", "transfer")

    def __init__(self, entry: Entry, first: int, end: int) -> None:
        self.entry = entry
        self.first = first
        self.end = end
        self.over = False
        self.transfer: Transfer | None = None


class WriteBacks:
    """Copies dormant contexts to DRAM: ahead of their eviction (write-back), or when their turn ends (write-through).

    With write-back, while fewer blocks than a share of the pool are free or copied, dormant nodes are copied, those
    used longest ago first. Either way a node stays dormant meanwhile and may be found again; evicting blocks that are
    copied loses nothing. If running turns need the blocks before their copy has ended, they are lost and the copy is
    cut short.

    Attributes
    ----------
    written, lost, saved, refused
        Blocks copied; blocks evicted without a copy and with one; nodes for which DRAM had no room.
    """

    def __init__(self, pauses: Pauses) -> None:
        self.pauses = pauses
        self.tier = pauses.host.tier("dram")
        self.pool = pauses.kv.pool
        self.level = int(pauses.writes.ahead * self.pool.total)
        self.written = self.lost = self.saved = self.refused = 0
        #: Dormant nodes that are not copied yet, in order of their last use; those that are; those under way.
        self._dirty: OrderedDict[Node, None] = OrderedDict()
        self._clean: dict[Node, None] = {}
        self._open: dict[Node, _Flight] = {}
        pauses.kv.tree.watcher = self

    def turn_ended(self, turn: Turn, node: Node | None, now_s: float) -> None:
        """A turn has ended, and the pause behind it has begun if there is one: write what is to be in DRAM by now."""
        if not self.pauses.write_through:
            self.run(now_s)
        elif node is not None:
            self._write_through(node, turn, now_s)

    def run(self, now_s: float) -> None:
        """Start copies until enough blocks are free, copied or being copied."""
        if self.pool.free >= self.level or not self._dirty:
            return
        short = self.level - self.pool.free - self._copied() - sum(f.end - f.first for f in self._open.values())
        while short > 0 and self._dirty:
            node, _ = self._dirty.popitem(last=False)
            if node not in self._open:
                short -= self._start(node, now_s)

    def rested(self, node: Node) -> None:
        """Blocks of a node have gone dormant."""
        self._dirty[node] = None
        self._dirty.move_to_end(node)
        self._clean.pop(node, None)

    def freed(self, node: Node, end: int, *, evicted: bool) -> None:
        """Blocks of a node from its present end up to `end` were freed: count them, and cut short their copy."""
        if evicted:
            entry = self.tier.entries.get(node.stream)
            saved = 0
            if entry is not None and entry.first <= node.end:
                saved = max(0, min(end, entry.ready) - node.end)
            self.saved += saved
            self.lost += end - node.end - saved
        flight = self._open.get(node)
        if flight is not None and node.end < flight.end:
            flight.end = node.end
            if flight.end <= flight.first:
                self._give_up(node, flight)

    def removed(self, node: Node) -> None:
        """A node is no longer in the tree."""
        self._dirty.pop(node, None)
        self._clean.pop(node, None)

    def _write_through(self, node: Node, turn: Turn, now_s: float) -> None:
        """Copy what the path of a turn that has ended in `node` holds that no one uses and DRAM lacks.

        What the retention policy has pinned goes out by its own copy.
        """
        writes = self.pauses.writes
        tokens = turn.prompt_tokens if writes.prompt_only else node.tokens
        at: Node | None = node
        while at is not None:
            if at in self._dirty and at not in self._open and not at.pins and at.uses + 1 >= writes.min_uses:
                del self._dirty[at]
                self._start(at, now_s, tokens)
            at = at.parent

    def _copied(self) -> int:
        """Return the dormant blocks that could be evicted without loss."""
        blocks = 0
        for node in self._clean:
            entry = self.tier.entries.get(node.stream)
            if entry is not None:
                blocks += max(0, min(node.end, entry.ready) - max(node.used_end, entry.first))
        return blocks

    def _start(self, node: Node, now_s: float, tokens: int = _ALL) -> int:
        """Copy a node up to `tokens` tokens; return the dormant blocks that this secures."""
        unit = max(1, self.pauses.writes.unit_tokens // self.pool.block_tokens)
        end = min(node.end, min(node.tokens, tokens) // self.pool.block_tokens)
        end -= end % unit
        if end <= node.first:
            return 0
        entry = self.tier.reserve(node.stream, node.first, end, now_s, owner=node.owner, shared=node.shared)
        if entry is None:
            self.refused += 1
            return 0
        first = max(node.first, entry.ready)
        self._clean[node] = None
        if end <= first:
            self.tier.release(entry, now_s)
            return max(0, end - node.used_end)
        flight = self._open[node] = _Flight(entry, first, end)
        flight.transfer = self.pauses.transfers.send("dram", end - first, "write_back", node.owner, BACKGROUND,
                                                     lambda: self._ended(node, flight))
        self.pauses.host.overflow(now_s)
        return max(0, end - max(node.used_end, node.first))

    def _ended(self, node: Node, flight: _Flight) -> None:
        """A copy has ended: from now on its blocks can be evicted without loss."""
        now_s = self.pauses.env.now
        self.pauses.replica.before_change(now_s)
        if flight.over:
            return
        del self._open[node]
        self.tier.copied(flight.entry, flight.end, now_s)
        self.written += flight.end - flight.first
        pause = node.pause
        if pause is not None and pause.node is node and not (pause.transfer or pause.ended or pause.below_blocks):
            pause.tier, pause.below_blocks, pause.below_since_s = "dram", flight.end - flight.entry.first, now_s
        if not self.pauses.write_through:
            self.pauses.replica.take_begun(now_s)  # free blocks are about to be counted
            self.run(now_s)

    def _give_up(self, node: Node, flight: _Flight) -> None:
        flight.over = True
        del self._open[node]
        if flight.transfer is not None:
            flight.transfer.cancel()
        self.tier.cancel(flight.entry, self.pauses.env.now)
