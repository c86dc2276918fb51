"""Turns that wait for their context to come back from a lower tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.engine.job import Job
from sim.memory.links import RELOAD, Move
from sim.memory.tiers import Entry
from workloads.trajectory import Stream

if TYPE_CHECKING:
    from sim.engine.replica import Replica


class Reloads:
    """The reloads of one replica.

    Attributes
    ----------
    count, blocks
        Turns that are loading, and the blocks their copies will fill.
    """

    __slots__ = ("blocks", "count", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.count = 0
        self.blocks = 0

    def start(self, job: Job, tokens: int) -> None:
        """Bring an admitted turn's prefix back up to `tokens`; its prefill starts when the copy has ended."""
        replica = self.replica
        size = replica.kv.pool.block_tokens
        blocks = tokens // size - job.position // size
        replica.admission.grow(job, tokens, replica.env.now)
        job.state = Job.LOADING
        self.count += 1
        self.blocks += blocks
        dram = replica.pauses.host.dram
        pinned: list[Entry] = []
        stream: Stream | None = job.turn.stream
        while stream is not None:
            entry = dram.hold(stream)
            if entry is not None:
                pinned.append(entry)
            stream = stream.parent
        job.move = replica.pauses.link.into.submit(blocks * replica.pauses.block_bytes, RELOAD, self._loaded,
                                                   (job, tokens, blocks, pinned))

    def cancel(self, job: Job, now_s: float) -> None:
        """Give up a reload under way."""
        move = job.move
        if move is not None:
            self.replica.pauses.link.into.cancel(move)
            self._end(move, now_s)

    def _loaded(self, move: Move) -> None:
        """A copy has ended: its blocks can be read, and the rest of the prompt computed."""
        job, tokens, _, _ = move.info
        replica = self.replica
        replica.before_change()
        now_s = replica.env.now
        self._end(move, now_s)
        job.position = tokens
        if job.preemptions == 0:
            job.loaded_s = now_s
        replica.kv.commit(job.sequence, tokens)
        replica.admission.begin_prefill(job)
        replica.kick()

    def _end(self, move: Move, now_s: float) -> None:
        job, _, blocks, pinned = move.info
        self.count -= 1
        self.blocks -= blocks
        job.move = None
        for entry in pinned:
            self.replica.pauses.host.dram.release(entry)
        start_s = move.start_s if move.start_s >= 0.0 else now_s
        self.replica.sink.move((self.replica.number, job.session.trajectory.number, "reload", "dram", "hbm",
                                int(move.bytes_total), move.asked_s, start_s, now_s, move.cancelled))
