"""A replica whose sequences lie in contiguous buffers: static, growing, or of a buddy system.

The step loop is that of `Replica`. What differs is when memory is taken (a prompt's room at once, a larger buffer when
the old one is full) and what a step costs beside its arithmetic: copies within HBM and calls into the driver.
"""

from __future__ import annotations

from typing import Any

import simpy

from sim.engine.accounts import Accounts
from sim.engine.admission import Admission
from sim.engine.buffer_batch import BufferBatch
from sim.engine.cluster import Cluster
from sim.engine.job import NO_SEQUENCE, Job
from sim.engine.pauses import Pauses
from sim.engine.relief import Relief
from sim.engine.replica import Replica
from sim.memory.allocators.base import Segment
from sim.memory.buffer_cache import BufferCache
from sim.policies.schedule import Schedule
from sim.records import Sink
from sim.timing.base import Line, StepCost

#: More blocks than any pool has.
_PLENTY = 1 << 62


class BufferAdmission(Admission):
    """Admission of turns that need a buffer in one piece."""

    kv: BufferCache
    batch: BufferBatch

    def __init__(self, replica: Replica, headroom_blocks: int) -> None:
        super().__init__(replica, headroom_blocks)
        self.relief = BufferRelief(self)

    def enqueue(self, job: Job, now_s: float) -> bool:
        """Queue a turn; False if no buffer could ever hold it."""
        tokens = job.turn.prompt_tokens + job.turn.output_tokens
        if not self.kv.fits(tokens):
            cluster = self.replica.cluster
            cluster.longest_refused = max(cluster.longest_refused, tokens)
            return False
        return super().enqueue(job, now_s)

    def finish(self, job: Job, now_s: float) -> None:
        """A turn has given its last token: its context goes unless a pause keeps it."""
        super().finish(job, now_s)
        self.kv.settle(now_s)

    def admit(self, job: Job, room: int, now_s: float) -> bool:
        """Give a waiting turn a buffer for its prompt: the one kept for it, a copy of a branch's, or an empty one.

        What its trajectory has below HBM and the buffer lacks is loaded into it.
        """
        kv, turn, pauses = self.kv, job.turn, self.replica.pauses
        owner = job.session.trajectory.number
        limit = turn.prompt_tokens + turn.kept_output
        own = job.pause.node if job.pause is not None and job.pause.locked else None
        wanted = min(job.target - 1, limit)
        source, hit = kv.source(turn.stream, wanted, owner, own)
        in_place = own is not None and source is own
        tokens = job.target + 1
        if self.schedule.reserve == "prompt_and_output":
            tokens = turn.prompt_tokens + turn.output_tokens
        spare = self.headroom_blocks if self.running or pauses.kept else 0
        if not kv.can_open(tokens, source if in_place else None, spare):
            return False
        host = pauses.host
        found = [] if host.empty else host.cover(turn.stream, wanted, hit, owner)
        have = hit + sum(found)
        sequence = job.sequence = kv.open(turn.stream, limit, source, hit, now_s, owner, tokens=tokens,
                                          in_place=in_place)
        if job.pause is not None:
            pauses.let_go(job.pause, now_s)
            job.pause = None
        job.position = hit
        self.batch.slots += kv.room_left(sequence, job.target)
        if job.admitted_s < 0.0:
            self._first_admitted(job, hit, have, now_s)
            if have > hit:
                job.hit_below = tuple(found)
        if have > hit:
            self.reloads.start(job, have, found)
        else:
            self.begin_prefill(job)
        return True

    def leave(self, job: Job, now_s: float, *, finished: bool) -> Any:
        """Close a turn's sequence wherever it stands; return its context, if it has ended."""
        if job.state != Job.DECODE and job.sequence is not NO_SEQUENCE:
            self.batch.slots -= self.kv.room_left(job.sequence, job.target)
        return super().leave(job, now_s, finished=finished)


class BufferRelief(Relief):
    """What gives way when a decoding turn needs a larger buffer."""

    admission: BufferAdmission

    def secure_decode_step(self, now_s: float) -> None:
        """Give every turn whose buffer is full a larger one, preempting the newest turns if need be."""
        batch, kv = self.admission.batch, self.admission.kv
        while batch.next_growth <= batch.step:
            job = batch.first_full()
            position = batch.position(job)
            if kv.can_grow(job.sequence, position + 1):
                batch.grown(job, kv.extend(job.sequence, position))
            else:
                self.free_some(now_s)


class BufferAccounts(Accounts):
    """Ledgers of a replica with buffers: what is empty in those of running turns counts as tail waste."""

    def filled(self, tokens: int, elapsed_s: float) -> None:
        """`tokens` slots that were empty were filled one after another over the last `elapsed_s` seconds."""
        self.slots -= tokens * elapsed_s * 0.5


class BufferReplica(Replica):
    """The step loop of a replica with contiguous buffers; parameters as for `Replica`.

    Copies and driver calls are billed to the step that follows them, which is then a stretch of its own.
    """

    kv: BufferCache
    batch: BufferBatch
    accounts: BufferAccounts

    def __init__(self, env: simpy.Environment, cluster: Cluster, number: int, kv: BufferCache, cost: StepCost,
                 schedule: Schedule, sink: Sink, *, headroom_blocks: int = 0, **options: Any) -> None:
        super().__init__(env, cluster, number, kv, cost, schedule, sink, headroom_blocks=headroom_blocks, **options)
        self.batch = BufferBatch(kv)
        self.admission = BufferAdmission(self, headroom_blocks)
        #: Ask `decode_room` before each step, however much is free: room in a buffer is not room in the pool.
        self._promises = True
        #: Seconds by which the step about to start is longer.
        self._longer_s = 0.0

    def attach(self, pauses: Pauses) -> None:
        """Give the replica its pauses; must be called once before the first turn."""
        super().attach(pauses)
        self.accounts = BufferAccounts(self)

    def holds(self) -> str:
        """Return in words what the longest context is that the replica takes."""
        return f"the largest buffer of a replica holds {self.kv.longest():,} tokens"

    def blocks_freed(self) -> None:
        """A buffer was freed outside the step loop: the next step waits for the driver, a stretch may not run on."""
        if self.kv.due_s > 0.0:
            self.kick()
        else:
            super().blocks_freed()

    def blocks_taken(self) -> None:
        """A buffer was taken outside the step loop: likewise."""
        if self.kv.due_s > 0.0:
            self.kick()

    def decode_room(self) -> int:
        """Return nothing if a decoding turn needs a larger buffer before the next step, else plenty."""
        return 0 if self.batch.next_growth <= self.batch.step else _PLENTY

    def bring_up_to_date(self) -> None:
        """Tell the allocator how far the decoding turns have come."""
        for job in self.admission.running:
            if job.state == Job.DECODE:
                self.kv.wrote(job.sequence, self.batch.position(job))

    def extent(self) -> tuple[int, int, int]:
        """Return the token slots that are useful, that are taken, and that lie together in the largest hole."""
        self.bring_up_to_date()
        stats = self.kv.allocator.stats()
        return stats.useful, stats.allocated, max(stats.holes, default=0)

    def segments(self) -> list[Segment]:
        """Return what every part of the pool is used for; the owner of a buffer is its trajectory."""
        self.bring_up_to_date()
        return self.kv.segments()

    def _wake_after(self, delay_s: float) -> None:
        longer_s, self._longer_s = self._longer_s, 0.0
        super()._wake_after(delay_s + longer_s)

    def _plan(self, now_s: float) -> None:
        super()._plan(now_s)
        if self._steps == 0:
            self.kv.due_s = 0.0  # nothing runs: what it would have waited for passes meanwhile

    def _take_due(self) -> bool:
        """Let the step about to start take the copies and driver calls since the last one; False if there are none."""
        due_s, self.kv.due_s = self.kv.due_s, 0.0
        self._longer_s = self._copy_s = due_s
        return due_s > 0.0

    def _start_mixed_step(self) -> None:
        self._take_due()
        super()._start_mixed_step()

    def _start_stretch(self) -> None:
        stretches = self.stretches
        if self._take_due():
            self.stretches = False
        super()._start_stretch()
        self.stretches = stretches

    def _end_mixed_step(self, now_s: float) -> None:
        self.accounts.copy_s += self._copy_s
        if self._mixes:
            self.accounts.filled(self.batch.size, now_s - self._start_s)
        super()._end_mixed_step(now_s)

    def _end_stretch(self, now_s: float) -> None:
        elapsed_s, copy_s = now_s - self._start_s, self._copy_s
        self.accounts.filled(self._steps * self.batch.size, elapsed_s)
        if copy_s:
            self._copy_s = 0.0
            self._lines = (Line(elapsed_s, 0.0),)
            self.accounts.copy_s += copy_s
            self.accounts.decode_s -= copy_s
        super()._end_stretch(now_s)
