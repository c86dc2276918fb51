"""One serving replica: a queue, a batch, and the step loop over them.

The loop is a chain of SimPy timeouts, each the end of a *stretch*: one step that holds prompt chunks, or as many decode
steps in a row as nothing disturbs. A stretch ends early, at the next step boundary, when something happens that the
scheduler must see: a turn arrives, a copy ends, a turn is cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import simpy

from sim.engine.accounts import Accounts
from sim.engine.batch import Batch
from sim.engine.job import Job
from sim.engine.pauses import Pause, Pauses
from sim.engine.queue import WaitingQueue
from sim.memory.kv_cache import KvCache, ceiling
from sim.memory.links import RELOAD, Move
from sim.policies.schedule import Schedule
from sim.records import Sink
from sim.timing.base import Line, StepCost, at, steps_until, stretch_s
from workloads.trajectory import Turn

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
    stretches
        False executes every step on its own (slower, same results; for tests).
    """

    def __init__(self, env: simpy.Environment, cluster: Cluster, number: int, kv: KvCache, cost: StepCost,
                 schedule: Schedule, sink: Sink, *, headroom_blocks: int = 0, low_blocks: int = 0,
                 high_blocks: int = 0, stretches: bool = True) -> None:
        self.env = env
        self.cluster = cluster
        self.number = number
        self.kv = kv
        self.cost = cost
        self.schedule = schedule
        self.sink = sink
        self.headroom_blocks = headroom_blocks
        self.low_blocks = low_blocks
        self.high_blocks = high_blocks
        self.stretches = stretches
        self.batch = Batch(kv.pool.block_tokens)
        self.queue = WaitingQueue(schedule, kv)
        self.prefills: list[Job] = []
        #: Admitted turns in prefill or decode, in order of admission: the last is the first to be preempted.
        self.running: dict[Job, None] = {}
        self.prefill_context = 0
        self.loading = 0
        self.loading_blocks = 0
        #: Blocks promised to admitted turns and not yet taken.
        self.reserved = 0
        self.pauses: Pauses
        self.accounts: Accounts
        self.preemptions = self.rejections = self.deadlocks = 0
        self.steps = 0
        self.bound_s: dict[str, float] = {}
        #: Seconds so far that prompt chunks have added to steps in which others were decoding.
        self.interference_s = 0.0
        self._cancelled: list[Job] = []
        self._chunks: list[tuple[Job, int]] = []
        self._chunk_s = 0.0
        self._decode_s = 0.0
        self._stall_s = 0.0
        self._lines: tuple[Line, ...] = ()
        #: What is under way: nothing (0), a planning event (-1), or so many steps.
        self._steps = 0
        self._taken = 0
        self._start_s = 0.0
        self._timer = 0
        self._blocked = False
        self._blocked_s = 0.0
        self._blocked_since_s = 0.0
        self._stretches = 0

    def attach(self, pauses: Pauses) -> None:
        """Give the replica its pauses; must be called once before the first turn."""
        self.pauses = pauses
        self.accounts = Accounts(self)

    @property
    def waiting_count(self) -> int:
        """Turns in the queue."""
        return len(self.queue)

    @property
    def load(self) -> int:
        """Turns running, loading or waiting."""
        return len(self.running) + self.loading + len(self.queue)

    # ---------------------------------------------------------------- from outside

    def submit(self, job: Job) -> bool:
        """Queue a turn that is ready; False if it could never fit in the pool."""
        turn = job.turn
        if self.kv.pool.blocks(turn.prompt_tokens + turn.output_tokens) > self.kv.pool.total:
            return False
        job.replica = self.number
        job.blocked_mark_s = self.blocked_until(self.env.now)
        self.queue.push(job)
        self.kick()
        return True

    def refuse(self, job: Job, now_s: float) -> None:
        """Reject a turn that `submit` would not take."""
        job.replica = self.number
        job.state = Job.ENDED
        self.rejections += 1
        if job.pause is not None:
            self.pauses.let_go(job.pause, now_s)
        job.session.turn_dropped(job, now_s, "rejected")

    def end_pause(self, pause: Pause, turn: Turn, now_s: float) -> None:
        """The turn that ends a pause is ready: book the pause with what is found of its context."""
        back = dram = 0
        if pause.node is not None:
            _, back = self.kv.match(turn.stream, turn.prompt_tokens)
            tier = self.pauses.host.dram
            if tier.entries:
                dram = tier.find(turn.stream, turn.prompt_tokens - 1, back, self.kv.pool.block_tokens) - back
        self.pauses.end(pause, back, dram, now_s)

    def cancel(self, job: Job) -> None:
        """Give up a turn, wherever it is; its blocks are free at the next step boundary."""
        job.cancelled = True
        if job.state == Job.WAITING:
            self.queue.forget(job)
        self._cancelled.append(job)
        self.kick()

    def kick(self) -> None:
        """Something has changed: plan anew at the next step boundary, or now if idle."""
        if self._steps == 0:
            self._steps = -1
            self._wake_after(0.0)
        elif self._steps > 1:
            steps = steps_until(self._lines, self.batch.context, self.batch.size, self._steps,
                                self.env.now - self._start_s)
            if steps < self._steps:
                self._steps = steps
                end_s = self._start_s + stretch_s(self._lines, self.batch.context, self.batch.size, steps)
                self._wake_after(max(0.0, end_s - self.env.now))

    def before_change(self) -> None:
        """Blocks are about to be freed by a copy's end: first take those of the steps that have begun."""
        now_s = self.env.now
        self.accounts.advance(now_s)
        if self._steps > 0 and not self._chunks and self.batch.size:
            begun = steps_until(self._lines, self.batch.context, self.batch.size, self._steps, now_s - self._start_s)
            self._take_decode_blocks(begun, now_s)

    def blocked_until(self, now_s: float) -> float:
        """Return the seconds so far during which the head of the queue lacked blocks."""
        return self._blocked_s + (now_s - self._blocked_since_s if self._blocked else 0.0)

    # ---------------------------------------------------------------- the loop

    def _wake_after(self, delay_s: float) -> None:
        self._timer += 1
        timeout = self.env.timeout(delay_s, self._timer)
        timeout.callbacks.append(self._boundary)

    def _boundary(self, event: simpy.Event) -> None:
        """End what is under way and plan what comes next."""
        if event.value != self._timer:
            return
        now_s = self.env.now
        self.accounts.advance(now_s)
        if self._steps > 0:
            if self._chunks:
                self._end_mixed_step(now_s)
            else:
                self._end_stretch(now_s)
        self._steps = 0
        self._plan(now_s)

    def _end_stretch(self, now_s: float) -> None:
        batch, steps, lines = self.batch, self._steps, self._lines
        size, context = batch.size, batch.context
        elapsed = now_s - self._start_s
        free = self.kv.pool.free
        self._take_decode_blocks(steps, now_s)
        self.accounts.grown(free - self.kv.pool.free, elapsed)
        batch.advance(steps)
        self._taken = 0
        self.accounts.decode_s += elapsed
        latencies = self.accounts.latencies
        first_s = at(lines, context)
        if self._stall_s > 0.0:
            latencies.add(first_s + self._stall_s, 0, size)
            self._stall_s = 0.0
            latencies.add(first_s, 1, 0)
            steps -= 1
            first_s = at(lines, context + size)
        if steps:
            latencies.add_rising(first_s, at(lines, context + size * (self._steps - 1)), steps, size)
        self.steps += self._steps

    def _end_mixed_step(self, now_s: float) -> None:
        accounts, batch = self.accounts, self.batch
        elapsed = now_s - self._start_s
        self.steps += 1
        decodes = batch.size and self.schedule.decodes_with_prefill
        if decodes:
            batch.advance(1)
            self._taken = 0
            accounts.latencies.add(elapsed + self._stall_s, 1, batch.size)
            self._stall_s = 0.0
        else:
            accounts.latencies.add(elapsed, 1, 0)
            if batch.size:
                self._stall_s += elapsed
        extra = elapsed - self._decode_s
        accounts.decode_s += self._decode_s
        if batch.size:
            self.interference_s += extra
        tokens = again = 0.0
        done = []
        for job, new in self._chunks:
            tokens += new
            if job.recomputed:
                again += new * job.recomputed / (job.turn.prompt_tokens - job.hit_hbm - job.hit_dram)
            job.position += new
            self.prefill_context += new
            if job.position >= job.target:
                done.append(job)
            if job.sequence is not None:
                self.kv.commit(job.sequence, job.position)
        again = min(again, tokens)
        accounts.recompute_s += extra * again / tokens
        accounts.prefill_s += extra * (1.0 - again / tokens)
        self._chunks = []
        for job in done:
            self._first_token(job, now_s)

    def _first_token(self, job: Job, now_s: float) -> None:
        """A prefill is complete: it gives a token, and the turn decodes on or ends."""
        self.prefills.remove(job)
        self.prefill_context -= job.position
        job.generated += 1
        if job.preempted_s >= 0.0:
            job.lost_s += now_s - job.preempted_s
            self.accounts.latencies.add(now_s - job.preempted_s, 0, 1 if job.first_s >= 0.0 else 0)
            job.preempted_s = -1.0
        if job.first_s < 0.0:
            job.first_s = now_s
            job.lost_before_s = job.lost_s
        job.interference_mark_s = self.interference_s
        if job.generated >= job.turn.output_tokens:
            self._finish(job, now_s)
        else:
            job.state = Job.DECODE
            self.batch.join(job)

    def _plan(self, now_s: float) -> None:
        """Let finished turns go, admit waiting ones, and start the next stretch."""
        batch = self.batch
        while (job := batch.pop_finished()) is not None:
            batch.leave(job)
            if job.sequence is not None:
                job.sequence.end = self.kv.pool.blocks(job.position)
            self._finish(job, now_s)
        if self._cancelled:
            self._drop_cancelled(now_s)
        if batch.size:
            self._secure_decode_step(now_s)
        chunks = self._chunks = self._pick_chunks(now_s)
        self._start_s = now_s
        if chunks:
            self._start_mixed_step(now_s)
        elif batch.size:
            self._start_stretch()
        else:
            self._steps = 0
            if len(self.queue) and not self.loading and self.pauses.leaving == 0 and self._unblock(now_s):
                self.kick()

    def _start_stretch(self) -> None:
        batch = self.batch
        lines = self._lines = self.cost.decode_lines(batch.size)
        steps = batch.next_finish() - batch.step if self.stretches else 1
        steps = self._steps = max(1, batch.steps_within(self._decode_room(), steps))
        delay_s = stretch_s(lines, batch.context, batch.size, steps)
        self._stretches += 1
        if self._stretches % _BOUND_EVERY == 0:
            bound = self.cost.bound(batch.size, batch.context)
            self.bound_s[bound] = self.bound_s.get(bound, 0.0) + delay_s
        self._wake_after(delay_s)

    def _start_mixed_step(self, now_s: float) -> None:
        batch = self.batch
        shapes = [(new, job.position) for job, new in self._chunks]
        decoding = batch.size if self.schedule.decodes_with_prefill else 0
        context = batch.context if decoding else 0
        delay_s = self.cost.step(decoding, context, shapes)
        self._decode_s = at(self.cost.decode_lines(decoding), context) if decoding else 0.0
        self._steps = 1
        self._stretches += 1
        if self._stretches % _BOUND_EVERY == 0:
            bound = self.cost.bound(decoding, context, shapes)
            self.bound_s[bound] = self.bound_s.get(bound, 0.0) + delay_s
        self._wake_after(delay_s)

    def _take_decode_blocks(self, steps: int, now_s: float) -> None:
        """Take the blocks of the next `steps` steps that are not taken yet, evicting what is needed."""
        need = self.batch.blocks_for(steps) - self._taken
        if need <= 0:
            return
        self._taken += need
        pool = self.kv.pool
        if need > pool.free:
            self.kv.tree.evict(need - pool.free, now_s)
        pool.take(need)
        if self.schedule.reserve == "prompt_and_output":
            self.reserved -= need
        if pool.free < self.low_blocks:
            self.kv.tree.evict(self.high_blocks - pool.free, now_s)

    # ---------------------------------------------------------------- what a step is made of

    def _pick_chunks(self, now_s: float) -> list[tuple[Job, int]]:
        """Return this step's prompt chunks: of prefills in progress first, then of waiting turns, in order."""
        schedule = self.schedule
        room = schedule.prefill_room(self.batch.size, len(self.prefills))
        chunks: list[tuple[Job, int]] = []
        if self.prefills:
            for job in list(self.prefills):
                if room <= 0:
                    break
                new = min(room, job.target - job.position)
                if job.state == Job.PREFILL and self._secure(job, job.position + new, now_s):
                    self._grow(job, job.position + new, now_s)
                    chunks.append((job, new))
                    room -= new
        blocked = False
        queue = self.queue
        while room > 0 and len(queue) and schedule.admits(self.batch.size, len(self.prefills)):
            job = queue.head()
            if blocked or not self._admit(job, room, now_s):
                blocked = True
                passing = self._pass_head(room, now_s)
                if passing is None:
                    break
                job = passing
            queue.pop(job)
            if job.state == Job.PREFILL:
                new = min(room, job.target - job.position)
                self._grow(job, job.position + new, now_s)
                chunks.append((job, new))
                room -= new
        self._blocked_s, self._blocked_since_s = self.blocked_until(now_s), now_s
        self._blocked = blocked
        for job, _ in chunks:
            if job.start_s < 0.0:
                job.start_s = now_s
        return [entry for entry in chunks if entry[0].state == Job.PREFILL]

    def _admit(self, job: Job, room: int, now_s: float) -> bool:
        """Give a waiting turn its place: match its prefix, lock it, and start its reload or its prefill."""
        kv, turn = self.kv, job.turn
        pool = kv.pool
        size = pool.block_tokens
        limit = turn.prompt_tokens + turn.kept_output
        node, hit = kv.match(turn.stream, min(job.target, limit + 1))
        dram = self.pauses.host.dram
        have = hit
        if dram.entries and kv.enabled:
            have = dram.find(turn.stream, min(job.target, limit + 1) - 1, hit, size)
        reserve = self.schedule.reserve
        if reserve == "chunk":
            promise = min(job.target, have + room)
        else:
            promise = job.target if reserve == "prompt" else turn.prompt_tokens + turn.output_tokens
        need = pool.blocks(promise) - hit // size
        free = kv.available(turn.stream, limit, node, hit) - self.reserved
        if need > free - (self.headroom_blocks if self.running or self.pauses.kept else 0):
            return False
        sequence = job.sequence = kv.open(turn.stream, limit, node, hit, now_s)
        if job.pause is not None:
            self.pauses.let_go(job.pause, now_s)
            job.pause = None
        job.position = hit
        if reserve != "chunk":
            job.promised = pool.blocks(promise)
            self.reserved += job.promised - sequence.end
        if job.admitted_s < 0.0:
            job.admitted_s = job.loaded_s = now_s
            job.queue_blocks_s = self.blocked_until(now_s) - job.blocked_mark_s
            job.hit_hbm, job.hit_dram = hit, have - hit
            job.ceiling = max(have, ceiling(turn.stream, turn.prompt_tokens, size))
            job.recomputed = job.ceiling - have
            if job.recomputed:
                self.cluster.broke(job)
        if have > hit:
            self._start_reload(job, have, now_s)
        else:
            self._begin_prefill(job)
        return True

    def _pass_head(self, room: int, now_s: float) -> Job | None:
        """Admit a turn that waits on pinned blocks although the head of the queue lacks blocks, if there is one.

        Its context stays in HBM either way, so letting it wait would help nobody.
        """
        for job in self.queue.pinned:
            if job.pause is not None and job.pause.locked and self._admit(job, room, now_s):
                return job
        return None

    def _begin_prefill(self, job: Job) -> None:
        job.state = Job.PREFILL
        self.prefills.append(job)
        self.running[job] = None
        self.prefill_context += job.position

    def _grow(self, job: Job, tokens: int, now_s: float) -> None:
        sequence = job.sequence
        if sequence is None:
            return
        before = sequence.end
        self.kv.grow(sequence, tokens, now_s)
        if job.promised:
            self.reserved -= min(sequence.end, job.promised) - min(before, job.promised)
        pool = self.kv.pool
        if pool.free < self.low_blocks:
            self.kv.tree.evict(self.high_blocks - pool.free, now_s)

    def _secure(self, job: Job, tokens: int, now_s: float) -> bool:
        """Make sure that `job` can grow to `tokens`; False if it had to be preempted for it."""
        if job.promised or job.sequence is None:
            return True
        need = self.kv.pool.blocks(tokens) - job.sequence.end
        while need > self.kv.pool.free + self.kv.tree.dormant - self.reserved:
            if not self._relieve(now_s):
                return False
            if job.state != Job.PREFILL:
                return False
        return True

    def _decode_room(self) -> int:
        """Return the blocks that decoding turns may take: free and dormant ones not promised to others."""
        promised = self.reserved if self.schedule.reserve == "prompt" else 0
        return self.kv.pool.free + self.kv.tree.dormant - promised

    def _secure_decode_step(self, now_s: float) -> None:
        """Make sure that every decoding turn can take its next token, preempting the newest turns if need be."""
        while self.batch.size and self.batch.blocks_for(1) > self._decode_room():
            self._relieve(now_s)
        if self.schedule.decodes_with_prefill:
            self._take_decode_blocks(1, now_s)

    def _relieve(self, now_s: float) -> bool:
        """Free blocks for running turns: demote the oldest kept pause, or else preempt the newest running turn."""
        if self.pauses.demote(now_s):
            return True
        if not self.running:
            return False
        self._preempt(next(reversed(self.running)), now_s)
        return True

    def _preempt(self, job: Job, now_s: float) -> None:
        """Take a running turn's blocks; it goes back to the front of the queue and computes them again later."""
        self._leave(job, now_s, finished=False)
        self.preemptions += 1
        job.preemptions += 1
        if job.preempted_s < 0.0:
            job.preempted_s = now_s
        job.state = Job.WAITING
        job.target = job.turn.prompt_tokens + job.generated
        job.position = 0
        self.queue.push_front(job)

    def _leave(self, job: Job, now_s: float, *, finished: bool) -> Any:
        """Take a turn out of the batch or of the prefills and close its sequence; return its node in the cache."""
        if job.state == Job.DECODE:
            if not finished:
                self.batch.leave(job)
                if job.sequence is not None:
                    job.sequence.end = self.kv.pool.blocks(job.position)
                    if self._taken and job.position % self.kv.pool.block_tokens == 0:
                        self._taken -= 1
                        job.sequence.end += 1
            job.interference_s += self.interference_s - job.interference_mark_s
        elif job in self.prefills:
            self.prefills.remove(job)
            self.prefill_context -= job.position
        self.running.pop(job, None)
        sequence = job.sequence
        if sequence is None:
            return None
        if job.promised:
            self.reserved -= max(0, job.promised - sequence.end)
            job.promised = 0
        job.sequence = None
        return self.kv.close(sequence, job.position, now_s, finished=finished)

    def _finish(self, job: Job, now_s: float) -> None:
        node = self._leave(job, now_s, finished=True)
        job.state = Job.ENDED
        job.session.turn_ended(job, node, now_s)

    # ---------------------------------------------------------------- reload, cancel, deadlock

    def _start_reload(self, job: Job, tokens: int, now_s: float) -> None:
        """Bring the DRAM part of a turn's prefix back; its prefill starts when the copy has ended."""
        size = self.kv.pool.block_tokens
        blocks = tokens // size - job.position // size
        self._grow(job, tokens, now_s)
        job.state = Job.LOADING
        self.loading += 1
        self.loading_blocks += blocks
        dram = self.pauses.host.dram
        pinned = []
        stream: Any = job.turn.stream
        while stream is not None:
            entry = dram.hold(stream)
            if entry is not None:
                pinned.append(entry)
            stream = stream.parent
        job.move = self.pauses.link.into.submit(blocks * self.pauses.block_bytes, RELOAD, self._loaded,
                                                (job, tokens, blocks, pinned))

    def _loaded(self, move: Move) -> None:
        """A reload has ended: its blocks can be read, and the rest of the prompt computed."""
        job, tokens, _, _ = move.info
        now_s = self.env.now
        self.before_change()
        self._end_reload(move, now_s)
        job.position = tokens
        if job.preemptions == 0:
            job.loaded_s = now_s
        self.kv.commit(job.sequence, tokens)
        self._begin_prefill(job)
        self.kick()

    def _end_reload(self, move: Move, now_s: float) -> None:
        job, _, blocks, pinned = move.info
        self.loading -= 1
        self.loading_blocks -= blocks
        job.move = None
        for entry in pinned:
            self.pauses.host.dram.release(entry)
        start_s = move.start_s if move.start_s >= 0.0 else now_s
        self.sink.move((self.number, job.session.trajectory.number, "reload", "dram", "hbm", int(move.bytes_total),
                        move.asked_s, start_s, now_s, move.cancelled))

    def _drop_cancelled(self, now_s: float) -> None:
        cancelled, self._cancelled = self._cancelled, []
        for job in cancelled:
            if job.state == Job.ENDED:
                continue
            if job.pause is not None:
                self.pauses.let_go(job.pause, now_s)
            if job.move is not None:
                self.pauses.link.into.cancel(job.move)
                self._end_reload(job.move, now_s)
            self._leave(job, now_s, finished=False)
            job.state = Job.ENDED
            job.session.turn_dropped(job, now_s, "pruned")

    def _unblock(self, now_s: float) -> bool:
        """Nothing runs, yet turns wait: break the deadlock. False if a pause is still to end and may resolve it."""
        room = self.schedule.prefill_room(0, 0)
        for job in self.queue.in_order()[1:]:
            if self._admit(job, room, now_s):
                self.queue.pop(job)
                self.deadlocks += 1
                return True
        if any(not pause.ended for pause in self.pauses.kept):
            return False
        self.deadlocks += 1
        if self.pauses.demote(now_s):
            return True
        job = self.queue.head()
        self.queue.pop(job)
        job.state = Job.ENDED
        self.rejections += 1
        job.session.turn_dropped(job, now_s, "rejected")
        return True
