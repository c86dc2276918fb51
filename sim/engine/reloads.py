"""Turns whose context comes back from lower tiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.alarm import Alarm
from sim.engine.job import Job
from sim.memory.links import PIPELINED, RELOAD
from sim.memory.tiers import Entry

if TYPE_CHECKING:
    from sim.engine.replica import Replica


class Reloads:
    """The reloads of one replica.

    A blocking reload comes before the turn's prefill. A pipelined one runs beside it: the prefill starts at once, and
    the first token waits for whichever ends last, and for one more layer after the copy.

    Attributes
    ----------
    count
        Turns that are loading.
    """

    __slots__ = ("_held", "count", "pipelined", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.pipelined = False
        self.count = 0
        self._held: dict[Job, tuple[int, int, list[tuple[int, Entry]]]] = {}

    def start(self, job: Job, tokens: int, found: Sequence[int]) -> None:
        """Bring an admitted turn's prefix back up to `tokens`, so many blocks from each tier."""
        replica = self.replica
        blocks = sum(found)
        replica.admission.grow(job, tokens, replica.env.now)
        self.count += 1
        replica.accounts.load(blocks, replica.env.now)
        transfers = replica.pauses.transfers
        trajectory = job.session.trajectory.number
        self._held[job] = (tokens, blocks, transfers.hold(job.turn.stream, tokens, job.position, trajectory))
        job.transfer = transfers.bring(found, "reload", trajectory, PIPELINED if self.pipelined else RELOAD,
                                       lambda: self._copied(job))
        if self.pipelined:
            job.position = tokens
            replica.admission.begin_prefill(job)
        else:
            job.state = Job.LOADING

    def cancel(self, job: Job) -> None:
        """Give up a reload under way."""
        if job.transfer is not None:
            job.transfer.cancel()
            self._forget(job)

    def _copied(self, job: Job) -> None:
        """The copies have ended: the blocks can be read."""
        replica = self.replica
        if not self.pipelined:
            self._loaded(job)
            return
        layer_s = replica.cost.step(0, 0, ((max(1, job.target - self._held[job][0]), job.position),))
        transfer = job.transfer
        Alarm(replica.env, layer_s / max(1, replica.layers),
              lambda _event: self._loaded(job) if job.transfer is transfer else None)

    def _loaded(self, job: Job) -> None:
        replica = self.replica
        now_s = replica.env.now
        replica.before_change(now_s)
        tokens = self._forget(job)
        if job.state == Job.LOADING:
            job.position = tokens
            if job.preemptions == 0:
                job.loaded_s = now_s
            replica.kv.commit(job.sequence, tokens)
            replica.admission.begin_prefill(job)
        else:
            replica.kv.commit(job.sequence, job.position)
            if job.state == Job.HELD:
                replica.admission.held_back.append(job)
        replica.kick()

    def _forget(self, job: Job) -> int:
        tokens, blocks, held = self._held.pop(job)
        self.count -= 1
        self.replica.accounts.load(-blocks, self.replica.env.now)
        job.transfer = None
        self.replica.pauses.transfers.let_go(held)
        return tokens
