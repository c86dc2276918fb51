"""`kvplan sweep`: from the scenario to the table of its points."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.metrics import wording

if TYPE_CHECKING:
    from rich.console import Console

    from sim.sweep.pool import Backend
    from sim.sweep.sweeping import Progress, SweepResult

#: Points shown; the others are in the file.
SHOWN = 60
#: The wait whose interval is shown.
WAIT = "ttft_resumed_p95_s"
#: What `sim.metrics.steady` says, in a narrow column.
STEADY = {"NOT steady": "NO", "too short to tell": "too short", "steady, at its limit": "at limit", "steady": "yes"}


def run(scenario: Path, out: Path, overrides: Sequence[str], *, replications: int | None, jobs: int | None,
        backend: Backend, keep: bool, retry: bool, force: bool) -> SweepResult:
    """Run a sweep, with its progress on a terminal, and say what failed."""
    from sim.sweep.sweeping import sweep

    with bar() as progress:
        result = sweep(scenario, out, overrides=overrides, replications=replications, jobs=jobs, backend=backend,
                       keep=keep, retry=retry, force=force, progress=progress)
    failed = result.points[result.points["status"] == "failed"]
    if len(failed):
        print(f"kvplan: {len(failed)} of {len(result.points)} runs failed, the first: point "
              f"{failed['point'].iloc[0]}: {failed['error'].iloc[0]}", file=sys.stderr)
    return result


@contextmanager
def bar() -> Iterator[Progress | None]:
    """Give a callback that draws on a terminal's stderr; None when stderr is something else.

    The time left is that of an average run so far, times the runs left. Runs are taken in random order, so it is not
    fooled by long points that come last; runs found finished do not count as quick ones.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    drawn: Any = None

    def progress(done: int, failed: int, whole: int) -> None:
        nonlocal drawn
        if drawn is None:
            drawn = tqdm(total=whole, initial=done, desc="sweep", unit="run", smoothing=0.0, leave=False,
                         file=sys.stderr)
        drawn.update(done - drawn.n)
        if failed:
            drawn.set_postfix_str(f"{failed} failed")

    try:
        yield progress
    finally:
        if drawn is not None:
            drawn.close()


def show(result: SweepResult, to: Console | None = None) -> None:
    """Print one row a point: axes, means over replications, and whether it was steady."""
    from sim.report import tables

    if result.failed == len(result.points):
        return
    headers, rows = table(result)
    tables.show_rows(rows, headers=headers, to=to)
    out = to or tables.console()
    out.print()
    for line in _notes(result):
        out.print(line)


def html(result: SweepResult) -> str:
    """Return the same table for a notebook."""
    import pandas as pd

    if result.failed == len(result.points):
        return f"<p>{result.failed} runs, all of them failed; see points[\"error\"]</p>"
    headers, rows = table(result)
    made = pd.DataFrame(rows, columns=headers).to_html(index=False, justify="left", border=0)
    return f"{made}<p>{'<br>'.join(_notes(result))}</p>"


def table(result: SweepResult) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells: one row a point, the first `SHOWN` of them.

    Half the width of the waits' 95 % interval stands where points have several replications; `steady` is of the worst.
    """
    mean, spread = result.mean, result.interval(WAIT)
    several = bool(spread[f"{WAIT}_low"].notna().any())
    headers = [*_short(result.axes), "steady", "turns/s", "TTFT p95", *(["95 %"] if several else []),
               "ITL p99", "found", "USD", "binds", "SLO met"]
    rows = []
    for point, row in mean.head(SHOWN).iterrows():
        wait, high = _given(row[WAIT]), _given(spread.at[point, f"{WAIT}_high"])
        half = wording.NONE if not wait or high is None else f"± {wording.percent(high / wait - 1)}"
        met = _given(row.get("slo_met"))
        rows.append([*(_value(row[axis]) for axis in result.axes), STEADY.get(str(row.get("steady")), wording.NONE),
                     wording.number(_given(row["turns_per_s"])), wording.seconds(wait),
                     *([half] if several else []), wording.seconds(_given(row["itl_p99_s"])),
                     wording.percent(_given(row["hit_rate_total"])), wording.usd(_given(row["usd_per_trajectory"])),
                     wording.RESOURCES.get(row["binds"], str(row["binds"])).partition(" (")[0],
                     wording.NONE if met is None else wording.percent(met)])
    return headers, rows


def _notes(result: SweepResult) -> list[str]:
    """Return what stands below the table: what its columns mean, and what it leaves out."""
    count = result.points.loc[result.points["status"] == "finished", "point"].nunique()
    return [*([f"... and {count - SHOWN} points more"] if count > SHOWN else []),
            "TTFT of resumed turns and half its 95 % interval; found: share of prompt tokens; USD a trajectory",
            "steady: NO: waits depend on the length of the run, the queue grows; at limit: turns wait long",
            f"{count} points, {len(result.points)} runs, {result.failed} failed"]


def data(result: SweepResult) -> dict[str, Any]:
    """Return the points as plain data."""
    from sim.sweep.store import plain

    made: dict[str, Any] = plain({"axes": result.axes, "points": result.points.to_dict("records")})
    return made


def _short(axes: Sequence[str]) -> list[str]:
    """Return the last parts of dotted paths, as many as tell them apart."""
    last = [axis.rpartition(".")[2] for axis in axes]
    return [short if last.count(short) == 1 else axis for short, axis in zip(last, axes, strict=True)]


def _given(value: Any) -> float | None:
    return None if value is None or value != value else float(value)


def _value(value: Any) -> str:
    if isinstance(value, bool | str) or value is None or not hasattr(value, "__float__"):
        return str(value)
    number = float(value)
    if number != number:
        return wording.NONE
    if abs(number) >= 1e6:
        power = 3 * (len(f"{abs(number):.0f}") // 3 - (len(f"{abs(number):.0f}") % 3 == 0))
        return f"{number / 10**power:.4g}e{power}"
    return f"{number:,.6g}"
