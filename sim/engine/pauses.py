"""What becomes of a context while its trajectory waits: the decision, and carrying it out.

One `Pauses` a replica. A pause begins when a turn ends with another to follow, asks the retention policy, and then
keeps (a lock), releases, drops or offloads (a transfer to a lower tier) what no one else uses. An offloaded context may
be fetched back ahead of time. A pause ends when the next turn is ready; what it pins is let go when that turn is
admitted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import simpy

from sim.alarm import Alarm
from sim.engine.pause import Pause
from sim.engine.prefetches import Prefetches
from sim.engine.transfers import Transfers
from sim.engine.write_backs import WriteBacks, Writes
from sim.memory.kv_cache import KvCache, PrivatePart
from sim.memory.links import OFFLOAD
from sim.memory.prefix_tree import Node
from sim.memory.tiers import Piece
from sim.policies.prediction import Predictor, Wait
from sim.policies.retention import PauseView, Retention, TierView
from sim.policies.retention.base import UNSEEN
from sim.records import TIERS, Sink
from sim.timing.base import StepCost
from workloads.trajectory import Turn

if TYPE_CHECKING:
    from sim.engine.replica import Replica

#: What a pause holds below HBM if it has not left it.
_NOTHING = (0.0,) * len(TIERS)


class Pauses:
    """The paused contexts of one replica.

    Parameters
    ----------
    policy, predictor
        Who decides, and who guesses the wait.
    transfers
        The replica's way to the tiers below HBM.
    writes
        When contexts are written to DRAM without the policy's asking: as soon as a turn has computed them, so that
        dropping them loses nothing, or ahead of their eviction.
    """

    def __init__(self, env: simpy.Environment, replica: Replica, kv: KvCache, transfers: Transfers, cost: StepCost,
                 policy: Retention, predictor: Predictor, sink: Sink, *, writes: Writes | None = None) -> None:
        self.env = env
        self.replica = replica
        self.kv = kv
        self.transfers = transfers
        self.host = transfers.host
        self.cost = cost
        self.policy = policy
        self.predictor = predictor
        self.block_bytes = transfers.block_bytes
        self._pool_bytes = float(kv.pool.total * self.block_bytes)
        self._token_bytes = self.block_bytes / kv.pool.block_tokens
        self.sink = sink
        self.writes = writes or Writes()
        self.write_through = self.writes.when == "on_compute"
        self.write_backs = WriteBacks(self) if self.writes.when != "on_pause" else None
        self.prefetches = self._prefetching()
        #: Kept pauses in order of their start: the first is the first to be demoted.
        self.kept: dict[Pause, None] = {}
        self.forced = 0
        self.expired = 0
        self.offload_failures = 0
        #: Predictions made, the sum of their errors (expected less true wait) and of the errors' sizes, in seconds.
        self.predictions = 0
        self.error_s = self.absolute_error_s = 0.0
        #: Whether anybody wants to know how long a pause will be.
        self._predicts = policy.sees != "nothing" or policy.prefetch is not None or self.write_through

    def _prefetching(self) -> Prefetches:
        """Return what brings contexts back ahead of time."""
        return Prefetches(self)

    def begin(self, trajectory: int, turn: Turn, heir: Turn, node: Node | None, context_tokens: int,
              now_s: float) -> Pause:
        """A turn has ended and `heir` follows: decide what becomes of its context."""
        pause = Pause(trajectory, turn, heir, node, context_tokens, now_s)
        if node is None:
            return pause
        part = self.kv.private_part(node, trajectory)
        for owner, floor in part:
            pause.blocks += owner.end - floor
        tokens = pause.blocks * self.kv.pool.block_tokens
        pause.private_tokens = tokens if tokens < context_tokens else context_tokens
        pause.private_blocks = pause.blocks
        pause.watch([owner for owner, _ in part])
        if not part:
            return pause
        policy = self.policy
        if not self._predicts:
            if policy.policy == "release":
                return pause
            decision = policy.decide(UNSEEN)
        else:
            wait = self.predictor.predict(heir.tool, heir.wait_s)
            pause.predicted_s = wait.mean()
            pause.wait = wait
            if self.write_through:
                written = self.writes.part(part, turn, self.kv.pool.block_tokens)
                self._send(pause, _pieces(written), "dram", now_s)
            decision = policy.decide(self._view(pause, wait))
        pause.action = decision.action
        if decision.action == "keep":
            self._keep(pause, decision.ttl_s, now_s)
        elif decision.action == "drop":
            if pause.transfer is None:
                self.kv.drop(part, now_s)
        elif decision.action == "offload":
            if pause.transfer is None and not self._send(pause, self._whole(part), decision.tier, now_s):
                self.offload_failures += 1
                pause.action = "drop"
                self.kv.drop(part, now_s)
            pause.frees = pause.transfer is not None
        return pause

    def end(self, pause: Pause, now_s: float) -> None:
        """The next turn is ready: book the pause. Its lock stays until `let_go`."""
        wait_s = now_s - pause.start_s
        if self._predicts:
            self.predictor.observe(pause.tool, wait_s)
        if pause.predicted_s == pause.predicted_s:
            self.predictions += 1
            self.error_s += pause.predicted_s - wait_s
            self.absolute_error_s += abs(pause.predicted_s - wait_s)
        if pause.transfer is not None and pause.frees:
            self._cancel(pause, now_s)
        pause.settle(now_s)
        pause.ended = True
        pause.unwatch()
        size = self.block_bytes
        below = pause.below_blocks * size * (now_s - pause.below_since_s) if pause.below_blocks else 0.0
        self.sink.pause((
            pause.trajectory, pause.turn.index, self.replica.number, pause.tool, pause.start_s, now_s,
            pause.predicted_s, pause.action, pause.private_tokens, pause.private_blocks * size,
            pause.hold_block_s * size,
            *([below if pause.tier == name else 0.0 for name in TIERS] if below else _NOTHING), pause.forced))

    def let_go(self, pause: Pause, now_s: float) -> None:
        """Undo what the pause pins, unless a copy of it is under way: then when that ends.

        Outside the step loop, time up to now is to be booked before (`abandon` does, and a copy's end).
        """
        if pause.locked and pause.transfer is None:
            pause.locked = False
            self.kept.pop(pause, None)
            self.kv.tree.unlock(pause.node, pause.upto, False, now_s)

    def abandon(self, pause: Pause, now_s: float) -> None:
        """The next turn goes elsewhere, or there is none: let go what the pause pins."""
        self.replica.accounts.advance(now_s)
        self.let_go(pause, now_s)
        self.replica.blocks_freed()

    def pin(self, pause: Pause, now_s: float) -> None:
        """Pin the pause's context in HBM."""
        node = pause.node
        if node is not None and not pause.locked:
            pause.upto = node.end
            self.kv.tree.lock(node, node.end, False, now_s)
            pause.locked = True

    def demote(self, now_s: float) -> bool:
        """Take the pin off the pause kept longest, because running turns need its blocks; False if there is none."""
        for pause in self.kept:
            if pause.transfer is None:
                self.force(pause, now_s)
                return True
        return False

    def force(self, pause: Pause, now_s: float) -> None:
        """Take the pin off a pause against the policy's will."""
        pause.forced = True
        self.forced += 1
        self.let_go(pause, now_s)

    def _keep(self, pause: Pause, ttl_s: float, now_s: float) -> None:
        self.pin(pause, now_s)
        self.kept[pause] = None
        if ttl_s < float("inf"):
            Alarm(self.env, ttl_s, self._expire, pause)

    def _expire(self, alarm: Alarm) -> None:
        pause = alarm.value
        if isinstance(pause, Pause) and pause.locked and not pause.ended:
            now_s = self.env.now
            self.replica.before_change(now_s)
            self.expired += 1
            self.let_go(pause, now_s)
            self.replica.blocks_freed()

    def _whole(self, part: PrivatePart) -> list[Piece]:
        """Return what an offload of a private part stores, from its beginning on."""
        return _pieces([(node, floor, node.end) for node, floor in part])

    def _moved(self, pause: Pause) -> int:
        """Return the blocks that an offload of a context moves."""
        return pause.blocks

    def _view(self, pause: Pause, wait: Wait) -> PauseView:
        """Return what the policy sees of a pause."""
        block_bytes = self.block_bytes
        moved = float(self._moved(pause) * block_bytes)
        private, context = pause.private_tokens, pause.context_tokens
        if self.policy.sees == "room":
            rooms = {TIERS[index]: TierView(float(tier.room_blocks() * block_bytes), math.nan, math.nan)
                     for index, tier in self.host.stores}
            return PauseView(pause.tool, wait, private, float(pause.blocks * block_bytes), moved, context,
                             context * self._token_bytes, math.nan, math.nan, self._pool_bytes, math.nan, 0, math.nan,
                             rooms)
        tiers: dict[str, TierView] = {}
        for index, tier in self.host.stores:
            out_s, back_s = self.transfers.time_s(TIERS[index], moved, OFFLOAD)
            tiers[TIERS[index]] = TierView(float(tier.room_blocks() * block_bytes), out_s, back_s)
        kv, admission = self.kv, self.replica.admission
        return PauseView(
            tool=pause.tool, wait=wait, private_tokens=private, private_bytes=float(pause.blocks * block_bytes),
            moved_bytes=moved, context_tokens=context, context_bytes=context * self._token_bytes,
            batch_bytes=self.replica.batch.context * self._token_bytes,
            recompute_s=self.cost.step(0, 0, ((private, context - private),)) if private else 0.0,
            pool_bytes=self._pool_bytes, free_fraction=(kv.pool.free + kv.tree.dormant) / kv.pool.total,
            waiting=admission.queue.count, blocked_share=admission.pressure.share(self.env.now), tiers=tiers)

    def _send(self, pause: Pause, pieces: list[Piece], name: str, now_s: float) -> bool:
        """Copy pieces of a context to a tier; False if there are none or it has no room for them."""
        tier = self.host.tier(name)
        copied = 0
        for place, first, end, shared in pieces:
            entry = tier.reserve(place, first, end, now_s, owner=pause.trajectory, shared=shared)
            if entry is None:
                break
            copied += max(0, end - max(first, entry.ready))
            pause.entries.append((entry, first, end))
        if not pieces or len(pause.entries) < len(pieces):
            for entry, _, _ in pause.entries:
                tier.cancel(entry, now_s)
            pause.entries.clear()
            return False
        self.pin(pause, now_s)
        pause.tier = name
        pause.leaving = pause.blocks
        self.replica.accounts.leaving += pause.leaving
        pause.transfer = self.transfers.send(name, copied, "offload", pause.trajectory, OFFLOAD,
                                             lambda: self._sent(pause))
        self.host.overflow(now_s)
        return True

    def _sent(self, pause: Pause) -> None:
        """The copy has ended: only now are its blocks free, if the pause gives them up."""
        now_s = self.env.now
        self.replica.before_change(now_s)
        self._end_send(pause)
        tier = self.host.tier(pause.tier)
        blocks = 0
        for entry, floor, end in pause.entries:
            tier.copied(entry, end, now_s)
            blocks += end - floor
        if not pause.ended:
            pause.below_blocks, pause.below_since_s = blocks, now_s
        if pause not in self.kept or pause.ended:
            self.let_go(pause, now_s)
            if not pause.ended and (pause.frees or pause.action == "drop"):
                self.kv.drop(self.kv.private_part(pause.node, pause.trajectory), now_s)
                pause.lost(pause.blocks, now_s)  # what others have begun to use meanwhile is theirs now
        self.replica.blocks_freed()
        if pause.frees and not pause.ended:
            self.prefetches.plan(pause)

    def _cancel(self, pause: Pause, now_s: float) -> None:
        """The trajectory is back before its context has gone: it stays."""
        self.replica.before_change(now_s)
        if pause.transfer is not None:
            pause.transfer.cancel()
        self._end_send(pause)
        tier = self.host.tier(pause.tier)
        for entry, _, _ in pause.entries:
            tier.cancel(entry, now_s)
        self.kept[pause] = None

    def _end_send(self, pause: Pause) -> None:
        pause.transfer = None
        self.replica.accounts.leaving -= pause.leaving
        pause.leaving = 0


def _pieces(part: list[tuple[Node, int, int]]) -> list[Piece]:
    """Return blocks ``[first, end)`` of nodes, given deepest first, as pieces from the beginning on."""
    return [(node.stream, first, end, node.shared) for node, first, end in reversed(part)]
