"""`kvplan run`: one scenario, or one scenario with a field varied, from the file to the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.report.progress import bar
from sim.sweep import store, variants
from sim.sweep.run import load, run

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Runs:
    """A line that says what was run, and the summaries by the value that was varied (None for a single run)."""

    title: str
    summaries: dict[str | None, dict[str, Any]]

    def data(self) -> dict[Any, Any]:
        """Return the summary of a single run, or summaries by value."""
        single = self.summaries.get(None)
        return dict(self.summaries) if single is None else single


def one(scenario: Path, out: Path | None, overrides: Sequence[str], *, force: bool) -> Runs:
    """Run a scenario; an output folder that is taken is refused before any work."""
    ready = load(scenario, overrides)
    if out is not None:
        store.check_free(out, force=force)
    with bar(ready.name) as progress:
        return Runs(variants.title(ready), {None: run(ready, out, force=force, progress=progress).summary})


def varied(scenario: Path, out: Path | None, overrides: Sequence[str], vary: str, *, force: bool) -> Runs:
    """Run a scenario once for each value of ``field=a,b,c``, each into its own folder below `out`.

    The seed is the same for all, and every trajectory draws from its own stream: all runs see the same agents.
    """
    field, values = variants.axis(vary)
    ready = [load(scenario, [*overrides, f"{field}={value}"]) for value in values]
    folders = variants.folders(out, values)
    for folder in folders:
        if folder is not None:
            store.check_free(folder, force=force)
    found: dict[str | None, dict[str, Any]] = {}
    for value, variant, folder in zip(values, ready, folders, strict=True):
        with bar(value) as progress:
            found[value] = run(variant, folder, force=force, progress=progress).summary
    return Runs(f"{variants.title(ready[0], without=field)}, {field} varied", found)


def show(runs: Runs, to: Console | None = None) -> None:
    """Print one run's summary, or a table with a column a value."""
    from sim.report.tables import show_compared, show_summary

    if None in runs.summaries:
        show_summary(runs.title, runs.summaries[None], to)
    else:
        show_compared(runs.title, [(str(value), summary) for value, summary in runs.summaries.items()], to)
