"""The page of a sweep: the best points, pictures along its axes, and every point in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sim.metrics.wording import NONE, RESOURCES, number, percent, seconds, usd
from sim.report.html_page import Block, Cell, Page, Said, Sketchbook, Tile, code, sentences, table
from sim.report.sweeps import STEADY

if TYPE_CHECKING:
    import pandas as pd

    from sim.sweep.sweeping import SweepResult

#: Columns of the table of points, with what heads them and how they are written.
COLUMNS: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("ttft_resumed_p95_s", "resumed TTFT p95", seconds), ("ttft_first_p95_s", "first TTFT p95", seconds),
    ("itl_p99_s", "ITL p99", seconds), ("turns_per_s", "turns/s", number),
    ("hit_rate_total", "found", percent),
    ("usd_per_trajectory", "USD a traj.", usd), ("goodput_turns", "good turns", percent))
#: What `sim.metrics.steady` says of the worst replication of a point -> topic, sentence and mood.
_STATES = {
    "NOT steady": ("Not steady", "the queue or the number alive grows: their latencies depend on the length of the run",
                   "bad"),
    "too short": ("Too short", "half of the trajectories take longer than what is measured: contexts are young there, "
                  "and a load seems to fit that later does not", "bad"),
    "too short to tell": ("Too short to tell", "the measured span is too short to say whether the queue grows", "bad"),
    "steady, at its limit": ("Steady, at its limit", "turns wait, for room or for each other, for more than a fifth of "
                             "their time: fewer agents would each be served sooner", ""),
}
LATENCY, COST, RATE = "ttft_resumed_p95_s", "usd_per_trajectory", "turns_per_s"


def page(result: SweepResult, manifest: str) -> Page:
    """Return the page of a sweep."""
    import yaml

    from sim.sweep.provenance import version

    known = yaml.safe_load(manifest) or {}
    points, mean = result.points, result.mean
    runs = len(points)
    made = Page(title=f"{known.get('name', 'sweep')}: a sweep",
                subtitle=f"{points['point'].nunique():,} points over {', '.join(result.axes)}; {runs:,} runs, "
                         f"{result.failed:,} failed",
                footer=f"Written by kvplan {version()}. Times are simulated. This file holds all it shows and asks the "
                       "network for nothing.")
    made.tiles = list(_tiles(result, mean))
    made.add("What the sweep says", sentences(_findings(result, mean)))
    made.add("Along the axes", Block("figures", items=_figures(result)))
    made.add("Every point", _points(result, mean))
    made.add("Runs that failed", _failed(result))
    made.add("Scenario", code(manifest.strip("\n"), "The scenario the sweep was started with"))
    return made


def varied(result: SweepResult) -> list[str]:
    """Return the axes that take more than one value, those with most values first."""
    counts = {axis: result.points[axis].nunique(dropna=False) for axis in result.axes}
    return sorted((axis for axis, count in counts.items() if count > 1), key=lambda axis: -counts[axis])


def named(row: pd.Series[Any], axes: Sequence[str]) -> str:
    """Return what a point sets, in one line."""
    return ", ".join(f"{axis.rsplit('.', 1)[-1]} {_value(row[axis])}" for axis in axes)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return NONE if value is None or value != value else str(value)


def _best(mean: pd.DataFrame, column: str, *, high: bool = False) -> pd.Series[Any] | None:
    if column not in mean or not mean[column].notna().any():
        return None
    at: Any = mean[column].idxmax() if high else mean[column].idxmin()
    row: pd.Series[Any] = mean.loc[at]
    return row


def _tiles(result: SweepResult, mean: pd.DataFrame) -> Iterator[Tile]:
    axes = varied(result) or result.axes
    yield Tile("Points", number(len(mean)), f"{number(len(result.points))} runs, {number(result.failed)} failed",
               "bad" if result.failed else "")
    for label, column, high, write in (("Cheapest trajectory", COST, False, usd),
                                       ("Shortest resumed TTFT, p95", LATENCY, False, seconds),
                                       ("Most turns per second", RATE, True, number)):
        row = _best(mean, column, high=high)
        if row is not None:
            yield Tile(label, write(float(row[column])), named(row, axes))
    if "slo_met" in mean and mean["slo_met"].notna().any():
        met = mean[mean["slo_met"] == 1]
        yield Tile("Meet every objective", f"{len(met)} of {len(mean)}", "in every replication", "good" if len(met) else
                   "bad")


def _findings(result: SweepResult, mean: pd.DataFrame) -> Iterator[Said]:
    axes = varied(result) or result.axes
    if not len(mean):
        yield Said("No point finished", "Every run failed; the reasons are below.", "bad")
        return
    met = mean[mean["slo_met"] == 1] if "slo_met" in mean and mean["slo_met"].notna().any() else None
    if met is not None:
        row = _best(met, COST)
        yield Said("Objectives", "No point meets all of them in every replication.", "bad") if row is None else Said(
            "Cheapest within the objectives", f"{named(row, axes)}: {usd(float(row[COST]))} a trajectory, resumed TTFT "
            f"p95 {seconds(float(row[LATENCY]))}.", "first")
    bests = (("Cheapest", COST, False, usd), ("Quickest after a pause", LATENCY, False, seconds),
             ("Most turns", RATE, True, number))
    for text, column, high, write in bests:
        row = _best(mean, column, high=high)
        if row is not None:
            tail = " a trajectory" if column == COST else " a second" if column == RATE else " at p95"
            yield Said(text, f"{named(row, axes)}: {write(float(row[column]))}{tail}.")
    if "binds" in mean:
        counts = mean["binds"].value_counts()
        yield Said("What binds", ", ".join(f"{RESOURCES.get(str(name), str(name))} at {count} of {len(mean)} points"
                                           for name, count in counts.items()) + ".")
    if "steady" in mean:
        for word, (topic, text, mood) in _STATES.items():
            count = int((mean["steady"] == word).sum())
            if count:
                yield Said(topic, f"At {count} of {len(mean)} points {text}.", mood)


def _figures(result: SweepResult) -> list[Any]:
    from sim.report import plots
    from sim.report.plots import sweeps as drawing

    fine = result.points[result.points["status"] == "finished"]
    axes = [axis for axis in varied(result) if fine[axis].nunique() > 1]
    book, made = Sketchbook(), []
    columns = [(LATENCY, "low"), (RATE, "high"), (COST, "low")]
    columns = [(column, best) for column, best in columns if column in fine and fine[column].notna().any()]
    if not axes or not columns:
        return []
    numeric = sorted(axes, key=lambda axis: not _is_number(fine[axis]))
    along, by = numeric[0], numeric[1] if len(numeric) > 1 else None
    rest = f" Averaged over {', '.join(axes[2:])}." if len(axes) > 2 else ""
    count = fine["replication"].nunique()
    several = "" if count < 2 or len(axes) > 2 else (
        " Bands are 95 % intervals over replications." if count >= drawing.FEW else " Dots are single replications.")
    for column, _ in columns:
        name = _capital(drawing.unit(column))
        made.append(book.draw(plots.lines, f"{name.partition(' (')[0]} along {along}.{several}{rest}", fine, along,
                              column, by, title=name))
    if {LATENCY, COST} <= {column for column, _ in columns}:
        made.append(book.draw(plots.pareto, "Lower left is better; a point on the front is beaten by none in both.",
                              result.mean, COST, LATENCY, by=by or along, label=along if by else None,
                              title="Cost against latency"))
    if by is not None:
        for column, best in columns[:2]:
            made.append(book.draw(plots.heat_map, f"Framed: the best of each row.{rest}", fine, along, by, column,
                                  best=best, title=_capital(drawing.unit(column)), width=7.4,
                                  height=1.6 + 0.42 * fine[by].nunique()))
    return made


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _is_number(values: Any) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(values) and not is_bool_dtype(values))


def _points(result: SweepResult, mean: pd.DataFrame) -> Block:
    shown = [(column, head, write) for column, head, write in COLUMNS
             if column in mean and mean[column].notna().any()]
    rows = []
    for number_, row in mean.iterrows():
        cells: list[Cell | str] = [Cell(str(number_))]
        for axis in result.axes:
            value = row[axis]
            cells.append(Cell(_value(value), value if isinstance(value, int | float) else None))
        for column, _, write in shown:
            value = None if row[column] != row[column] else float(row[column])
            cells.append(Cell(write(value), "" if value is None else value))
        cells += [RESOURCES.get(row.get("binds"), str(row.get("binds"))).split(" (")[0]]
        if "steady" in mean:
            cells.append(STEADY.get(str(row["steady"]), str(row["steady"])))
        rows.append(cells)
    words = tuple(i for i, axis in enumerate(result.axes, 1) if not _is_number(mean[axis]))
    heads = ["point", *(axis.rsplit(".", 1)[-1] for axis in result.axes), *(head for _, head, _ in shown), "binds"]
    steady = ["steady"] if "steady" in mean else []
    return table([*heads, *steady], rows, words=(*words, *range(len(heads) - 1, len(heads) + len(steady))))


def _failed(result: SweepResult) -> Block:
    wrong = result.points[result.points["status"] == "failed"]
    return table(["point", *(axis.rsplit(".", 1)[-1] for axis in result.axes), "replication", "error"], [
        [Cell(str(row["point"])), *(_value(row[axis]) for axis in result.axes), Cell(str(row["replication"])),
         str(row["error"])] for row in wrong.to_dict("records")], words=(*range(1, 1 + len(result.axes)),
                                                                           len(result.axes) + 2))
