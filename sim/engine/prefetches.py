"""Offloaded contexts on their way back before their trajectory is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.alarm import Alarm
from sim.engine.pause import Pause
from sim.memory.kv_cache import Sequence
from sim.memory.links import PREFETCH, RELOAD
from sim.memory.prefix_tree import Node
from sim.memory.tiers import Entry
from workloads.trajectory import Stream, trunk

if TYPE_CHECKING:
    from sim.engine.job import Job
    from sim.engine.pauses import Pauses


class Prefetches:
    """Starts a copy back at a low quantile of the predicted wait, if there is room for it.

    Attributes
    ----------
    started, skipped, cancelled
        Copies begun, those not begun because too little of the pool was free, and those stopped because running turns
        needed their blocks.
    """

    __slots__ = ("_open", "cancelled", "pauses", "skipped", "started")

    def __init__(self, pauses: Pauses) -> None:
        self.pauses = pauses
        self.started = self.skipped = self.cancelled = 0
        self._open: dict[Pause, tuple[Sequence, int, int, list[tuple[int, Entry]]]] = {}

    def plan(self, pause: Pause) -> None:
        """A context has left HBM: set the time at which it starts to come back."""
        config = self.pauses.policy.prefetch
        if config is None or pause.wait is None:
            return
        at_s = pause.start_s + pause.wait.quantile(config.quantile)
        Alarm(self.pauses.env, max(0.0, at_s - self.pauses.env.now), self._start, pause)

    def join(self, pause: Pause, job: Job) -> bool:
        """A turn is ready whose context is on its way: it waits for the copy, now urgent. False if none is."""
        if pause.fetch is None:
            return False
        pause.joined = job
        job.state = job.JOINING
        job.replica = self.pauses.replica.number
        pause.fetch.promote(RELOAD)
        return True

    @property
    def awaited(self) -> bool:
        """Whether a turn waits for a copy under way."""
        return any(pause.joined is not None for pause in self._open)

    def give_up(self, now_s: float) -> bool:
        """Stop the copy begun last that no turn waits for: running turns need its blocks. False if there is none."""
        pauses = self.pauses
        for pause in reversed(self._open):
            if pause.joined is None and pause.fetch is not None:
                sequence, _, blocks, held = self._open.pop(pause)
                pause.fetch.cancel()
                pause.fetch = None
                pauses.transfers.let_go(held)
                pauses.replica.accounts.load(-blocks, now_s)
                pauses.kv.close(sequence, sequence.base, now_s, finished=False)
                self.cancelled += 1
                return True
        return False

    def _start(self, alarm: Alarm) -> None:
        pause = alarm.value
        pauses = self.pauses
        config = pauses.policy.prefetch
        if not isinstance(pause, Pause) or pause.ended or config is None:
            return
        kv = pauses.kv
        pool, now_s = kv.pool, pauses.env.now
        replica = pauses.replica
        replica.before_change(now_s)
        stream, tokens = pause.turn.stream, pause.context_tokens
        node, hit = self._match(pause)
        found = pauses.host.cover(stream, tokens, hit, pause.trajectory)
        blocks = sum(found)
        reach = (hit // pool.block_tokens + blocks) * pool.block_tokens
        limit = min(reach, tokens)
        if not blocks:
            return
        least = config.only_above_free * pool.total
        room = self._room(stream, limit, node, hit, blocks)
        if not replica.plenty(blocks) or room < least + replica.most_blocks:
            replica.take_begun(now_s)  # the steps under way have first claim on free blocks
            room = self._room(stream, limit, node, hit, blocks)
        if room < least:
            self.skipped += 1
            return
        self.started += 1
        sequence = self._claim(pause, limit, node, hit, now_s)
        kv.grow(sequence, reach, now_s)
        blocks = self._held(sequence, blocks)
        replica.accounts.load(blocks, now_s)
        held = pauses.transfers.hold(stream, reach, hit, pause.trajectory)
        self._open[pause] = (sequence, reach, blocks, held)
        pause.fetch = pauses.transfers.bring(found, "prefetch", pause.trajectory, PREFETCH,
                                             lambda: self._fetched(pause))
        replica.blocks_taken()

    def _claim(self, pause: Pause, limit: int, node: Node | None, hit: int, now_s: float) -> Sequence:
        """Return a sequence that holds the place of a context on its way back."""
        stream = trunk(pause.turn.stream, limit)  # only a beginning that others share may be back
        return self.pauses.kv.open(stream, limit, node, hit, now_s, pause.trajectory, running=False)

    def _keep(self, pause: Pause, sequence: Sequence, tokens: int, now_s: float) -> list[Node]:
        """The context is back: what held its place becomes the pause's pin. Return the nodes that have been filled."""
        nodes = self.pauses.kv.keep(sequence, tokens, now_s)
        pause.node, pause.upto, pause.locked = sequence.lock_node, sequence.lock_upto, True
        return nodes

    def _match(self, pause: Pause) -> tuple[Node | None, int]:
        """Return what HBM still has of a context, and its tokens."""
        return self.pauses.kv.match(pause.turn.stream, pause.context_tokens + 1)

    def _room(self, stream: Stream, limit: int, node: Node | None, hit: int, blocks: int) -> int:
        """Return the blocks that would be free or dormant, and promised to nobody, beside a context that came back."""
        pauses = self.pauses
        return pauses.kv.available(stream, limit, node, hit) - pauses.replica.admission.reserved - blocks

    def _held(self, sequence: Sequence, blocks: int) -> int:
        """Return the blocks of HBM that a copy of `blocks` blocks holds."""
        return blocks

    def _fetched(self, pause: Pause) -> None:
        """The context is back: pin it until the trajectory is, or hand it to the turn that waits for it."""
        pauses = self.pauses
        now_s = pauses.env.now
        pauses.replica.before_change(now_s)
        sequence, reach, blocks, held = self._open.pop(pause)
        pauses.transfers.let_go(held)
        pause.fetch = None
        pauses.replica.accounts.load(-blocks, now_s)
        nodes = self._keep(pause, sequence, reach, now_s)
        if pause.ended and (pause.joined is None or pause.joined.cancelled):
            pauses.let_go(pause, now_s)
            pauses.replica.blocks_freed()
            return
        pauses.kept[pause] = None
        job, pause.joined = pause.joined, None
        if job is not None:
            job.joined_s = now_s - job.ready_s
            if not pauses.replica.submit(job):
                pauses.replica.admission.refuse(job, now_s)
            return
        pause.regained(blocks, now_s)
        pause.watch(nodes)
        pauses.replica.blocks_freed()
