"""What gives way when blocks run short: pins of paused contexts, copies ahead of time, the newest running turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.engine.job import Job

if TYPE_CHECKING:
    from sim.engine.admission import Admission


class Relief:
    """Frees blocks for the running turns of a replica, and breaks deadlocks.

    Attributes
    ----------
    preempted
        Whether a turn was preempted since chunks were last picked.
    """

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.replica = admission.replica
        self.preemptions = self.deadlocks = 0
        self.preempted = False

    def secure_decode_step(self, now_s: float) -> None:
        """Make sure that every decoding turn can take its next token, preempting the newest turns if need be."""
        batch, replica = self.admission.batch, self.replica
        while batch.size and batch.blocks_for(1) > replica.decode_room():
            self.free_some(now_s)

    def secure(self, job: Job, tokens: int, now_s: float) -> bool:
        """Make sure that a turn in prefill can grow to `tokens`; False if it had to be preempted for it."""
        if job.promised:
            return True
        kv = self.admission.kv
        need = kv.pool.blocks(tokens) - job.sequence.end
        while need > kv.pool.free + kv.tree.dormant - self.admission.reserved:
            if not self.free_some(now_s) or job.state != Job.PREFILL:
                return False
        return True

    def free_some(self, now_s: float) -> bool:
        """Demote the oldest kept pause, stop the last prefetch, or preempt the newest running turn; False if none."""
        pauses = self.replica.pauses
        if pauses.demote(now_s) or pauses.prefetches.give_up(now_s):
            return True
        running = self.admission.running
        if not running:
            return False
        self._preempt(next(reversed(running)), now_s)
        return True

    def unblock(self, now_s: float) -> bool:
        """Nothing runs, yet turns wait: break the deadlock. False if something under way may still resolve it."""
        admission, pauses = self.admission, self.replica.pauses
        queue = admission.queue
        if admission.reloads.count or self.replica.accounts.leaving or pauses.prefetches.awaited:
            return False
        room = admission.schedule.prefill_room(0, 0)
        for job in queue.in_order()[1:]:
            if admission.admit(job, room, now_s):
                queue.pop(job)
                self.deadlocks += 1
                return True
        if queue.pinned:
            # Turns that wait on their pinned contexts keep each other, and the head, from running.
            self.deadlocks += 1
            job = next(reversed(queue.pinned))
            del queue.pinned[job]
            if job.pause is not None:
                pauses.force(job.pause, now_s)
            return True
        if any(pause.returns for pause in pauses.kept):
            return False
        self.deadlocks += 1
        if pauses.demote(now_s) or pauses.prefetches.give_up(now_s):
            return True
        job = queue.head()
        queue.pop(job)
        admission.refuse(job, now_s)
        return True

    def _preempt(self, job: Job, now_s: float) -> None:
        """Take a running turn's blocks; it goes back to the front of the queue and computes them again later."""
        self.admission.leave(job, now_s, finished=False)
        self.preemptions += 1
        self.preempted = True
        job.preemptions += 1
        if job.preempted_s < 0.0:
            job.preempted_s = now_s
        if job.held_s < 0.0:
            job.held_s += now_s
        job.state = Job.WAITING
        job.target = job.turn.prompt_tokens + job.generated
        job.position = 0
        self.admission.queue.push_front(job)
