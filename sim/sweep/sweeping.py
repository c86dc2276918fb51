"""Run every point of a sweep; a run that has finished is never run again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.metrics.steady import WORST
from sim.sweep import points, pool, rows
from sim.sweep.folder import MANIFEST, TABLE, Folder
from sim.sweep.identity import Identity
from sim.sweep.points import Plan
from sim.sweep.store import OutputError

if TYPE_CHECKING:
    import pandas as pd

    from sim.scenario.model import Scenario

#: Called with the runs done (those found finished included), the failed ones among them, and the runs there are.
Progress = Callable[[int, int, int], None]
#: Seconds between two writings of the table while a sweep is under way.
REFRESH_S = 30.0


@dataclass(frozen=True, slots=True)
class Task:
    """One run to do."""

    key: str
    scenario: Scenario
    replication: int
    folder: Path | None = None
    keep: bool = False


class SweepResult:
    """The outcome of a sweep.

    Attributes
    ----------
    points
        One row a point x replication: axes in SI, then figures with their units in the names.
    axes
        Names of the columns that are axes.
    folder
        Where the files lie; None for a sweep in memory.
    """

    def __init__(self, frame: pd.DataFrame, axes: Sequence[str], folder: Path | None = None) -> None:
        self.points = frame
        self.axes = list(axes)
        self.folder = folder

    @classmethod
    def load(cls, folder: str | Path) -> SweepResult:
        """Read a sweep's folder back.

        Raises
        ------
        InputError
            The folder does not hold a sweep, or its table is damaged.
        """
        import pandas as pd

        path = Path(folder)
        if not (path / MANIFEST).is_file() or not (path / TABLE).is_file():
            raise InputError(f"not a folder of a sweep: it has no {MANIFEST} or no {TABLE}", got=str(folder))
        try:
            frame = pd.read_parquet(path / TABLE)
        except (OSError, ValueError) as error:
            raise InputError(f"damaged: run the sweep again, its runs are kept ({str(error)[:80]})",
                             file=path / TABLE) from None
        names = list(frame.columns)
        return cls(frame, names[1:names.index("run")], path)

    @property
    def failed(self) -> int:
        """Runs that failed."""
        return int((self.points["status"] == "failed").sum())

    @property
    def mean(self) -> pd.DataFrame:
        """One row a point: axes, replications that finished, and the mean of every figure over them.

        `binds` is what binds most often, `steady` what the worst replication is.
        """
        fine = self.points[self.points["status"] == "finished"]
        groups = fine.groupby("point", sort=True)
        numbers = [name for name in fine.select_dtypes(["number", "bool"]).columns
                   if name not in ("point", "replication", *self.axes)]
        figures = groups[numbers].mean()
        if "binds" in fine:
            figures.insert(0, "binds", groups["binds"].agg(lambda values: values.mode().iat[0]))
        if "steady" in fine and fine["steady"].notna().all():
            figures.insert(0, "steady", groups["steady"].agg(lambda words: min(words, key=WORST.index)))
        figures.insert(0, "replications", groups.size())
        return groups[self.axes].first().join(figures)

    def interval(self, figure: str) -> pd.DataFrame:
        """Return mean and 95 % interval (Student t over replications) of one figure for each point.

        The interval ends where the figure does, at 0. With one replication its ends are missing.
        """
        from sim.metrics.intervals import student, within

        fine = self.points[self.points["status"] == "finished"]
        groups = fine.groupby("point", sort=True)
        frame = groups[self.axes].first()
        found = {point: student([*values.dropna()]) for point, values in groups[figure]}
        frame[figure] = groups[figure].mean()
        for end in ("low", "high"):
            frame[f"{figure}_{end}"] = [None if at is None else within(at)[end] for at in map(found.get, frame.index)]
        return frame

    def __repr__(self) -> str:
        return f"<SweepResult: {self.points['point'].nunique()} points, {len(self.points)} runs, {self.failed} failed>"

    def _repr_html_(self) -> str:
        from importlib import import_module  # by name: reports lie above results

        html: str = import_module("sim.report.sweeps").html(self)
        return html


def sweep(scenario: Any, out: str | Path | None = None, *, axes: Mapping[str, Any] | None = None,
          overrides: Sequence[str] = (), replications: int | None = None, jobs: int | None = None,
          backend: pool.Backend = "loky", keep: bool = False, retry: bool = False, force: bool = False,
          progress: Progress | None = None) -> SweepResult:
    """Run every point of a scenario's sweep.

    Parameters
    ----------
    scenario
        What `sim.load` takes, or a loaded scenario.
    out
        Folder for the results; a sweep that was broken off there goes on. Without it results stay in memory.
    axes
        In place of the scenario's `sweep:`; the same shape, ``{"grid": {PATH: [VALUES]}}``.
    overrides
        ``dotted.path=value`` texts, under every point.
    replications
        In place of the sweep's or the scenario's. The k-th replication of every point sees the same agents.
    jobs, backend
        See `sim.sweep.pool.each`.
    keep
        Keep the tables of every run (turns, moves, ...) beside its row; needs `out`.
    retry
        Run again what failed before.
    force
        Go on in a folder that was started with another scenario.

    Raises
    ------
    InputError
        A point is wrong, or `out` holds something else: nothing has been run.
    OutputError
        Files could not be written, or a worker died; what had finished is kept.
    """
    plan = points.plan(scenario, overrides, axes, replications)
    known = Identity()
    keys = {(point.number, number): known.of(point.scenario, number)
            for point in plan.points for number in range(plan.replications)}
    data = {name: digest for point in plan.points for name, digest in known.data(point.scenario).items()}
    if out is None:
        found: dict[str, rows.Row] = {}
        _work(plan, keys, found, None, jobs, backend, keep=False, progress=progress)
        return SweepResult(rows.frame(rows.points(plan, keys, found)), plan.paths)
    folder = Folder(Path(out))
    with folder.opened(plan, data, force=force):
        found = folder.finished(keys, retry=retry)
        _work(plan, keys, found, folder, jobs, backend, keep=keep, progress=progress)
    return SweepResult(rows.frame(rows.points(plan, keys, found)), plan.paths, folder.path)


def _work(plan: Plan, keys: Mapping[tuple[int, int], str], found: dict[str, rows.Row], folder: Folder | None,
          jobs: int | None, backend: pool.Backend, *, keep: bool, progress: Progress | None) -> None:
    """Run what is not in `found` and add it there.

    Runs are taken in the order of their hashes, which is as good as random: then the time a run takes on average so
    far says how long the rest will take, whatever the order of the points.
    """
    tasks = {}
    for (point, number), key in keys.items():
        if key not in found:
            path = None if folder is None else folder.run(key)
            tasks[key] = Task(key, plan.points[point].scenario, number, path, keep)
    whole = len(set(keys.values()))
    written = time.monotonic()
    if progress is not None:
        progress(len(found), _failed(found), whole)
    try:
        for row in pool.each(perform, [tasks[key] for key in sorted(tasks)], jobs, backend):
            found[row["run"]] = row
            if progress is not None:
                progress(len(found), _failed(found), whole)
            if folder is not None and time.monotonic() - written > REFRESH_S:
                rows.write(folder.path / TABLE, rows.points(plan, keys, found))
                written = time.monotonic()
    finally:
        if folder is not None and found:
            rows.write(folder.path / TABLE, rows.points(plan, keys, found))


def _failed(found: Mapping[str, rows.Row]) -> int:
    return sum(row["status"] == "failed" for row in found.values())


def perform(task: Task) -> rows.Row:
    """Do one run and return its row; a failure is a row as well.

    Raises
    ------
    OutputError
        The row could not be written: that ends the sweep.
    """
    from sim.sweep.run import run_one

    row: rows.Row = {"run": task.key, "replication": task.replication, "status": "finished", "error": None}
    try:
        result = run_one(task.scenario, task.replication, task.folder if task.keep else None)
        row |= rows.flatten(result.summary)
    except OutputError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())
        kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
        row |= {"status": "failed", "error": kind + said}
    if task.folder is not None:
        rows.write(task.folder / "row.parquet", rows.table([row]))
    return row
