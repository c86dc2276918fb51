"""`kvplan run`: one scenario, or one scenario with a field varied, from the file to the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import _MISSING, InputError
from sim.report import held
from sim.report.progress import bar
from sim.scenario.loading import placed
from sim.sweep import store, variants
from sim.sweep.run import check, load, run

if TYPE_CHECKING:
    from rich.console import Console

    from sim.scenario.model import Scenario


#: Above the table of block sizes, where they differ.
BLOCKS_TITLE = ("what the block size means: tail waste of the pool, and of what running turns hold; entries of a "
                "median turn's table; rates of decode attention (blocks of 16 = 100 %) and of copies to the host")
#: Key of a point's value of the field that was varied.
VALUE = "value"


@dataclass(frozen=True, slots=True)
class Runs:
    """A line that says what was run, and the summaries by the value that was varied (None for a single run)."""

    title: str
    summaries: dict[str | None, dict[str, Any]]
    #: For each value and replication, what its pauses held and how long turns waited (see `held`).
    points: list[dict[str, Any]] = field(default_factory=list)
    #: Where the figure that goes with them belongs; None for a single run, or where nothing is written.
    figure: Path | None = None

    def data(self) -> dict[Any, Any]:
        """Return the summary of a single run, or summaries by value."""
        single = self.summaries.get(None)
        return dict(self.summaries) if single is None else single


def start(scenario: Path, out: Path | None, overrides: Sequence[str], vary: str | None, *, force: bool) -> Runs:
    """Run a scenario: once, or for each value of `vary` (``field=a,b,c``) or of its own `vary:`.

    A scenario's own `vary:` has a figure even without an output folder, named after the scenario.
    """
    if vary is not None:
        path, values = variants.axis(vary)
        return varied(scenario, out, overrides, path, dict(zip(values, values, strict=True)), force=force)
    ready = load(scenario, overrides)
    if ready.vary is not None:
        made = varied(scenario, out, overrides, *variants.named(ready.vary), force=force, written=True)
        return made if out is not None else replace(made, figure=_unused(variants.file_name(ready.name)))
    if out is not None:
        store.check_free(out, force=force)
    with bar(ready.name) as progress:
        return Runs(variants.title(ready), {None: run(ready, out, force=force, progress=progress).summary})


def _unused(stem: str) -> Path:
    """Return the name of a picture in the present folder that is not taken."""
    numbers = (f"-{number}" if number > 1 else "" for number in count(1))
    return next(path for path in (Path(f"{stem}{number}.png") for number in numbers) if not path.exists())


def varied(scenario: Path, out: Path | None, overrides: Sequence[str], path: str, values: Mapping[str, str], *,
           force: bool, written: bool = False) -> Runs:
    """Run a scenario once for each value of a field, each into its own folder below `out`.

    The seed is the same for all, and every trajectory draws from its own stream: all runs see the same agents. An
    output folder that is taken is refused before any work. `written`: the values stand in the scenario's `vary:`.
    """
    ready = [_variant(scenario, overrides, path, index, value, written=written)
             for index, value in enumerate(values.values())]
    folders = variants.folders(out, list(values))
    for folder in folders:
        if folder is not None:
            store.check_free(folder, force=force)
    found: dict[str | None, dict[str, Any]] = {}
    points: list[dict[str, Any]] = []
    for name, variant, folder in zip(values, ready, folders, strict=True):
        with bar(name) as progress:
            result = run(variant, folder, force=force, progress=progress)
        found[name] = result.summary
        points += [{VALUE: name, **row} for row in held.rows(result)]
    return Runs(f"{variants.title(ready[0], without=path)}, {path} varied", found, points,
                None if out is None else out / "waits.png")


def _variant(scenario: Path, overrides: Sequence[str], path: str, index: int, value: str, *,
             written: bool) -> Scenario:
    """Load a scenario with one value of a varied field, and make sure that it can be run.

    A value that is wrong, or that the hardware has no room for, is placed where it was written: in the scenario, or
    behind ``--vary``.
    """
    try:
        return check(load(scenario, [*overrides, "vary=null", f"{path}={value}"]))
    except InputError as error:
        if written and scenario.is_file() and not any(text.startswith("vary") for text in overrides):
            raise placed(error, scenario, ("vary", path, index)) from None
        given = f"{path}={value}"
        if error.file is not None and error.file != f"--set {given}":
            raise InputError(f"{error}; with --vary {given}") from None
        raise InputError(error.reason, file=f"--vary {given}", field=error.field, **(
            {} if error.got is _MISSING else {"got": error.got})) from None


def draw(runs: Runs) -> bool:
    """Write the figure that goes with runs side by side; return whether there is one.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    import pandas as pd

    from sim.report.plots import style
    from sim.report.plots.held import held_against_wait

    points = pd.DataFrame(runs.points)
    if runs.figure is None or points.empty:
        return False
    with style.context():
        figure, ax = style.figure(7.6, 4.4)
        held_against_wait(points, VALUE, ax, title=f"{runs.title.partition(',')[0]}: the same agents in every run")
        try:
            figure.savefig(runs.figure, metadata={"Software": None})
        except OSError as error:
            raise store.OutputError(f"{runs.figure}: {error.strerror or error}") from error
    return True


def rows(runs: Runs) -> list[list[str]]:
    """Return a row for each value: its name, and its figures under `held.HEADERS`."""
    points = {name: [point for point in runs.points if point[VALUE] == name] for name in runs.summaries}
    first = next(iter(points.values()))
    return [[str(name), *held.cells(summary, points[name], first)] for name, summary in runs.summaries.items()]


def show(runs: Runs, to: Console | None = None) -> None:
    """Print one run's summary, or a table with a column a value."""
    from sim.metrics import wording
    from sim.metrics.steady import too_short_of
    from sim.report.tables import MOST_COLUMNS, console, show_compared, show_rows, show_summary

    if None in runs.summaries:
        show_summary(runs.title, runs.summaries[None], to)
    elif len(runs.summaries) > MOST_COLUMNS:
        show_rows(rows(runs), headers=["", *held.HEADERS], title=f"{runs.title}\n{held.LEGEND}", to=to)
    else:
        show_compared(runs.title, [(str(value), summary) for value, summary in runs.summaries.items()], to)
    said = too_short_of({str(name): found for name, found in runs.summaries.items() if name is not None})
    if said:
        (to or console()).print(f"\n{said}", highlight=False)
    if len({(summary.get("blocks") or {}).get("block_tokens") for summary in runs.summaries.values()}) > 1:
        traded = [[str(name), *wording.blocks(summary)] for name, summary in runs.summaries.items()]
        show_rows(traded, headers=["", *wording.BLOCKS], title=BLOCKS_TITLE, to=to)
