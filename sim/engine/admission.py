"""Which turns a step serves: admission in order, prompt chunks, and what gives way when blocks run short."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.engine.job import NO_SEQUENCE, Job
from sim.engine.pressure import Pressure
from sim.engine.queue import WaitingQueue
from sim.engine.relief import Relief
from sim.engine.reloads import Reloads
from sim.memory.kv_cache import ceiling
from sim.memory.prefix_tree import Node
from sim.memory.tiers import cover, found_tokens

if TYPE_CHECKING:
    from sim.engine.replica import Replica


class Admission:
    """The turns of a replica outside its decode batch: waiting, loading, in prefill.

    Parameters
    ----------
    headroom_blocks
        Blocks that admissions leave free while anything runs.
    """

    def __init__(self, replica: Replica, headroom_blocks: int) -> None:
        self.replica = replica
        self.kv = replica.kv
        self.batch = replica.batch
        self.schedule = replica.schedule
        self.headroom_blocks = headroom_blocks
        self.queue = WaitingQueue(replica.schedule, replica.kv)
        self.reloads = Reloads(replica)
        self.prefills: list[Job] = []
        #: Sum of the positions of the turns in prefill, in tokens.
        self.prefill_context = 0
        #: Turns in prefill or decode, in order of admission: the last is the first to be preempted.
        self.running: dict[Job, None] = {}
        #: Blocks promised to admitted turns and not yet taken.
        self.reserved = 0
        self.cancelled: list[Job] = []
        #: Turns whose prefill was complete before their pipelined reload, which has ended now.
        self.held_back: list[Job] = []
        self.rejections = 0
        #: Turns served although their context is longer than the model takes.
        self.over_limit = 0
        self.pressure = Pressure()
        self.relief = Relief(self)
        #: Nothing is admitted in this step because a turn was preempted, but may be in the next.
        self.resting = False

    def enqueue(self, job: Job, now_s: float) -> bool:
        """Queue a turn; False if it could never fit in the pool."""
        turn, pool = job.turn, self.kv.pool
        if pool.blocks(turn.prompt_tokens + turn.output_tokens) + self.kv.state_blocks > pool.total:
            cluster = self.replica.cluster
            cluster.longest_refused = max(cluster.longest_refused, turn.prompt_tokens + turn.output_tokens)
            return False
        if turn.prompt_tokens + turn.output_tokens > self.replica.context_limit:
            self.over_limit += 1
        job.replica = self.replica.number
        job.state = Job.WAITING
        job.blocked_mark_s = self.pressure.blocked_s(now_s)
        self.queue.push(job)
        return True

    def refuse(self, job: Job, now_s: float) -> None:
        """Reject a turn."""
        job.replica = self.replica.number
        job.state = Job.ENDED
        self.rejections += 1
        if job.pause is not None:
            self.replica.pauses.abandon(job.pause, now_s)
        job.session.turn_dropped(job, now_s, "rejected")

    def pick_chunks(self, now_s: float) -> list[tuple[Job, int]]:
        """Return this step's prompt chunks: of prefills in progress first, then of waiting turns, in order."""
        schedule, queue, prefills = self.schedule, self.queue, self.prefills
        room = schedule.prefill_room(self.batch.size, len(prefills))
        chunks: list[tuple[Job, int]] = []
        if prefills:
            room = self._continue_prefills(chunks, room, now_s)
        # Nothing new is admitted in a step that preempted (as in vLLM).
        blocked = self.resting = self.relief.preempted and bool(chunks or self.batch.size)
        self.relief.preempted = False
        while queue.count and not blocked and room > 0 and schedule.admits(self.batch.size, self._seated()):
            job = queue.head()
            if not self.admit(job, room, now_s):
                blocked = True
                break
            room -= self._enter(job, chunks, room, now_s)
        while blocked and room > 0 and queue.pinned and schedule.admits(self.batch.size, self._seated()):
            passing = self._pass_head(room, now_s)
            if passing is None:
                break
            room -= self._enter(passing, chunks, room, now_s)
        if blocked or self.pressure.blocked:
            self.pressure.mark(blocked, now_s)
        for job, new in chunks:
            self.prefill_context += new
            if job.start_s < 0.0:
                job.start_s = now_s
        return chunks

    def chunks_done(self, chunks: list[tuple[Job, int]], now_s: float) -> float:
        """A step's prompt chunks are computed; return the share of their tokens that had been computed before."""
        tokens = 0
        again = 0.0
        done = []
        for job, new in chunks:
            tokens += new
            if job.recomputed:
                again += new * job.recomputed / (job.turn.prompt_tokens - job.hit_tokens)
            job.position += new
            if job.position >= job.target:
                done.append(job)
            if job.transfer is None:
                self.kv.commit(job.sequence, job.position)
        for job in done:
            self.prefills.remove(job)
            self.prefill_context -= job.position
            if job.transfer is None:
                self._first_token(job, now_s)
            else:
                job.state = Job.HELD
                if job.preempted_s < 0.0:  # else the wait is part of what the preemption cost
                    job.held_s -= now_s
        return min(again / tokens, 1.0) if again else 0.0

    def release_held(self, now_s: float) -> None:
        """Give the first token of turns that only waited for their reload."""
        held, self.held_back = self.held_back, []
        for job in held:
            if job.state == Job.HELD:
                if job.held_s < 0.0:
                    job.held_s += now_s
                self._first_token(job, now_s)

    def begin_prefill(self, job: Job) -> None:
        """An admitted turn's prefix is in HBM: it computes the rest."""
        job.state = Job.PREFILL
        self.prefills.append(job)
        self.running[job] = None
        self.prefill_context += job.position

    def grow(self, job: Job, tokens: int, now_s: float) -> None:
        """Take blocks until the turn's table holds `tokens` tokens, its promised ones first."""
        sequence = job.sequence
        before = sequence.end
        self.kv.grow(sequence, tokens, now_s)
        if job.promised:
            self.reserved -= min(sequence.end, job.promised) - min(before, job.promised)
        if self.kv.pool.free < self.replica.low_blocks:
            self.replica.low_on_blocks(now_s)

    def finish(self, job: Job, now_s: float) -> None:
        """A turn has given its last token."""
        node = self.leave(job, now_s, finished=True)
        job.state = Job.ENDED
        job.session.turn_ended(job, node, now_s)

    def cancel(self, job: Job) -> None:
        """Give up a turn at the next step boundary."""
        if job.cancelled:
            return
        job.cancelled = True
        if job.state == Job.WAITING:
            self.queue.forget(job)
        self.cancelled.append(job)

    def drop_cancelled(self, now_s: float) -> None:
        """Let cancelled turns go."""
        cancelled, self.cancelled = self.cancelled, []
        for job in cancelled:
            if job.state == Job.ENDED:
                continue
            if job.pause is not None:
                self.replica.pauses.let_go(job.pause, now_s)
            self.reloads.cancel(job)
            if job.sequence is not NO_SEQUENCE:
                self.leave(job, now_s, finished=False)
            job.state = Job.ENDED
            job.session.turn_dropped(job, now_s, "pruned")

    # ---------------------------------------------------------------- steps of the above

    def _continue_prefills(self, chunks: list[tuple[Job, int]], room: int, now_s: float) -> int:
        """Give the prefills in progress their next chunks; return the room that is left."""
        for job in list(self.prefills):
            if room <= 0:
                break
            new = min(room, job.target - job.position)
            if job.state == Job.PREFILL and self.relief.secure(job, job.position + new, now_s):
                self.grow(job, job.position + new, now_s)
                chunks.append((job, new))
                room -= new
        chunks[:] = [entry for entry in chunks if entry[0].state == Job.PREFILL]
        return room

    def admit(self, job: Job, room: int, now_s: float) -> bool:
        """Give a waiting turn its place: match its prefix, lock it, and start its reload or its prefill."""
        kv, turn = self.kv, job.turn
        stream = turn.stream
        size = kv.pool.block_tokens
        limit = turn.prompt_tokens + turn.kept_output
        wanted = job.target if job.target <= limit else limit + 1
        node, hit = kv.match(stream, wanted)
        host = self.replica.pauses.host
        have = hit
        found: list[int] = []
        if not host.empty and kv.enabled:
            found = cover(host.tiers, stream, wanted - 1, hit, size)
            blocks = sum(found)
            if blocks:
                have = (hit // size + blocks) * size
        promise = self._promise(job, have, room)
        need = -(-promise // size) - hit // size
        need += self.reserved
        if self.headroom_blocks and (self.running or self.replica.pauses.kept):
            need += self.headroom_blocks
        if need > kv.pool.free - kv.state_blocks and need > kv.available(stream, limit, node, hit):
            return False
        sequence = job.sequence = kv.open(stream, limit, node, hit, now_s, job.session.trajectory.number)
        if job.pause is not None:
            self.replica.pauses.let_go(job.pause, now_s)
            job.pause = None
        job.position = hit
        if self.schedule.reserve != "chunk":
            job.promised = -(-promise // size)
            self.reserved += job.promised - sequence.end
        if job.admitted_s < 0.0:
            self._first_admitted(job, hit, have, now_s)
            if have > hit:
                job.hit_below = found_tokens(found, hit, size)
        if have > hit:
            self.reloads.start(job, have, found)
        else:
            self.begin_prefill(job)
        return True

    def _first_admitted(self, job: Job, hit: int, have: int, now_s: float) -> None:
        """Note what a turn waited for and found: `hit` tokens in HBM, `have` in all."""
        job.admitted_s = job.loaded_s = now_s
        job.queue_blocks_s = self.pressure.blocked_s(now_s) - job.blocked_mark_s
        job.hit_hbm = hit
        job.hit_tokens = have
        seen = ceiling(job.turn.stream, job.turn.prompt_tokens, self.kv.pool.block_tokens)
        if seen > have:
            job.ceiling = seen
            job.recomputed = seen - have
            self.replica.cluster.broke(job)
        else:
            job.ceiling = have

    def _promise(self, job: Job, have: int, room: int) -> int:
        """Return the tokens that there must be blocks for if the turn is to be admitted."""
        reserve = self.schedule.reserve
        if reserve == "chunk":
            return min(job.target, have + room)
        if reserve == "prompt":
            return job.target
        return job.turn.prompt_tokens + job.turn.output_tokens

    def _seated(self) -> int:
        """Return the turns admitted that do not decode yet: in prefill, or waiting for their reload."""
        loading = 0 if self.reloads.pipelined else self.reloads.count
        return len(self.running) - self.batch.size + loading

    def _enter(self, job: Job, chunks: list[tuple[Job, int]], room: int, now_s: float) -> int:
        """Take an admitted turn off the queue and give it its first chunk; return the chunk's tokens."""
        self.queue.pop(job)
        if job.state != Job.PREFILL:
            return 0
        new = job.target - job.position
        if new > room:
            new = room
        self.grow(job, job.position + new, now_s)
        chunks.append((job, new))
        return new

    def _pass_head(self, room: int, now_s: float) -> Job | None:
        """Admit a turn that waits on pinned blocks although the head of the queue lacks blocks, if there is one.

        Its context stays in HBM either way, so letting it wait would help nobody.
        """
        for job in self.queue.pinned:
            if job.pause is not None and job.pause.locked and self.admit(job, room, now_s):
                return job
        return None

    def _first_token(self, job: Job, now_s: float) -> None:
        """A prefill is complete: it gives a token, and the turn decodes on or ends."""
        job.generated += 1
        if job.preempted_s >= 0.0:
            gap_s = now_s - job.preempted_s
            job.lost_s += gap_s
            job.preempted_s = -1.0
            if job.first_s >= 0.0:
                self.replica.accounts.latencies.add((gap_s, gap_s, 1, 0, 1))
        if job.first_s < 0.0:
            job.first_s = now_s
            job.lost_before_s = job.lost_s
        job.interference_mark_s = self.replica.interference_s
        if job.generated >= job.turn.output_tokens:
            self.finish(job, now_s)
        else:
            job.state = Job.DECODE
            self.batch.join(job)

    def leave(self, job: Job, now_s: float, *, finished: bool) -> Node | None:
        """Close a turn's sequence wherever it stands; return the node of its content in the cache, if any."""
        if job.state == Job.DECODE:
            if not finished:
                self.replica.withdraw(job)
            job.interference_s += self.replica.interference_s - job.interference_mark_s
        elif not finished and job.state == Job.PREFILL:
            self.prefills.remove(job)
            self.prefill_context -= job.position
        if job.transfer is not None:
            self.reloads.cancel(job)
        self.running.pop(job, None)
        sequence = job.sequence
        job.sequence = NO_SEQUENCE
        if job.promised:
            if job.promised > sequence.end:
                self.reserved -= job.promised - sequence.end
            job.promised = 0
        return self.kv.close(sequence, job.position, now_s, finished=finished)
