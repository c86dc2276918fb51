"""A trajectory on its way: which turns are out, what they wait for, and what it leaves in the records."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sim.alarm import Alarm
from sim.engine.job import Job
from sim.engine.pause import Pause
from sim.memory.prefix_tree import Node
from workloads.trajectory import Stream, Trajectory, Turn

if TYPE_CHECKING:
    from sim.engine.cluster import Cluster


class Session:
    """One trajectory alive.

    It holds a timer or a job for every turn that is out; when none is left it has ended.
    """

    __slots__ = ("_idle_since_s", "_in_system", "_rejected", "_roots", "cluster", "hit_tokens", "jobs",
                 "output_tokens", "pauses", "prompt_tokens", "replica", "start_s", "status", "timers", "trajectory",
                 "turns", "wait_s")

    def __init__(self, cluster: Cluster, trajectory: Trajectory, arrived_s: float) -> None:
        self.cluster = cluster
        self.trajectory = trajectory
        #: Time of its arrival; it starts later if too many are alive.
        self.start_s = arrived_s
        self._roots = set(trajectory.roots)
        self.status = "unfinished"
        self._rejected = False
        #: Replica that served the last turn.
        self.replica: int | None = None
        self.jobs: dict[Turn, Job] = {}
        self.timers: set[Turn] = set()
        #: Pause and its replica, by the turn that ends it.
        self.pauses: dict[Turn, tuple[Pause, int]] = {}
        self.turns = self.prompt_tokens = self.output_tokens = self.hit_tokens = 0
        self.wait_s = 0.0
        self._in_system = 0
        self._idle_since_s = arrived_s

    def start(self) -> None:
        """Set the timers of the turns that wait for no other."""
        for turn in self.trajectory.roots:
            self._wait_for(turn)

    def turn_ended(self, job: Job, node: Node | None, now_s: float) -> None:
        """A turn has given its last token: record it, begin its pause, and start the waits of what follows."""
        if job.cancelled:
            self.turn_dropped(job, now_s, "pruned")
            return
        turn = job.turn
        self._leave_system(job, now_s)
        self._record(job, "finished", now_s)
        self.turns += 1
        self.prompt_tokens += turn.prompt_tokens
        self.output_tokens += turn.output_tokens
        self.hit_tokens += job.hit_tokens
        if turn.next:
            heir: Turn | None = turn.next[0]
            if turn.next[0].stream is not turn.stream or len(turn.next) > 1:
                heir = _heir(turn)
            if heir is not None and heir.pending > 0:
                if heir in self.pauses:
                    self._let_go(heir)
                pause = self.cluster.replicas[job.replica].pauses.begin(self.trajectory.number, turn, heir, node,
                                                                        job.position, now_s)
                self.pauses[heir] = (pause, job.replica)
            for follower in turn.next:
                follower.pending -= 1
                if follower.pending == 0:
                    self._wait_for(follower)
        pauses = self.cluster.replicas[job.replica].pauses
        if pauses.write_backs is not None:
            pauses.write_backs.turn_ended(turn, node, now_s)
        if not self.jobs and not self.timers:
            self._end("rejected" if self._rejected else "finished")

    def turn_dropped(self, job: Job, now_s: float, status: str) -> None:
        """A turn was rejected (its trajectory ends with it) or pruned (its branch does)."""
        self._leave_system(job, now_s)
        self._record(job, status, now_s)
        if status == "rejected" and not self._rejected:
            self._give_up()
        if not self.jobs and not self.timers and self.status == "unfinished":
            self._end("rejected" if self._rejected else "finished")

    def abandon(self) -> None:
        """The run ends before the trajectory does: record what is out as unfinished."""
        for job in self.jobs.values():
            self._record(job, "unfinished", math.nan)
        self._record_trajectory(math.nan)

    def _wait_for(self, turn: Turn) -> None:
        self.timers.add(turn)
        Alarm(self.cluster.env, turn.wait_s + self.cluster.request_s, self._ready, turn)

    def _ready(self, alarm: Alarm) -> None:
        """A turn's request has reached the engine: drop the losers of its race, end its pause, send it to a replica.

        It was ready when its wait was over, so time to its first token holds the way there.
        """
        turn: Turn | None = alarm.value
        if turn is None or turn not in self.timers:
            return
        self.timers.discard(turn)
        now_s = self.cluster.env.now
        ready_s = now_s - self.cluster.request_s
        for loser in turn.prunes:
            self._prune(loser, turn)
        if self._in_system == 0:
            self.wait_s += ready_s - self._idle_since_s
        self._in_system += 1
        held = self.pauses.pop(turn, None)
        job = Job(self, turn, turn.tool, ready_s, None)
        self.jobs[turn] = job
        index = self.cluster.route(job, self.replica)
        self.replica = index
        if held is not None:
            pause, home = held
            self.cluster.replicas[home].pauses.end(pause, now_s)
            if home == index:
                job.pause = pause
                if self.cluster.replicas[index].pauses.prefetches.join(pause, job):
                    return
            else:
                self.cluster.replicas[home].pauses.abandon(pause, now_s)
        if not self.cluster.replicas[index].submit(job):
            self.cluster.replicas[index].admission.refuse(job, now_s)

    def _prune(self, turn: Turn, winner: Turn) -> None:
        """Cancel a turn, or whichever of its followers is out on the way to the winner, unless it has ended."""
        todo = [turn]
        while todo:
            at = todo.pop()
            if at in self.timers:
                self.timers.discard(at)
                self._let_go(at)
            elif at in self.jobs:
                job = self.jobs[at]
                self.cluster.replicas[job.replica].cancel(job)
            else:
                todo.extend(follower for follower in at.next if follower.pending <= 0 and follower is not winner)

    def _give_up(self) -> None:
        """Cancel everything that is out."""
        self._rejected = True
        self.timers.clear()
        for turn in list(self.pauses):
            self._let_go(turn)
        for job in list(self.jobs.values()):
            self.cluster.replicas[job.replica].cancel(job)

    def _let_go(self, turn: Turn) -> None:
        held = self.pauses.pop(turn, None)
        if held is not None:
            pause, home = held
            pauses = self.cluster.replicas[home].pauses
            now_s = self.cluster.env.now
            pauses.end(pause, now_s)
            pauses.abandon(pause, now_s)

    def _leave_system(self, job: Job, now_s: float) -> None:
        del self.jobs[job.turn]
        self._in_system -= 1
        self._idle_since_s = now_s

    def _end(self, status: str) -> None:
        self.status = status
        now = self.cluster.env.now
        for turn in list(self.pauses):
            self._let_go(turn)
        self._record_trajectory(now)
        self.cluster.session_ended(self, now)

    def _record_trajectory(self, end_s: float) -> None:
        trajectory = self.trajectory
        self.cluster.sink.trajectory((
            trajectory.number, trajectory.group, trajectory.source, self.status, self.start_s, end_s, self.turns,
            self.prompt_tokens, self.output_tokens, self.hit_tokens, self.wait_s))

    def _record(self, job: Job, status: str, end_s: float) -> None:
        turn = job.turn
        ready_s = job.ready_s
        nan = math.nan
        if status == "finished":
            prefill_s = job.first_s - job.loaded_s - job.lost_before_s - job.held_s
            computed = turn.prompt_tokens - job.hit_tokens
            again_s = prefill_s * job.recomputed / computed if job.recomputed else 0.0
            causes = (job.queue_blocks_s, job.admitted_s - ready_s - job.queue_blocks_s - job.joined_s,
                      job.loaded_s - job.admitted_s + job.joined_s + job.held_s, prefill_s - again_s, again_s,
                      job.interference_s,
                      end_s - job.first_s - job.interference_s - (job.lost_s - job.lost_before_s), job.lost_s)
        else:
            causes = (nan,) * 8
        self.cluster.sink.turn((
            self.trajectory.number, turn.index, turn.branch, job.replica, turn in self._roots, job.tool,
            status, ready_s, job.start_s if job.start_s >= 0.0 else nan, job.first_s if job.first_s >= 0.0 else nan,
            end_s, turn.prompt_tokens, turn.output_tokens, job.hit_hbm, *job.hit_below,
            job.ceiling, job.recomputed, job.preemptions, *causes))


def _heir(turn: Turn) -> Turn | None:
    """Return the follower that goes on with this turn's context, of its own branch if there is one.

    It is on this turn's stream or on one that shares more with it than a root: the stream itself or the one it grew out
    of is among its ancestors (a prompt's end that nobody repeats is a stream of its own).
    """
    trunk = turn.stream.parent or turn.stream
    found: Turn | None = None
    for follower in turn.next:
        stream: Stream | None = follower.stream
        while stream is not None and stream is not turn.stream and stream is not trunk:
            stream = stream.parent
        if stream is not None and (follower.branch == turn.branch or follower.stream is turn.stream):
            return follower
        if stream is not None and found is None:
            found = follower
    return found
