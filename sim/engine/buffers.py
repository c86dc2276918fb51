"""A replica whose sequences lie in contiguous buffers: static, growing, or of a buddy system.

The step loop is that of `Replica`. What differs is when memory is taken (a prompt's room at once, a larger buffer when
the old one is full) and what a step costs beside its arithmetic: copies within HBM and calls into the driver.
"""

from __future__ import annotations

from typing import Any

from sim.engine.admission import Admission
from sim.engine.buffer_batch import BufferBatch
from sim.engine.job import NO_SEQUENCE, Job
from sim.engine.relief import Relief
from sim.engine.replica import Replica
from sim.memory.allocators.base import Segment
from sim.memory.buffer_cache import BufferCache
from sim.timing.base import Line

#: More blocks than any pool has.
_PLENTY = 1 << 62


class BufferAdmission(Admission):
    """Admission of turns that need a buffer in one piece."""

    def __init__(self, replica: BufferReplica, headroom_blocks: int) -> None:
        super().__init__(replica, headroom_blocks)
        self.buffers = replica.buffers
        self.relief = BufferRelief(self, replica.buffers, replica.filling)

    def enqueue(self, job: Job, now_s: float) -> bool:
        """Queue a turn; False if no buffer could ever hold it."""
        tokens = job.turn.prompt_tokens + job.turn.output_tokens
        if not self.buffers.fits(tokens):
            cluster = self.replica.cluster
            cluster.longest_refused = max(cluster.longest_refused, tokens)
            return False
        return super().enqueue(job, now_s)

    def finish(self, job: Job, now_s: float) -> None:
        """A turn has given its last token: its context goes unless a pause keeps it."""
        super().finish(job, now_s)
        self.buffers.settle(now_s)

    def admit(self, job: Job, room: int, now_s: float) -> bool:
        """Give a waiting turn a buffer for its prompt: the one kept for it, a copy of a branch's, or an empty one.

        What its trajectory has below HBM and the buffer lacks is loaded into it.
        """
        kv, turn, pauses = self.buffers, job.turn, self.replica.pauses
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
            self.batch.slots -= self.buffers.room_left(job.sequence, job.target)
        return super().leave(job, now_s, finished=finished)


class BufferRelief(Relief):
    """What gives way when a decoding turn needs a larger buffer."""

    def __init__(self, admission: BufferAdmission, buffers: BufferCache, filling: BufferBatch) -> None:
        super().__init__(admission)
        self.buffers = buffers
        self.filling = filling

    def secure_decode_step(self, now_s: float) -> None:
        """Give every turn whose buffer is full a larger one, preempting the newest turns if need be."""
        batch, kv = self.filling, self.buffers
        while batch.next_growth <= batch.step:
            job = batch.first_full()
            position = batch.position(job)
            if kv.can_grow(job.sequence, position + 1):
                batch.grown(job, kv.extend(job.sequence, position))
            else:
                self.free_some(now_s)


class BufferReplica(Replica):
    """The step loop of a replica with contiguous buffers; parameters as for `Replica`.

    Copies and driver calls are billed to the step that follows them, which is then a stretch of its own. `buffers` and
    `filling` are its memory and its batch, as what they are.
    """

    def _equip(self, headroom_blocks: int) -> None:
        assert isinstance(self.kv, BufferCache)
        self.buffers = self.kv
        self.batch = self.filling = BufferBatch(self.buffers)
        self.admission = BufferAdmission(self, headroom_blocks)
        #: Ask `decode_room` before each step, however much is free: room in a buffer is not room in the pool.
        self._promises = True
        #: Seconds by which the step about to start is longer.
        self._longer_s = 0.0

    def holds(self) -> str:
        """Return in words what the longest context is that the replica takes."""
        return f"the largest buffer of a replica holds {self.buffers.longest():,} tokens"

    def blocks_freed(self) -> None:
        """A buffer was freed outside the step loop: the next step waits for the driver, a stretch may not run on."""
        if self.buffers.due_s > 0.0:
            self.kick()
        else:
            super().blocks_freed()

    def blocks_taken(self) -> None:
        """A buffer was taken outside the step loop: likewise."""
        if self.buffers.due_s > 0.0:
            self.kick()

    def decode_room(self) -> int:
        """Return nothing if a decoding turn needs a larger buffer before the next step, else plenty."""
        return 0 if self.filling.next_growth <= self.filling.step else _PLENTY

    def bring_up_to_date(self) -> None:
        """Tell the allocator how far the decoding turns have come."""
        for job in self.admission.running:
            if job.state == Job.DECODE:
                self.buffers.wrote(job.sequence, self.filling.position(job))

    def extent(self) -> tuple[int, int, int]:
        """Return the token slots that are useful, that are taken, and that lie together in the largest hole."""
        self.bring_up_to_date()
        stats = self.buffers.allocator.stats()
        return stats.useful, stats.allocated, max(stats.holes, default=0)

    def segments(self) -> list[Segment]:
        """Return what every part of the pool is used for; the owner of a buffer is its trajectory."""
        self.bring_up_to_date()
        return self.buffers.segments()

    def _wake_after(self, delay_s: float) -> None:
        longer_s, self._longer_s = self._longer_s, 0.0
        super()._wake_after(delay_s + longer_s)

    def _plan(self, now_s: float) -> None:
        super()._plan(now_s)
        if self._steps == 0:
            self.buffers.due_s = 0.0  # nothing runs: what it would have waited for passes meanwhile

    def _take_due(self) -> bool:
        """Let the step about to start take the copies and driver calls since the last one; False if there are none."""
        due_s, self.buffers.due_s = self.buffers.due_s, 0.0
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
