"""From the `workload:` section of a scenario to a `Workload`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

import workloads
from sim.errors import InputError
from workloads.arrivals import Arrivals, ClosedLoop, TraceTimes
from workloads.config import TraceConfig, WorkloadConfig
from workloads.generator import SyntheticWorkload
from workloads.readers import FORMATS, Problems, Progress, guess, kv_cache_tester, open_trace
from workloads.trajectory import Closed, Trajectory, Workload

DEFAULT_CONCURRENCY = 16  # trajectories alive, for a spec without arrivals
_ARRIVALS = 2  # purpose of the random stream, as in the generator


class TraceWorkload:
    """A `Workload` replayed from a recording.

    Parameters
    ----------
    config
        Which trace, and how to read it.
    path
        Where it is.
    arrivals
        None: the trace's own times if it has any, else all trajectories at once.

    Attributes
    ----------
    problems
        What the last call of `trajectories` has skipped.
    progress
        If set, called with 1 for every trajectory read.
    """

    def __init__(self, config: TraceConfig, path: Path, arrivals: Arrivals | None) -> None:
        self.path = path
        self.format = config.format or guess(path)
        self.problems = Problems(config.on_error)
        self.progress: Progress | None = None
        self._config = config
        if not path.exists():
            raise InputError("does not exist", file=path)
        timed = FORMATS[self.format].timed(path)
        if arrivals is None:
            arrivals = Arrivals(trace=TraceTimes()) if timed else \
                Arrivals(closed=ClosedLoop(concurrency=max(1, self._count())))
        elif arrivals.trace is not None and not timed:
            raise InputError(f"{path.name} does not say when its trajectories arrive; give closed or a rate",
                             field="workload.arrivals.trace")
        self.arrivals = arrivals
        loop = arrivals.closed
        self.closed = None if loop is None else Closed(loop.concurrency, loop.think, loop.ramp)

    def trajectories(self, seed: int, replication: int) -> Iterator[Trajectory]:
        """Yield the recorded trajectories; the seed matters only for times that are drawn."""
        self.problems = Problems(self._config.on_error)
        found = self._read()
        if self.closed is not None:
            yield from found
        elif self.arrivals.trace is not None:
            yield from self._in_time(found, self.arrivals.trace.time_scale)
        else:
            key = np.random.SeedSequence(seed, spawn_key=(replication, _ARRIVALS))
            times = self.arrivals.times(np.random.Generator(np.random.SFC64(key)))
            for trajectory, arrival_s in zip(found, times, strict=False):
                trajectory.arrival_s = arrival_s
                yield trajectory

    def _read(self) -> Iterator[Trajectory]:
        found = open_trace(self.path, self.format, block_size=self._config.block_size, problems=self.problems,
                           progress=self.progress)
        return islice(found, self._config.limit)

    def _count(self) -> int:
        if self.format == "kv-cache-tester":
            files = len(kv_cache_tester.files(self.path))
            return files if self._config.limit is None else min(files, self._config.limit)
        return sum(1 for _ in self._read())

    def _in_time(self, found: Iterator[Trajectory], scale: float) -> Iterator[Trajectory]:
        last_s = 0.0
        for trajectory in found:
            if trajectory.arrival_s < last_s:
                raise InputError(f"trajectory {trajectory.number} arrives before the one in front; sort the trace by "
                                 "time", file=self.path, field="arrival_s", got=trajectory.arrival_s)
            last_s = trajectory.arrival_s
            trajectory.arrival_s *= scale
            yield trajectory


def build(config: WorkloadConfig, base_dir: Path) -> Workload:
    """Return the workload that `config` describes; see `workloads.build`."""
    agents, arrivals = config.agents, config.arrivals
    if isinstance(agents, TraceConfig):
        return TraceWorkload(agents, base_dir / agents.trace.expanduser(), arrivals)
    spec = workloads.library(agents) if isinstance(agents, str) else agents
    if arrivals is not None and arrivals.trace is not None:
        raise InputError("a spec has no recorded times; give closed or a rate", field="workload.arrivals.trace")
    return SyntheticWorkload(spec, arrivals or Arrivals(closed=ClosedLoop(concurrency=DEFAULT_CONCURRENCY)))
