"""A replica cut down to a textbook server, and intervals for what comes out of it.

Every step takes `STEP_S`, whatever it holds, and a turn takes as many steps as it has output tokens: its one prompt
token's step gives the first. Service times are therefore drawn by drawing output tokens, and `max_seqs` is the number
of servers. The step is short beside a service time (mean `MEAN_TOKENS` steps), so that waiting for the next step
boundary is lost in the noise.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy
from scipy import stats

from sim.engine.cluster import Cluster
from sim.engine.host import Host, HostConfig
from sim.engine.pauses import Pauses
from sim.engine.replica import Replica
from sim.engine.transfers import Transfers
from sim.memory.allocators.paged import BlockPool
from sim.memory.kv_cache import KvCache
from sim.memory.links import Link
from sim.memory.prefix_tree import PrefixTree
from sim.policies.retention import Drop
from sim.policies.routing import LeastLoaded
from sim.policies.schedule import Chunked, Unbatched
from sim.records import TIMELINE_COLUMNS, TRAJECTORY_COLUMNS, TURN_COLUMNS
from sim.timing.base import Bound, Chunks, Line
from workloads.trajectory import Closed, Stream, Trajectory, Turn

MEAN_TOKENS = 1000
#: Seconds of a step: the mean service time is the unit of time.
STEP_S = 1.0 / MEAN_TOKENS
BATCHES = 20
CONFIDENCE = 0.999

ONE_AT_A_TIME = Unbatched()


def parallel(servers: int) -> Chunked:
    """Return a schedule that serves so many turns at once, each at the rate it would have alone."""
    return Chunked(max_seqs=servers)


class ConstantStep:
    """Every step takes the same time (a `StepCost`)."""

    def step(self, decoding: int, context_tokens: int, chunks: Chunks = ()) -> float:
        return STEP_S

    def decode_lines(self, decoding: int) -> tuple[Line, ...]:
        return (Line(STEP_S, 0.0),)

    def bound(self, decoding: int, context_tokens: int, chunks: Chunks = ()) -> Bound:
        return "overhead"


@dataclass
class Run:
    """What came out: records by table, and the cluster and the clock as they stood at the end."""

    turns: list[tuple[Any, ...]] = field(default_factory=list)
    trajectories: list[tuple[Any, ...]] = field(default_factory=list)
    samples: list[tuple[Any, ...]] = field(default_factory=list)
    cluster: Any = None
    end_s: float = 0.0

    def turn(self, record: tuple[Any, ...]) -> None:
        self.turns.append(record)

    def trajectory(self, record: tuple[Any, ...]) -> None:
        self.trajectories.append(record)

    def sample(self, record: tuple[Any, ...]) -> None:
        self.samples.append(record)

    def pause(self, record: tuple[Any, ...]) -> None: ...

    def move(self, record: tuple[Any, ...]) -> None: ...

    def column(self, name: str) -> np.ndarray:
        """Return a column of the turns, in order of their arrival."""
        columns = list(TURN_COLUMNS)
        ready, wanted = columns.index("ready_s"), columns.index(name)
        return np.array([record[wanted] for record in sorted(self.turns, key=lambda record: record[ready])])

    def trajectory_column(self, name: str) -> np.ndarray:
        at = list(TRAJECTORY_COLUMNS).index(name)
        return np.array([record[at] for record in self.trajectories])

    def sampled(self, name: str) -> np.ndarray:
        at = list(TIMELINE_COLUMNS).index(name)
        return np.array([record[at] for record in self.samples], dtype=float)


def serve(trajectories: Iterable[Trajectory], schedule: Any, closed: Closed | None = None,
          until_s: float | None = None) -> Run:
    """Run trajectories on one replica without a prefix cache and with memory for all of them."""
    env, run = simpy.Environment(), Run()
    cluster = run.cluster = Cluster(env, run, LeastLoaded())
    pool = BlockPool(1 << 50, 1 << 20)
    kv = KvCache(pool, PrefixTree(pool), enabled=False)
    cost = ConstantStep()
    replica = Replica(env, cluster, 0, kv, cost, schedule, run)
    transfers = Transfers(env, 0, Link(env, 1e9, 1e9), Host(env, HostConfig({}), 1), 1, run)
    replica.attach(Pauses(env, replica, kv, transfers, cost, Drop(), Drop().predictor.start({}), run))
    cluster.replicas.append(replica)
    cluster.feed(iter(trajectories), closed)
    env.run(until=until_s)
    run.end_s = env.now
    replica.accounts.advance(env.now)
    run.samples.extend(replica.accounts.samples)
    return run


def turn(output_tokens: int, *, prompt_tokens: int = 1, wait_s: float = 0.0) -> Turn:
    """Return a turn that shares nothing with any other."""
    return Turn(Stream(), prompt_tokens, output_tokens, wait_s=wait_s)


def poisson(rate: float, turns: Iterable[Turn], rng: random.Random) -> Iterator[Trajectory]:
    """Yield trajectories of one turn each, `rate` a second."""
    now_s = 0.0
    for number, only in enumerate(turns):
        now_s += rng.expovariate(rate)
        yield Trajectory(number, now_s, [only], 1)


def geometric(rng: random.Random, mean: float = MEAN_TOKENS) -> int:
    """Draw output tokens; over many steps a geometric count of them is an exponential service time."""
    return max(1, round(rng.expovariate(1.0 / mean) + 0.5))


def interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Return the 99.9 % confidence interval of the mean by batch means; the first tenth is warm-up and is cut off."""
    values = np.asarray(values, dtype=float)
    values = values[len(values) // 10:]
    means = np.array([batch.mean() for batch in np.array_split(values, BATCHES)])
    half = stats.t.ppf(0.5 + CONFIDENCE / 2, BATCHES - 1) * means.std(ddof=1) / BATCHES ** 0.5
    return means.mean() - half, means.mean() + half


def assert_mean(values: Sequence[float] | np.ndarray, expected: float, *, within: float, bias: float = 0.0) -> None:
    """Assert that `expected` lies in the interval of the mean, and that the interval is narrow enough to say something.

    Parameters
    ----------
    within
        The interval's half-width must be under this share of `expected`.
    bias
        What the model is known to differ by from the formula (the length of a step, say).
    """
    low, high = interval(values)
    assert (high - low) / 2 < within * expected, f"interval {low:.4g} .. {high:.4g} is too wide"
    assert low - bias <= expected <= high + bias, f"{expected:.4g} is not within {low:.4g} .. {high:.4g}"
