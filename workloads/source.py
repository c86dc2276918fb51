"""From the `workload:` section of a scenario to a `Workload`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

import workloads
from sim.errors import InputError
from workloads.arrivals import Arrivals, ClosedLoop, TraceTimes
from workloads.config import Mix, TraceConfig, WorkloadConfig
from workloads.generator import SyntheticWorkload
from workloads.readers import FORMATS, Problems, Progress, guess, kv_cache_tester, open_trace
from workloads.spec import TrajectorySpec
from workloads.trajectory import Closed, Trajectory, Workload

DEFAULT_CONCURRENCY = 16  # trajectories alive, for a spec without arrivals
DEFAULT_SAMPLE = 200  # trajectories looked at, of a spec
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
        if config.repeat > 1 and arrivals.trace is not None:
            raise InputError("needs arrivals of its own: the trace's times are those of one run",
                             field="workload.agents.repeat", got=config.repeat)
        self.arrivals = arrivals
        loop = arrivals.closed
        self.closed = None if loop is None else Closed(loop.concurrency, loop.think, loop.ramp)

    def trajectories(self, seed: int, replication: int) -> Iterator[Trajectory]:
        """Yield the recorded trajectories; the seed matters only for times that are drawn."""
        self.problems.clear()
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
        count = 0
        for again in range(self._config.repeat):
            problems = self.problems if not again else Problems("skip")  # what is wrong is counted once
            found = open_trace(self.path, self.format, block_size=self._config.block_size, problems=problems,
                               progress=self.progress)
            for trajectory in islice(found, self._config.limit):
                trajectory.number = count
                count += 1
                yield trajectory

    def _count(self) -> int:
        if self.format == "kv-cache-tester":
            files = len(kv_cache_tester.files(self.path))
            return self._config.repeat * (files if self._config.limit is None else min(files, self._config.limit))
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
    if arrivals is not None and arrivals.trace is not None:
        raise InputError("a spec has no recorded times; give closed or a rate", field="workload.arrivals.trace")
    return build_spec(agents, arrivals or Arrivals(closed=ClosedLoop(concurrency=DEFAULT_CONCURRENCY)))


def build_spec(agents: str | TrajectorySpec | Mix | TraceConfig, arrivals: Arrivals) -> SyntheticWorkload:
    """Return the workload of a spec, a library name or a mix of them."""
    assert not isinstance(agents, TraceConfig)
    kinds = [(kind.weight, _spec(kind.agents)) for kind in agents.mix] if isinstance(agents, Mix) \
        else [(1.0, _spec(agents))]
    (weight, spec), *others = kinds
    return SyntheticWorkload(spec, arrivals, others, weight)


def _spec(agents: str | TrajectorySpec) -> TrajectorySpec:
    return workloads.library(agents) if isinstance(agents, str) else agents


def named(source: str, *, trajectories: int | None = None, seed: int = 0, format: str | None = None,
          on_error: Literal["stop", "skip"] = "stop") -> tuple[Callable[[], Iterator[Trajectory]], Problems]:
    """Return what `source` names: a function that yields its trajectories afresh, and what they skip.

    Parameters
    ----------
    source
        The name of an agent in the library, a YAML file with a spec or a mix, or a trace's file or folder.
    trajectories
        How many at most; None: all of a trace, 200 of a spec.
    seed
        Root of the random streams of a spec.
    format, on_error
        How to read a trace.

    Raises
    ------
    InputError
        There is no such agent or file, or a field has a value that is not known.
    """
    if trajectories is not None and trajectories < 1:
        raise InputError("must be at least 1", field="--trajectories", got=trajectories)
    names = workloads.library_names()
    path = Path(source)
    if source not in names and not path.exists():
        raise InputError(f"is no trace, no spec, and no agent of the library ({', '.join(names)})", got=source)
    spec = source in names or path.suffix.lower() in (".yaml", ".yml")
    agents: Any = source if spec else {"trace": str(path.absolute()), "format": format, "on_error": on_error}
    try:
        workload: Any = build(WorkloadConfig.model_validate({"agents": agents}), Path())
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][2:]) or None
        raise InputError(first["msg"].removeprefix("Value error, "), file=source if spec else None, field=field,
                         got=first["input"]) from None
    limit = DEFAULT_SAMPLE if spec and trajectories is None else trajectories
    problems = Problems(on_error) if spec else workload.problems
    return (lambda: islice(workload.trajectories(seed, 0), limit)), problems
