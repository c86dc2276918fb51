"""What a run gives back: a summary, tables, and a folder to keep them in."""

from __future__ import annotations

import shutil
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
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
        steps = store.read_steps(path)
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

    @cached_property
    def address_space(self) -> pd.DataFrame:
        """Pictures of the pool at some moments; columns in `sim.records.SPACE_COLUMNS`, plus `replication`."""
        return self._frame("address_space")

    def fragmentation(self, request: int, *, replication: int = 0) -> pd.DataFrame:
        """Return how well the pool was used over time, and how scattered what was free.

        Parameters
        ----------
        request
            Tokens somebody asks for: external fragmentation is the share of free memory in holes too small for them.
        replication
            Which one.

        Returns
        -------
        DataFrame
            Columns ``time_s``, ``replica``, ``allocation_efficiency``, ``effective_occupancy`` and
            ``external_fragmentation``; a row for each moment of which there is a picture.

        Raises
        ------
        InputError
            The request is not above 0.
        """
        import pandas as pd

        from sim.metrics.space import COLUMNS, fragmentation

        if request < 1:
            raise InputError("expected tokens, 1 or more", field="request", got=request)
        frame = self.address_space
        mine = frame[frame["replication"] == replication]
        return pd.DataFrame(fragmentation({name: mine[name].to_numpy() for name in COLUMNS}, request,
                                          self._piece_tokens))

    def pool_at(self, time_s: float | None = None, *, replication: int = 0) -> pd.DataFrame:
        """Return the picture of the pool nearest to a time, a row a segment; what `plots.address_space` draws.

        Parameters
        ----------
        time_s
            The time; when left out, that of the picture with the most memory taken.
        replication
            Which one.

        Returns
        -------
        DataFrame
            Columns ``allocator`` (its name, and the replica's number if there are several), ``time_s``, ``start`` and
            ``end`` (token slots), ``use`` (useful, reserved, hole), ``trajectory`` (missing where it is nobody's).
        """
        frame = self.address_space
        frame = frame[frame["replication"] == replication]
        if time_s is None:
            taken = (frame["end"] - frame["start"]).where(frame["use"] != "hole", 0).groupby(frame["time_s"]).sum()
            time_s = float(taken.index[int(taken.to_numpy().argmax())]) if len(taken) else 0.0
        nearest = (frame["time_s"] - time_s).abs().groupby(frame["replica"]).transform("min")
        frame = frame[(frame["time_s"] - time_s).abs() == nearest].sort_values(["replica", "time_s", "start"])
        frame = frame.drop_duplicates(["replica", "start"])  # two moments may be as near
        kind = self.scenario.engine.allocator.kind
        several = frame["replica"].nunique() > 1
        names = [f"{kind}, replica {number}" if several else kind for number in frame["replica"]]
        owners = frame["trajectory"].astype("Int64")
        return frame.assign(allocator=names, trajectory=owners.mask(owners < 0)).reset_index(drop=True)[
            ["allocator", "time_s", "start", "end", "use", "trajectory"]]

    def bill(self, *prices: str, ttl: str | float | None = None, daily_tasks: float | None = None) -> pd.DataFrame:
        """Return what the run's trajectories would cost at providers that cache prompts, next to its own cost.

        Parameters
        ----------
        prices
            Models with a price, like ``claude-sonnet-4.5``; all of them when left out.
        ttl
            Time to live of what is cached, in seconds or as text like ``1 h``; models that are named must sell it.
        daily_tasks
            Trajectories a day: adds ``usd_per_day`` and ``usd_per_task``, and of the run's own row ``deployments`` like
            the one simulated, ``nodes`` in all and their ``utilisation`` (`sim.metrics.volume`).

        Returns
        -------
        DataFrame
            One row a price, the run's own first (``self-hosted``): ``usd`` and ``usd_per_trajectory`` of the measured
            span, its parts (``read_usd``, ``write_usd``, ...) and tokens (`sim.metrics.billing.table`).

        Raises
        ------
        InputError
            A model has no price, or is not sold with that time to live; `ttl` is no time, `daily_tasks` no number of
            tasks, or nothing finished.
        """
        from sim.metrics import billing

        return billing.table(self.turns, self.summary, prices, ttl, daily_tasks, self.scenario.nodes)

    @property
    def _piece_tokens(self) -> int:
        """Tokens into which a request may be cut; 0 for a contiguous allocator."""
        engine = self.scenario.engine
        return int(engine.block_size) if engine.allocator.paged else 0

    @property
    def plot(self) -> Any:
        """Figures of the run: ``result.plot.pool_use()``, ``result.plot()`` for an overview (`sim.report.plots`)."""
        from importlib import import_module  # by name: reports lie above results

        return import_module("sim.report.plots.accessor").Plots(self)

    def _frame(self, table: str) -> pd.DataFrame:
        if self._tables is not None:
            return self._tables.frame(table)
        assert self.folder is not None
        return store.read_table(self.folder / f"{table}.parquet")

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
