"""What a run gives back: a summary, five tables, and a folder to keep them in."""

from __future__ import annotations

import json
import shutil
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.metrics.collect import Tables
from sim.records import TABLES
from sim.sweep import store

if TYPE_CHECKING:
    import pandas as pd


class Result:
    """The outcome of `sim.run`.

    Attributes
    ----------
    scenario
        The scenario that was run.
    summary
        The mapping that `summary.json` holds.
    steps
        Histograms of step time and inter-token latency, as `steps.json` holds them.
    folder
        Where the files lie; None for a result in memory.
    """

    def __init__(self, *, scenario: Any, summary: dict[str, Any], steps: dict[str, Any], run_yaml: str,
                 tables: Tables | None = None, folder: Path | None = None) -> None:
        self.scenario = scenario
        self.summary = summary
        self.steps = steps
        self.folder = folder
        self._run_yaml = run_yaml
        self._tables = tables

    @classmethod
    def load(cls, folder: str | Path) -> Result:
        """Read a run's folder back.

        Raises
        ------
        InputError
            The folder does not hold a run.
        """
        from sim.sweep.run import load

        path = Path(folder)
        summary = store.read_summary(path)
        steps = json.loads((path / "steps.json").read_text(encoding="utf-8"))
        return cls(scenario=load(path), summary=summary, steps=steps, folder=path,
                   run_yaml=(path / "run.yaml").read_text(encoding="utf-8"))

    @cached_property
    def turns(self) -> pd.DataFrame:
        """Turns; columns in `sim.records.TURN_COLUMNS`, plus `replication`."""
        return self._frame("turns")

    @cached_property
    def trajectories(self) -> pd.DataFrame:
        """Trajectories; columns in `sim.records.TRAJECTORY_COLUMNS`, plus `replication`."""
        return self._frame("trajectories")

    @cached_property
    def pauses(self) -> pd.DataFrame:
        """Pauses; columns in `sim.records.PAUSE_COLUMNS`, plus `replication`."""
        return self._frame("pauses")

    @cached_property
    def moves(self) -> pd.DataFrame:
        """Copies between tiers; columns in `sim.records.MOVE_COLUMNS`, plus `replication`."""
        return self._frame("moves")

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """Samples over time; columns in `sim.records.TIMELINE_COLUMNS`, plus `replication`."""
        return self._frame("timeline")

    @property
    def plot(self) -> Any:
        """Figures of the run: ``result.plot.pool_use()``, ``result.plot()`` for an overview (`sim.report.plots`)."""
        from importlib import import_module  # by name: reports lie above results

        return import_module("sim.report.plots.accessor").Plots(self)

    def _frame(self, table: str) -> pd.DataFrame:
        if self._tables is not None:
            return self._tables.frame(table)
        import pandas as pd

        assert self.folder is not None
        return pd.read_parquet(self.folder / f"{table}.parquet")

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the run's files to `folder` and return it.

        Raises
        ------
        InputError
            The folder is not empty (see `sim.sweep.store.check_free`).
        OutputError
            The file system refused.
        """
        out = Path(folder)
        with store.writing(out, force=force) as partial:
            for table in TABLES:
                if self._tables is not None:
                    self._tables.write(table, partial / f"{table}.parquet")
                elif self.folder is not None:
                    shutil.copyfile(self.folder / f"{table}.parquet", partial / f"{table}.parquet")
            self.write(partial)
        return out

    def write(self, folder: Path) -> None:
        """Write every file but the tables."""
        (folder / "run.yaml").write_text(self._run_yaml, encoding="utf-8")
        store.write_json(folder / "steps.json", self.steps)
        store.write_json(folder / "summary.json", self.summary)

    def __repr__(self) -> str:
        name = getattr(self.scenario, "name", "scenario")
        return f"<Result {name!r}: {self.summary['turns']} turns, binds {self.summary['binds']['resource']}>"

    def _repr_html_(self) -> str:
        from sim.metrics.wording import html

        return html(getattr(self.scenario, "name", "scenario"), self.summary)
