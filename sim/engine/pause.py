"""A paused context."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sim.memory.prefix_tree import Node
from sim.memory.tiers import Entry
from sim.policies.prediction import Wait
from workloads.trajectory import Turn

if TYPE_CHECKING:
    from sim.engine.job import Job
    from sim.engine.transfers import Transfer


class Pause:
    """The time between a turn and the next one of its context, on the replica that served the turn.

    Blocks that it loses to eviction stop being booked as held; `hold_block_s` is settled when it ends.
    """

    __slots__ = ("_since_s", "action", "below_blocks", "below_since_s", "blocks", "context_tokens", "ended",
                 "entries", "fetch", "forced", "frees", "heir", "hold_block_s", "joined", "leaving", "locked",
                 "node", "nodes", "predicted_s", "private_blocks", "private_tokens", "start_s", "tier", "tool",
                 "trajectory", "transfer", "turn", "upto", "wait")

    def __init__(self, trajectory: int, turn: Turn, heir: Turn, node: Node | None, context_tokens: int,
                 start_s: float) -> None:
        self.trajectory = trajectory
        self.turn = turn
        self.heir = heir
        self.tool = heir.tool
        self.node = node
        self.context_tokens = context_tokens
        self.start_s = start_s
        self._since_s = start_s
        self.wait: Wait | None = None
        self.predicted_s = math.nan
        self.action = "release"
        #: Nodes of the prefix tree that hold what is private to it.
        self.nodes: list[Node] = []
        self.private_tokens = 0
        #: Private blocks at its start, and those of them still in HBM.
        self.private_blocks = 0
        self.blocks = 0
        self.hold_block_s = 0.0
        #: Whether it pins its context, and up to which block.
        self.locked = False
        self.upto = 0
        #: The copy to a lower tier under way, and whether HBM gives the blocks up when it ends.
        self.transfer: Transfer | None = None
        self.frees = False
        #: Blocks on their way out with it; where they go, and from and up to which block of each stream.
        self.leaving = 0
        self.entries: list[tuple[Entry, int, int]] = []
        self.tier = ""
        self.below_blocks = 0
        self.below_since_s = 0.0
        #: The copy back ahead of time under way, and the turn that waits for it.
        self.fetch: Transfer | None = None
        self.joined: Job | None = None
        self.forced = False
        self.ended = False

    def watch(self, nodes: list[Node]) -> None:
        """From now on be told when blocks of these nodes are freed."""
        self.nodes = nodes
        for node in nodes:
            node.pause = self

    def unwatch(self) -> None:
        """Be told no longer."""
        for node in self.nodes:
            if node.pause is self:
                node.pause = None

    @property
    def returns(self) -> bool:
        """Whether nothing but its own wait keeps the next turn away."""
        return not self.ended and self.heir.pending <= 0

    def lost(self, count: int, now_s: float) -> None:
        """Some of its blocks were freed."""
        self.settle(now_s)
        self.blocks = max(0, self.blocks - count)

    def regained(self, count: int, now_s: float) -> None:
        """Some of its blocks are back in HBM."""
        self.settle(now_s)
        self.blocks += count

    def settle(self, now_s: float) -> None:
        """Book the blocks held up to now."""
        if not self.ended:
            self.hold_block_s += self.blocks * (now_s - self._since_s)
        self._since_s = now_s
