"""All replicas, the nodes they stand on, the trajectories alive, and who sends a turn where."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import simpy

from sim.alarm import Alarm
from sim.engine.job import Job
from sim.engine.replica import Replica
from sim.engine.sent import Sent
from sim.engine.session import Session
from sim.errors import InputError
from sim.policies.routing import Routing
from sim.records import Sink
from workloads.trajectory import Closed, Stream, Trajectory

#: A run ends when so many trajectories in a row from its start have been turned away.
MOST_REJECTED = 100


class _View:
    """The replicas as a router sees them when `job` arrives; `sent` is what it remembers of each, by how much."""

    __slots__ = ("_alive", "_sent", "head", "job", "replicas")

    def __init__(self, replicas: list[Replica], alive: list[int], job: Job, sent: dict[int, list[Sent]]) -> None:
        self.replicas = replicas
        self._alive = alive
        self._sent = sent
        self.job = job
        #: Tokens of the prompt that the router will remember to have sent; 0 if it never asks.
        self.head = 0

    def __len__(self) -> int:
        return len(self.replicas)

    def alive(self) -> list[int]:
        """Return the trajectories alive whose last turn each replica served."""
        return self._alive

    def loads(self) -> list[int]:
        """Return each replica's turns, running or waiting."""
        return [replica.load for replica in self.replicas]

    def waiting(self) -> list[int]:
        """Return each replica's turns that are not admitted yet, or whose context is being loaded."""
        return [replica.load - len(replica.admission.running) for replica in self.replicas]

    def kv_use(self) -> list[float]:
        """Return the share of each replica's pool that turns and kept pauses hold."""
        return [replica.used_blocks(replica.env.now) / replica.kv.pool.total for replica in self.replicas]

    def matches(self) -> list[int]:
        """Return the prompt tokens that each replica's prefix cache holds."""
        turn = self.job.turn
        return [replica.kv.match(turn.stream, turn.prompt_tokens)[1] for replica in self.replicas]

    def host_matches(self) -> list[int]:
        """Return the prompt tokens that each replica's prefix cache and the tiers below it hold."""
        turn, owner = self.job.turn, self.job.session.trajectory.number
        found = []
        for replica, have in zip(self.replicas, self.matches(), strict=True):
            host = replica.pauses.host
            below = [] if host.empty else host.cover(turn.stream, turn.prompt_tokens - 1, have, owner)
            found.append(have + sum(below) * host.config.block_tokens)
        return found

    def sent(self, capacity: int, head: int) -> list[int]:
        """Return how many of the prompt's first `head` tokens were sent to each replica before."""
        self.head = head
        remembered = self._sent.setdefault(capacity, [])
        while len(remembered) < len(self.replicas):
            remembered.append(Sent(capacity))
        return [one.match(self.job.turn.stream, head) for one in remembered]


class Cluster:
    """Trajectories in, turns out to replicas.

    Parameters
    ----------
    most_alive
        Trajectories alive at a time over all replicas; the others wait to start. None for no limit.
    """

    def __init__(self, env: simpy.Environment, sink: Sink, routing: Routing, most_alive: int | None = None) -> None:
        self.env = env
        self.sink = sink
        self.routing = routing
        self.most_alive = most_alive
        self.replicas: list[Replica] = []
        self.sessions: dict[int, Session] = {}
        self.started = 0
        self.alive_max = 0
        self.finished = self.rejected = 0
        #: Seconds a request takes from its client to an engine's queue (`StepCost.ttft_floor_s`).
        self.request_s = 0.0
        #: The longest context that was turned away because no pool could hold it, in tokens.
        self.longest_refused = 0
        self.breakers: dict[str, int] = {}
        self.progress: Callable[[float, int], None] | None = None
        self._backlog: deque[tuple[Trajectory, float]] = deque()
        self._routed = 0
        #: What the router remembers of the prompts it sent to each replica, by how many tokens.
        self._sent: dict[int, list[Sent]] = {}
        #: Trajectories alive by the replica that served their last turn; not kept with a single replica.
        self._alive_at: list[int] = []
        self._alive_integral_s = 0.0
        self._alive_since_s = 0.0
        self._source: Iterator[Trajectory] = iter(())
        self._closed: Closed | None = None

    @property
    def alive(self) -> int:
        """Trajectories that have started and not ended."""
        return len(self.sessions)

    def alive_integral_s(self, now_s: float) -> float:
        """Return the time integral of the trajectories alive, in trajectory-seconds."""
        return self._alive_integral_s + len(self.sessions) * (now_s - self._alive_since_s)

    def feed(self, source: Iterator[Trajectory], closed: Closed | None) -> None:
        """Start pulling trajectories: at their arrival times, or so many at a time."""
        self._source = source
        self._closed = closed
        if closed is None:
            self._next_arrival()
            return
        for index in range(closed.concurrency):
            delay_s = closed.ramp_s * index / closed.concurrency
            self._call_after(delay_s, self._replace)

    def route(self, job: Job, previous: int | None) -> int:
        """Return the replica that serves a turn."""
        if len(self.replicas) == 1:
            return 0
        turn = job.turn
        alive = self._alive_at
        if len(alive) < len(self.replicas):
            alive.extend([0] * (len(self.replicas) - len(alive)))
        view = _View(self.replicas, alive, job, self._sent)
        chosen = self.routing.choose(view, previous, self._routed, turn.prompt_tokens)
        self._routed += 1
        for remembered in self._sent.values():
            remembered[chosen].add(turn.stream, view.head)
        if chosen != previous:
            alive[chosen] += 1
            if previous is not None:
                alive[previous] -= 1
        return chosen

    def session_ended(self, session: Session, now_s: float) -> None:
        """A trajectory has ended: forget it, start one that waits, and in a closed loop ask for the next."""
        self._book_alive(now_s)
        if session.status == "rejected":
            self.rejected += 1
            if self.finished == 0 and self.rejected >= MOST_REJECTED:
                self.refuse_all()
        else:
            self.finished += 1
        del self.sessions[session.trajectory.number]
        if self._alive_at and session.replica is not None:
            self._alive_at[session.replica] -= 1
        if self.progress is not None:
            self.progress(now_s, self.started - len(self.sessions))
        if self._backlog:
            self._start(*self._backlog.popleft())
        if self._closed is not None:
            self._call_after(self._closed.think_s, self._replace)

    def refuse_all(self) -> None:
        """Give up a run in which no trajectory can be served.

        Raises
        ------
        InputError
            Always; it names the context and the pool.
        """
        raise InputError(f"{self.replicas[0].holds()}, so every trajectory is turned away; use more GPUs, a smaller "
                         "kv_dtype or shorter contexts", field="workload.agents",
                         got=f"a context of {self.longest_refused:,} tokens")

    def broke(self, job: Job) -> None:
        """A turn recomputes tokens that were computed before: name the content that it could not find."""
        found = job.hit_tokens
        stream: Stream = job.turn.stream
        while stream.parent is not None and stream.attach > found:
            stream = stream.parent
        label = stream.label or "(unnamed)"
        self.breakers[label] = self.breakers.get(label, 0) + job.recomputed

    def _book_alive(self, now_s: float) -> None:
        self._alive_integral_s += len(self.sessions) * (now_s - self._alive_since_s)
        self._alive_since_s = now_s

    def _call_after(self, delay_s: float, action: Callable[[], None]) -> None:
        Alarm(self.env, delay_s, lambda _event: action())

    def _replace(self) -> None:
        trajectory = next(self._source, None)
        if trajectory is not None:
            self._arrive(trajectory)

    def _next_arrival(self) -> None:
        trajectory = next(self._source, None)
        if trajectory is not None:
            Alarm(self.env, max(0.0, trajectory.arrival_s - self.env.now), self._arrived, trajectory)

    def _arrived(self, alarm: Alarm) -> None:
        trajectory = alarm.value
        if trajectory is not None:
            self._arrive(trajectory)
        self._next_arrival()

    def _arrive(self, trajectory: Trajectory) -> None:
        if self.most_alive is not None and len(self.sessions) >= self.most_alive:
            self._backlog.append((trajectory, self.env.now))
        else:
            self._start(trajectory, self.env.now)

    def _start(self, trajectory: Trajectory, arrived_s: float) -> None:
        self._book_alive(self.env.now)
        session = Session(self, trajectory, arrived_s)
        self.sessions[trajectory.number] = session
        self.started += 1
        self.alive_max = max(self.alive_max, len(self.sessions))
        session.start()
