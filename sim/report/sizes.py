"""`kvplan size`: the capacity, what binds it, and what more of each resource gives."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.metrics import wording

if TYPE_CHECKING:
    from rich.console import Console

    from sim.sweep.size_result import SizeResult


def run(scenario: Path, find: str, overrides: Sequence[str], *, jobs: int | None, reliefs: bool) -> SizeResult:
    """Search, with a line for each load tried on a terminal's stderr."""
    from sim.sweep.sizing import size

    tell = (lambda text: print(text, file=sys.stderr)) if sys.stderr.isatty() else None
    return size(scenario, find, overrides=overrides, reliefs=reliefs, jobs=jobs, progress=tell)


def show(result: SizeResult, to: Console | None = None) -> None:
    """Print the answer, the objectives at it, the loads tried and the reliefs."""
    from sim.report import tables

    out = to or tables.console()
    out.print(_headline(result), style="bold")
    out.print()
    rows = [("interval", _interval(result)), ("binds", _binds(result))]
    if result.missed_beyond:
        rows.append(("just beyond", result.missed_beyond))
    if result.summary is not None:
        rows.append(("cost", f"{wording.usd(result.summary['cost']['usd_per_trajectory'])} a trajectory"))
    rows.append(("tried", f"{len(result.candidates)} loads, {result.simulations} runs "
                          f"({result.simulations_in_all} with the reliefs), seed {result.seed}; closed forms said "
                          f"{wording.number(result.guess)}"))
    tables.show_rows(rows, to=out)
    if result.objectives:
        out.print()
        tables.show_rows([(row["objective"], *(_figure(row, name) for name in ("limit", "mean", "low", "high")),
                           row["answer"]) for row in result.objectives],
                         headers=("at the answer", "limit", "mean", "low", "high", ""), to=out)
    out.print()
    tables.show_rows([(f"{row['value']:,.6g}", row["verdict"], row["replications"], row["why"] or wording.NONE)
                      for row in result.candidates], headers=(result.unit, "verdict", "replications", "why"), to=out)
    if result.reliefs:
        out.print()
        tables.show_rows([(row["what"], f"{row['answer']:,.6g}", _change(row), _span(row))
                          for row in sorted(result.reliefs, key=lambda row: -row["gain"])],
                         headers=("25 % more of", result.unit, "change", "interval"), to=out)


def _change(row: dict[str, Any]) -> str:
    return "none" if not row["gain"] else f"{row['change']:+.0%}" if row["clear"] else "unclear"


def _span(row: dict[str, Any]) -> str:
    return f"{row['low']:,.6g} to {'?' if row['high'] is None else format(row['high'], ',.6g')}"


def _headline(result: SizeResult) -> str:
    if result.answer is None:
        return f"no load tried meets the objectives: {result.candidates[-1]['why'] if result.candidates else ''}"
    few = "as few as " if result.find == "replicas" else ""
    return f"{few}{result.answer:,.6g} {result.unit} meet the objectives"


def _interval(result: SizeResult) -> str:
    if result.find == "replicas" and result.high is None:
        return f"no number of replicas tried surely does; fewer than {result.low:,.6g} surely do not"
    high = "nothing tried was too much" if result.high is None else f"{result.high:,.6g}"
    if result.find == "replicas":
        return f"{result.low:,.6g} may do, {high} surely do"
    return f"{result.low:,.6g} surely meet them, {high} surely miss them" if result.high is not None else (
        f"{result.low:,.6g} surely meet them, {high}")


def _binds(result: SizeResult) -> str:
    name = wording.RESOURCES.get(result.binds, _extra(result.binds))
    how = "its relief gives most" if result.binds_by == "relief" else "by the ledgers just beyond the answer"
    return f"{name} ({how}); {result.why}"


def _extra(name: str | None) -> str:
    return {"batch_slots": "batch slots (max_seqs)", "dram": "DRAM tier"}.get(str(name), str(name))


def _figure(row: dict[str, Any], name: str) -> str:
    value = row[name]
    share = row["objective"].startswith("goodput")
    return wording.NONE if value is None else wording.percent(value) if share else wording.seconds(max(value, 0.0))
