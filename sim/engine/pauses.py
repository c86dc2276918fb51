"""What becomes of a context while its trajectory waits: the decision, and carrying it out.

One `Pauses` a replica. A pause begins when a turn ends with another to follow, asks the retention policy, and then
keeps (a lock), releases, drops or offloads (a move over the host link) what no one else uses. It ends when the next
turn is ready; what it pinned is let go when that turn is admitted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import simpy

from sim.engine.host import Host
from sim.memory.kv_cache import KvCache, PrivatePart
from sim.memory.links import OFFLOAD, Link, Move
from sim.memory.prefix_tree import Node
from sim.memory.tiers import Entry
from sim.policies.prediction import Predictor
from sim.policies.retention import PauseView, Retention
from sim.records import Sink
from sim.timing.base import StepCost

if TYPE_CHECKING:
    from sim.engine.replica import Replica


class Pause:
    """A paused context on a replica.

    Blocks that it loses to eviction stop being booked as held; `hold_block_s` is settled when it ends.
    """

    __slots__ = ("_since_s", "action", "blocks", "dram_blocks", "dram_since_s", "ended", "entries", "forced",
                 "hold_block_s", "locked", "move", "node", "predicted_s", "private_blocks",
                 "private_tokens", "start_s", "tool",
                 "trajectory", "turn", "upto")

    def __init__(self, trajectory: int, turn: int, tool: str, node: Node | None, start_s: float) -> None:
        self.trajectory = trajectory
        self.turn = turn
        self.tool = tool
        self.node = node
        self.start_s = start_s
        self._since_s = start_s
        self.predicted_s = math.nan
        self.action = "release"
        self.private_tokens = 0
        #: Private blocks at its start, and those of them still in HBM.
        self.private_blocks = 0
        self.blocks = 0
        self.hold_block_s = 0.0
        self.locked = False
        self.upto = 0
        self.move: Move | None = None
        self.entries: list[tuple[Entry, int]] = []
        self.dram_blocks = 0
        self.dram_since_s = 0.0
        self.forced = False
        self.ended = False

    def lost(self, count: int, now_s: float) -> None:
        """Some of its blocks were freed."""
        self.settle(now_s)
        self.blocks = max(0, self.blocks - count)

    def settle(self, now_s: float) -> None:
        """Book the blocks held up to now."""
        if not self.ended:
            self.hold_block_s += self.blocks * (now_s - self._since_s)
        self._since_s = now_s


class Pauses:
    """The paused contexts of one replica.

    Parameters
    ----------
    policy, predictor
        Who decides, and who guesses the wait.
    host
        The node's DRAM tier; its capacity is 0 if the scenario has none.
    """

    def __init__(self, env: simpy.Environment, replica: Replica, kv: KvCache, link: Link, host: Host, cost: StepCost,
                 policy: Retention, predictor: Predictor, block_bytes: int, sink: Sink) -> None:
        self.env = env
        self.replica = replica
        self.kv = kv
        self.link = link
        self.host = host
        self.cost = cost
        self.policy = policy
        self.predictor = predictor
        self.block_bytes = block_bytes
        self.sink = sink
        #: Kept pauses in order of their start: the first is the first to be demoted.
        self.kept: dict[Pause, None] = {}
        #: Blocks on their way out.
        self.leaving = 0
        self.forced = 0
        self.offload_failures = 0
        #: Predictions made, the sum of their errors (expected less true wait) and of the errors' sizes, in seconds.
        self.predictions = 0
        self.error_s = self.absolute_error_s = 0.0

    def begin(self, trajectory: int, turn: int, tool: str, true_wait_s: float, node: Node | None, context_tokens: int,
              now_s: float) -> Pause:
        """A turn has ended and another follows: decide what becomes of its context."""
        pause = Pause(trajectory, turn, tool, node, now_s)
        if node is None:
            return pause
        part = self.kv.private_part(node)
        for owner, floor in part:
            pause.blocks += owner.end - floor
        tokens = pause.blocks * self.kv.pool.block_tokens
        pause.private_tokens = tokens if tokens < context_tokens else context_tokens
        pause.private_blocks = pause.blocks
        node.pause = pause
        if not part:
            return pause
        policy = self.policy
        if policy.needs_prediction:
            pause.predicted_s = self.predictor.expect(tool, true_wait_s)
        if policy.policy == "release":
            return pause
        pause.action = policy.decide(self._view(pause, part, context_tokens))
        if pause.action == "keep":
            self._lock(pause, now_s)
            self.kept[pause] = None
        elif pause.action == "drop":
            self.kv.drop(part, now_s)
        elif pause.action == "offload":
            self._offload(pause, part, now_s)
        return pause

    def end(self, pause: Pause, now_s: float) -> None:
        """The next turn is ready: book the pause. Its lock stays until `let_go`."""
        wait_s = now_s - pause.start_s
        self.predictor.observe(pause.tool, wait_s)
        if pause.predicted_s == pause.predicted_s:
            self.predictions += 1
            self.error_s += pause.predicted_s - wait_s
            self.absolute_error_s += abs(pause.predicted_s - wait_s)
        if pause.move is not None:
            self._cancel(pause, now_s)
        pause.settle(now_s)
        pause.ended = True
        node = pause.node
        if node is not None and node.pause is pause:
            node.pause = None
        hold_dram = pause.dram_blocks * self.block_bytes * (now_s - pause.dram_since_s) if pause.dram_blocks else 0.0
        self.sink.pause((
            pause.trajectory, pause.turn, self.replica.number, pause.tool, pause.start_s, now_s, pause.predicted_s,
            pause.action, pause.private_tokens, pause.private_blocks * self.block_bytes,
            pause.hold_block_s * self.block_bytes, hold_dram, pause.forced))

    def let_go(self, pause: Pause, now_s: float) -> None:
        """Undo what the pause pins."""
        if pause.locked:
            pause.locked = False
            self.kept.pop(pause, None)
            self.kv.tree.unlock(pause.node, pause.upto, False, now_s)

    def demote(self, now_s: float) -> bool:
        """Take the pin off the pause kept longest, because running turns need its blocks; False if there is none."""
        for pause in self.kept:
            pause.forced = True
            self.forced += 1
            self.let_go(pause, now_s)
            return True
        return False

    def _view(self, pause: Pause, part: PrivatePart, context_tokens: int) -> PauseView:
        moved = pause.blocks * self.block_bytes
        tree = self.kv.tree
        private = pause.private_tokens
        return PauseView(
            tool=pause.tool, private_tokens=private, private_bytes=moved, context_tokens=context_tokens,
            expected_wait_s=pause.predicted_s,
            recompute_s=self.cost.step(0, 0, ((private, context_tokens - private),)) if private else 0.0,
            reload_s=self.link.into.wait_s(moved, OFFLOAD), offload_s=self.link.out.wait_s(moved, OFFLOAD),
            free_fraction=(self.kv.pool.free + tree.dormant) / self.kv.pool.total,
            waiting=self.replica.admission.queue.count, dram_free_bytes=self.host.dram.room_blocks() * self.block_bytes)

    def _lock(self, pause: Pause, now_s: float) -> None:
        node = pause.node
        if node is not None:
            pause.upto = node.end
            self.kv.tree.lock(node, node.end, False, now_s)
            pause.locked = True

    def _offload(self, pause: Pause, part: PrivatePart, now_s: float) -> None:
        """Copy the private part out; its blocks become free when the copy has ended."""
        dram = self.host.dram
        copied = 0
        for node, floor in reversed(part):
            entry = dram.reserve(node.stream, floor, node.end, now_s)
            if entry is None:
                break
            copied += max(0, node.end - max(floor, entry.ready))
            pause.entries.append((entry, node.end))
        if len(pause.entries) < len(part):
            for entry, _ in pause.entries:
                dram.cancel(entry, now_s)
            pause.entries.clear()
            self.offload_failures += 1
            pause.action = "drop"
            self.kv.drop(part, now_s)
            return
        self._lock(pause, now_s)
        self.leaving += pause.blocks
        pause.move = self.link.out.submit(copied * self.block_bytes, OFFLOAD, self._moved, pause)

    def _moved(self, move: Move) -> None:
        pause: Pause = move.info
        now_s = self.env.now
        self.replica.before_change()
        self._record(move, now_s)
        pause.move = None
        self.leaving -= pause.blocks
        for entry, end in pause.entries:
            self.host.dram.copied(entry, end)
        pause.dram_blocks, pause.dram_since_s = pause.blocks, now_s
        self.let_go(pause, now_s)
        self.kv.drop(self.kv.private_part(pause.node), now_s)
        self.replica.kick()

    def _cancel(self, pause: Pause, now_s: float) -> None:
        move = pause.move
        if move is None:
            return
        self.replica.before_change()
        self.link.out.cancel(move)
        self._record(move, now_s)
        pause.move = None
        self.leaving -= pause.blocks
        for entry, _ in pause.entries:
            self.host.dram.cancel(entry, now_s)

    def _record(self, move: Move, now_s: float) -> None:
        start_s = move.start_s if move.start_s >= 0.0 else now_s
        self.sink.move((self.replica.number, move.info.trajectory, "offload", "hbm", "dram", int(move.bytes_total),
                        move.asked_s, start_s, now_s, move.cancelled))
