"""The waiting turns of a replica, in the order of its schedule."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from sim.memory.kv_cache import KvCache
from sim.policies.schedule import ScheduleConfig, WaitingView

if TYPE_CHECKING:
    from sim.engine.job import Job

#: An order that looks into the cache ranks so many turns at the front of the queue; the rest stays first come, first
#: served (SGLang falls back above 128 queued).
RANKED_TURNS = 128


class WaitingQueue:
    """Waiting turns; preempted ones come before all others.

    Parameters
    ----------
    schedule
        Gives each turn its rank, lowest first.
    kv
        Where an order that depends on the cache looks a turn's prefix up.
    """

    __slots__ = ("_by_trajectory", "_dynamic", "_heap", "_order", "count", "kv", "pinned", "schedule")

    def __init__(self, schedule: ScheduleConfig, kv: KvCache) -> None:
        self.schedule = schedule
        self.kv = kv
        self._heap: list[tuple[float, int, Job]] = []
        self._order = 0
        self.count = 0
        self._dynamic = schedule.dynamic
        self._by_trajectory = schedule.order == "program_fcfs"
        #: Waiting turns whose context is pinned, in order of arrival.
        self.pinned: dict[Job, None] = {}

    def push(self, job: Job) -> None:
        """Add a turn at the place its order gives it; an order that looks into the cache is asked at each admission."""
        rank = job.session.start_s if self._by_trajectory else job.ready_s
        self._add(rank, job)
        if job.pause is not None and job.pause.locked:
            self.pinned[job] = None

    def push_front(self, job: Job) -> None:
        """Add a turn before all that arrived after it and were never admitted."""
        self._add(float("-inf"), job)

    def forget(self, job: Job) -> None:
        """A waiting turn was cancelled."""
        self.count -= 1
        self.pinned.pop(job, None)

    def head(self) -> Job:
        """Return the turn to admit next, without removing it; the queue must not be empty."""
        while self._heap[0][2].cancelled:
            heappop(self._heap)
        if self._dynamic and self._heap[0][0] != float("-inf"):
            return self.in_order()[0]
        return self._heap[0][2]

    def pop(self, job: Job) -> None:
        """Remove a turn that is being admitted."""
        self.count -= 1
        if self.pinned:
            self.pinned.pop(job, None)
        heap = self._heap
        if heap[0][2] is job:
            heappop(heap)
            return
        self._heap = sorted(entry for entry in heap if entry[2] is not job)

    def in_order(self) -> list[Job]:
        """Return the waiting turns in the order in which they would be admitted now."""
        entries = sorted(entry for entry in self._heap if not entry[2].cancelled)
        if not self._dynamic:
            return [job for _, _, job in entries]
        front = [entry for entry in entries[:RANKED_TURNS] if entry[0] != float("-inf")]
        ranked = sorted(front, key=lambda entry: (self.schedule.rank(self._view(entry[2])), entry[1]))
        urgent = [entry for entry in entries if entry[0] == float("-inf")]
        rest = [entry for entry in entries[RANKED_TURNS:] if entry[0] != float("-inf")]
        return [job for _, _, job in (*urgent, *ranked, *rest)]

    def _view(self, job: Job) -> WaitingView:
        _, hit = self.kv.match(job.turn.stream, job.target)
        return WaitingView(job.ready_s, job.target, hit)

    def _add(self, rank: float, job: Job) -> None:
        self.count += 1
        self._order += 1
        heappush(self._heap, (rank, self._order, job))
