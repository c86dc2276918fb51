"""One serving replica: the step loop.

The loop is a chain of SimPy timeouts, each the end of a *stretch*: one step that holds prompt chunks, or as many decode
steps in a row as nothing disturbs. A stretch ends early, at the next step boundary, when something happens that the
scheduler must see: a turn arrives, a copy ends, a turn is cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import simpy

from sim.alarm import Alarm
from sim.engine import spaces
from sim.engine.accounts import Accounts
from sim.engine.admission import Admission
from sim.engine.batch import Batch
from sim.engine.job import Job
from sim.engine.pauses import Pauses
from sim.memory.allocators.base import Segment
from sim.memory.kv_cache import KvCache
from sim.policies.schedule import Schedule
from sim.records import Sink
from sim.timing.base import Line, StepCost, at, steps_until, stretch_s

if TYPE_CHECKING:
    from sim.engine.cluster import Cluster

#: Every so many stretches the term that bounds the step is looked up.
_BOUND_EVERY = 16


class Replica:
    """The step loop of one replica.

    Parameters
    ----------
    kv, cost, schedule
        Its memory, its step times, and what a step is made of.
    headroom_blocks
        Blocks that admissions leave free.
    low_blocks, high_blocks
        Watermarks: fewer free blocks than the first start eviction, which goes on up to the second.
    block_copy_s
        Seconds to copy a block within HBM (copy-on-write), added to the step that needs it.
    layers
        Layers of the model: a pipelined reload is one layer ahead of its turn.
    context_limit
        Longest context the model takes, in tokens; longer ones are served and counted.
    step_slowdown
        Share by which a step that begins while the host link copies takes longer.
    stretches
        False executes every step on its own (slower, same results; for tests).
    """

    def __init__(self, env: simpy.Environment, cluster: Cluster, number: int, kv: KvCache, cost: StepCost,
                 schedule: Schedule, sink: Sink, *, headroom_blocks: int = 0, low_blocks: int = 0,
                 high_blocks: int = 0, block_copy_s: float = 0.0, layers: int = 1,
                 context_limit: int = 1 << 62, step_slowdown: float = 0.0, stretches: bool = True) -> None:
        self.env = env
        self.cluster = cluster
        self.number = number
        self.kv = kv
        self.cost = cost
        self.schedule = schedule
        self.sink = sink
        self.low_blocks = low_blocks
        self.high_blocks = high_blocks
        self.block_copy_s = block_copy_s
        self.layers = layers
        self.context_limit = context_limit
        self.step_slowdown = step_slowdown
        self.stretches = stretches
        #: Whether free blocks may be promised to turns that are not decoding yet.
        self._promises = schedule.reserve == "prompt"
        self.batch: Batch
        self.admission: Admission
        self._equip(headroom_blocks)
        self.pauses: Pauses
        self.accounts: Accounts
        self.steps = 0
        #: Stretches executed.
        self.events = 0
        self.bound_s: dict[str, float] = {}
        #: Seconds so far that prompt chunks have added to steps while others were decoding.
        self.interference_s = 0.0
        self._chunks: list[tuple[Job, int]] = []
        self._decode_s = 0.0
        self._lines: tuple[Line, ...] = ()
        #: What is under way: nothing (0), a planning event (-1), or so many steps.
        self._steps = 0
        #: Blocks already taken for the steps under way.
        self._taken = 0
        #: No fewer than the blocks that the stretch under way takes in all.
        self.most_blocks = 0
        #: Copies of partly filled blocks billed so far; seconds of them in the step under way.
        self._copies = 0
        self._copy_s = 0.0
        self._start_s = 0.0
        self._timer: Alarm | None = None
        #: Whether it matters within a stretch when blocks are evicted.
        self._watches_evictions = low_blocks > 0
        self._reserves_output = schedule.reserve == "prompt_and_output"
        self._mixes = schedule.decodes_with_prefill

    def _equip(self, headroom_blocks: int) -> None:
        self.batch = Batch(self.kv.pool.block_tokens)
        self.admission = Admission(self, headroom_blocks)

    def attach(self, pauses: Pauses) -> None:
        """Give the replica its pauses; must be called once before the first turn."""
        self.pauses = pauses
        self.accounts = Accounts(self)
        self.admission.reloads.pipelined = pauses.policy.reload == "pipelined"
        writes = pauses.write_backs
        if writes is not None and writes.tier.capacity_blocks:
            self._watches_evictions = True
        if self.step_slowdown:
            pauses.transfers.link.watch = self.kick

    @property
    def load(self) -> int:
        """Turns running, loading or waiting."""
        admission = self.admission
        return len(admission.running) + admission.reloads.count + admission.queue.count

    def used_blocks(self, now_s: float) -> int:
        """Return the blocks that turns and kept pauses hold, those of the steps that have begun included."""
        kv, batch = self.kv, self.batch
        used = kv.pool.total - kv.pool.free - kv.tree.dormant
        if self._steps > 0 and not self._chunks and batch.size:
            begun = steps_until(self._lines, batch.context, batch.size, self._steps, now_s - self._start_s)
            used += max(0, batch.blocks_for(begun) - self._taken)
        return used

    def holds(self) -> str:
        """Return in words what the longest context is that the replica takes."""
        return f"the KV pool of a replica holds {self.kv.pool.total * self.kv.pool.block_tokens:,} tokens"

    def extent(self) -> tuple[int, int, int]:
        """Return the token slots that are useful, that are taken, and that lie together in the largest hole."""
        return spaces.extent(self)

    def segments(self) -> list[Segment]:
        """Return what every part of the pool is used for."""
        return spaces.segments(self)

    def submit(self, job: Job) -> bool:
        """Queue a turn that is ready; False if it could never fit in the pool."""
        if not self.admission.enqueue(job, self.env.now):
            return False
        self.kick()
        return True

    def cancel(self, job: Job) -> None:
        """Give up a turn, wherever it is; its blocks are free at the next step boundary."""
        self.admission.cancel(job)
        self.kick()

    def kick(self) -> None:
        """Something has changed: plan anew at the next step boundary, or now if idle."""
        steps = self._steps
        if steps == 0:
            self._steps = -1
            self._wake_after(0.0)
        elif steps > 1:
            batch = self.batch
            now_s = self.env.now
            begun = steps_until(self._lines, batch.context, batch.size, steps, now_s - self._start_s)
            if begun < steps:
                self._steps = begun
                left_s = self._start_s + stretch_s(self._lines, batch.context, batch.size, begun) - now_s
                self._wake_after(left_s if left_s > 0.0 else 0.0)

    def blocks_freed(self) -> None:
        """Blocks have become free outside the step loop, which only waiting turns care about."""
        if self.admission.queue.count:
            self.kick()

    def blocks_taken(self) -> None:
        """Blocks were taken outside the step loop: end the stretch under way early if it had counted on them."""
        if self._steps > 1 and not self.plenty() and (
                self._watches_evictions or self.batch.blocks_for(self._steps) - self._taken > self.decode_room()):
            self.kick()

    def before_change(self, now_s: float) -> None:
        """Blocks are about to change hands outside the step loop: first take those of the steps that have begun.

        Where there is plenty that changes nothing and waits for the end of the stretch.
        """
        self.accounts.advance(now_s)
        if not self.plenty():
            self.take_begun(now_s)

    def take_begun(self, now_s: float) -> None:
        """Take the blocks of the decode steps that have begun, evicting what is needed."""
        if self._steps > 0 and not self._chunks and self.batch.size:
            begun = steps_until(self._lines, self.batch.context, self.batch.size, self._steps, now_s - self._start_s)
            self.take_decode_blocks(begun, now_s)

    def plenty(self, blocks: int = 0) -> bool:
        """Return whether the stretch under way can neither run out of blocks nor start an eviction.

        Also if `blocks` blocks are taken beside it.
        """
        return not self._promises and self.most_blocks + blocks <= self.kv.pool.free + self._taken - self.low_blocks

    def take_decode_blocks(self, steps: int, now_s: float) -> None:
        """Take the blocks of the next `steps` steps that are not taken yet, evicting what is needed."""
        need = self.batch.blocks_for(steps) - self._taken
        if need > 0:
            self._taken += need
            self._take_blocks(need, now_s)

    def decode_room(self) -> int:
        """Return the blocks that decoding turns may take: free and dormant ones not promised to others."""
        room = self.kv.pool.free + self.kv.tree.dormant
        return room - self.admission.reserved if self._promises else room

    def withdraw(self, job: Job) -> None:
        """Take a decoding turn out of the batch before its last step."""
        self.batch.leave(job)
        sequence = job.sequence
        pool = self.kv.pool
        sequence.end = pool.blocks(job.position)
        if self._taken and job.position % pool.block_tokens == 0:
            self._taken -= 1
            sequence.end += 1

    def under_way(self, now_s: float) -> tuple[float, float]:
        """Return the seconds of the step or stretch under way that are spent: on prompt chunks, on decoding."""
        if self._steps <= 0:
            return 0.0, 0.0
        elapsed = now_s - self._start_s
        if not self._chunks:
            return 0.0, elapsed
        decode_s = min(elapsed, self._decode_s)
        return elapsed - decode_s, decode_s

    def low_on_blocks(self, now_s: float) -> None:
        """Evict up to the high watermark if the free blocks have fallen under the low one."""
        free = self.kv.pool.free
        if free < self.low_blocks:
            self.kv.tree.evict(self.high_blocks - free, now_s)

    # ---------------------------------------------------------------- the loop

    def _wake_after(self, delay_s: float) -> None:
        self._timer = Alarm(self.env, delay_s, self._boundary)

    def _boundary(self, alarm: Alarm) -> None:
        """End what is under way and plan what comes next."""
        if alarm is not self._timer:
            return
        now_s = self.env.now
        accounts = self.accounts
        accounts.advance(now_s)
        if self._steps > 0:
            self.events += 1
            if self._chunks:
                self._end_mixed_step(now_s)
            else:
                self._end_stretch(now_s)
        self._steps = 0
        if now_s >= accounts.next_sample_s:
            accounts.sample(now_s)
        self._plan(now_s)

    def _end_stretch(self, now_s: float) -> None:
        batch, steps, accounts = self.batch, self._steps, self.accounts
        size, context = batch.size, batch.context
        elapsed = now_s - self._start_s
        need = batch.advance(steps) - self._taken
        self._taken = 0
        if need > 0:
            unpromised = max(0, self.kv.pool.free - self.admission.reserved)
            accounts.grown(need if need < unpromised else unpromised, elapsed)
            self._take_blocks(need, now_s)
        accounts.decode_s += elapsed
        self.steps += steps
        accounts.latencies.stretch(self._lines, context, size, steps)

    def _end_mixed_step(self, now_s: float) -> None:
        accounts, batch, chunks = self.accounts, self.batch, self._chunks
        self._chunks = []
        elapsed = now_s - self._start_s
        self.steps += 1
        accounts.latencies.prompts(elapsed, batch.size, decoding=self._mixes)
        if batch.size:
            if self._mixes:
                batch.advance(1)
                self._taken = 0
                accounts.decode_s += self._decode_s
                elapsed -= self._decode_s
            self.interference_s += elapsed
        if self._copy_s:
            elapsed -= self._copy_s
            self._copy_s = 0.0
        again = self.admission.chunks_done(chunks, now_s)
        accounts.recompute_s += elapsed * again
        accounts.prefill_s += elapsed * (1.0 - again)

    def _plan(self, now_s: float) -> None:
        """Let finished turns go, admit waiting ones, and start the next stretch."""
        batch, admission = self.batch, self.admission
        while batch.next_step <= batch.step:
            job = batch.pop_finished()
            job.sequence.end = -(-job.position // batch.block_tokens)
            admission.finish(job, now_s)
        if admission.cancelled:
            admission.drop_cancelled(now_s)
        if admission.held_back:
            admission.release_held(now_s)
        if (batch.size > self.kv.pool.free or self._promises) and batch.size > self.decode_room():
            admission.relief.secure_decode_step(now_s)
        if admission.queue.count or admission.prefills:
            if self._mixes and batch.size:
                self.take_decode_blocks(1, now_s)
            self._chunks = admission.pick_chunks(now_s)
            if not (self._chunks or self._mixes):
                admission.relief.secure_decode_step(now_s)  # a reload may have taken what the next step needs
        elif admission.pressure.blocked:
            admission.pressure.mark(False, now_s)
            admission.resting = False
        self._start_s = now_s
        if self._chunks:
            self._start_mixed_step()
        elif batch.size:
            self._start_stretch()
        else:
            self._steps = 0
            if admission.queue.count and admission.relief.unblock(now_s):
                self.kick()

    def _start_stretch(self) -> None:
        batch = self.batch
        size, context = batch.size, batch.context
        lines = self.cost.decode_lines(size)
        if self.step_slowdown:
            slower = self._slower()
            lines = tuple(Line(base_s * slower, slope_s * slower) for base_s, slope_s in lines)
        self._lines = lines
        steps = batch.next_step - batch.step if self.stretches and not self.admission.resting else 1
        self.most_blocks = size * (steps // batch.block_tokens + 1)
        if steps > 1 and not self.plenty():
            steps = self._steps_in_room(steps)
        self._steps = steps
        delay_s = stretch_s(lines, context, size, steps)
        if self.events % _BOUND_EVERY == 0:
            bound = self.cost.bound(size, context)
            self.bound_s[bound] = self.bound_s.get(bound, 0.0) + delay_s
        self._wake_after(delay_s)

    def _steps_in_room(self, most: int) -> int:
        """Return the steps, at most `most`, that have blocks.

        Where it matters when blocks are evicted (to a watermark, or while copies of them are under way), none but the
        last of them starts an eviction.
        """
        batch = self.batch
        steps = batch.steps_within(self.decode_room() + self._taken, most)
        if not self._watches_evictions or not self.kv.tree.dormant:
            return steps
        slack = self.kv.pool.free + self._taken - self.low_blocks
        if batch.blocks_for(1) > slack:
            return 1
        within = batch.steps_within(slack, steps)
        if self._mixes and (self.admission.queue.count or self.admission.prefills):
            return within  # a step's blocks are then taken as it begins (`_plan`), so the next one evicts at its start
        return min(steps, within + 1)

    def _start_mixed_step(self) -> None:
        batch = self.batch
        shapes = [(new, job.position) for job, new in self._chunks]
        decoding = context = 0
        self._decode_s = 0.0
        if self._mixes and batch.size:
            decoding, context = batch.size, batch.context
            self._decode_s = at(self.cost.decode_lines(decoding), context)
        delay_s = self.cost.step(decoding, context, shapes)
        if self.step_slowdown:
            delay_s *= self._slower()
            self._decode_s *= self._slower()
        copies = self.kv.copies - self._copies
        if copies:
            self._copies += copies
            copy_s = copies * self.block_copy_s
            self.accounts.copy_s += copy_s
            self._copy_s = copy_s
            delay_s += copy_s
        self._steps = 1
        if self.events % _BOUND_EVERY == 0:
            bound = self.cost.bound(decoding, context, shapes)
            self.bound_s[bound] = self.bound_s.get(bound, 0.0) + delay_s
        self._wake_after(delay_s)

    def _slower(self) -> float:
        """Return how much longer a step takes that begins now, because the host link copies."""
        return 1.0 + self.step_slowdown if self.pauses.transfers.link.busy else 1.0

    def _take_blocks(self, need: int, now_s: float) -> None:
        pool = self.kv.pool
        if need > pool.free:
            self.kv.tree.evict(need - pool.free, now_s)
        pool.take(need)
        if self._reserves_output:
            self.admission.reserved -= need
        if pool.free < self.low_blocks:
            self.low_on_blocks(now_s)
