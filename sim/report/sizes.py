"""`kvplan size`: the capacity, what binds it, and what more of each resource gives."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.metrics import wording
from sim.metrics.steady import too_short

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
    if result.missed_beyond and result.answer is not None:
        rows.append(("one fewer" if result.find == "replicas" else "just beyond", result.missed_beyond))
    if result.summary is not None and (short := too_short(result.summary)):
        rows.append(("too short", short))
    if result.summary is not None and (usd := result.summary["cost"]["usd_per_trajectory"]) is not None:
        rows.append(("cost", f"{wording.usd(usd)} a trajectory"))
    reliefs = (f" ({result.simulations_in_all} with the reliefs)"
               if result.simulations_in_all > result.simulations else "")
    rows.append(("tried", f"{len(result.candidates)} loads, {result.simulations} runs{reliefs}, seed {result.seed}; "
                          f"closed forms said {wording.number(result.guess)}"))
    tables.show_rows(rows, to=out)
    if result.objectives:
        out.print()
        tables.show_rows([(row["objective"], *(_figure(row, name) for name in ("limit", "mean", "low", "high")),
                           row["answer"]) for row in result.objectives],
                         headers=("at the answer", "limit", "mean", "low", "high", ""), to=out)
    out.print()
    tables.show_rows([(f"{row['value']:,.6g}", row["verdict"], row["replications"], row["why"] or wording.NONE)
                      for row in sorted(result.candidates, key=lambda row: row["value"])],
                     headers=(result.unit, "verdict", "replications", "why"), to=out)
    if result.reliefs:
        out.print()
        tables.show_rows([(row["what"], f"{row['answer']:,.6g}", _change(row, result), _span(row, result),
                           row.get("buy", ""))
                          for row in sorted(result.reliefs, key=lambda row: (-row["clear"], -row["gain"]))],
                         headers=("25 % more of", result.unit, "change", "interval", "what to buy"), to=out)


def _change(row: dict[str, Any], result: SizeResult) -> str:
    """Return by how much the answer moves: more load, or fewer replicas."""
    if not row["gain"]:
        return "none"
    sign, share = ("-", -row["change"]) if result.find == "replicas" else ("+", row["change"])
    return f"{sign}{row['gain']:,.3g} ({share:+.0%})" if row["clear"] else "unclear"


def _span(row: dict[str, Any], result: SizeResult) -> str:
    """Return the interval of an answer with more of a resource; an end that no load tried gave is left open."""
    low = f"{row['low']:,.6g}"
    if row["high"] is None:
        return f"{low} or more"
    return low if row["low"] == row["high"] else f"{low} to {row['high']:,.6g}"


def _headline(result: SizeResult) -> str:
    if result.answer is None:
        tried = "number of replicas" if result.find == "replicas" else "load"
        why = result.candidates[-1]["why"] if result.candidates else ""
        return f"no {tried} tried meets the objectives{f': {why}' if why else ''}"
    few = "as few as " if result.find == "replicas" else ""
    one = result.answer == 1
    unit = result.unit.removesuffix("s") if result.find == "replicas" and one else result.unit
    sure = result.high == result.answer if result.find == "replicas" else result.low == result.answer
    surely = result.high if result.find == "replicas" else result.low
    likely = "" if sure else f", most likely ({surely:,.6g} surely)" if surely else ", most likely"
    return f"{few}{result.answer:,.6g} {unit} meet{'s' if one else ''} the objectives{likely}"


def _interval(result: SizeResult) -> str:
    if result.find == "replicas" and result.high is None:
        return f"no number of replicas tried surely does; fewer than {result.low:,.6g} surely do not"
    if result.find == "replicas":
        sure = f"{result.high:,.6g} surely {'does' if result.high == 1 else 'do'}"
        return sure if result.low == result.high else f"{result.low:,.6g} may do, {sure}"
    least = min((row["value"] for row in result.candidates), default=0.0)
    low = (f"{result.low:,.6g} surely meet them" if result.low else
           f"of the loads tried, down to {least:,.6g}, none surely meets them")
    return f"{low}, " + ("none surely misses them" if result.high is None else f"{result.high:,.6g} surely miss them")


def _binds(result: SizeResult) -> str:
    """Return what binds, in the words of the reliefs where they were measured."""
    if result.binds is None:
        return f"unclear: {result.why}" if result.binds_by == "unclear" else result.why or "unknown"
    name = wording.RESOURCES.get(result.binds, _extra(result.binds))
    if result.binds_by == "ledger":
        place = "just beyond the answer" if result.answer is not None else (
            "at the most replicas tried" if result.find == "replicas" else "at the least load tried")
        return f"{name}, by the ledgers {place} (no relief was measured): {result.why}"
    more = [f"{row['what']} ({_change(row, result)})" for row in sorted(result.reliefs, key=lambda row: -row["gain"])
            if row["clear"] and row["gain"] > 0 and row["resource"] != result.binds]
    also = f"; so does more {', '.join(more)}" if more else "; more of anything else does not"
    own = next(row for row in result.reliefs if row["resource"] == result.binds)
    said = f" In the run just beyond, {result.why}." if result.why else ""
    return f"{name}: 25 % more moves the answer by {_change(own, result)}{also}.{said}"


def _extra(name: str | None) -> str:
    return {"batch_slots": "batch slots (max_seqs)", "dram": "DRAM tier"}.get(str(name), str(name))


def _figure(row: dict[str, Any], name: str) -> str:
    value = row[name]
    share = row["objective"].startswith("goodput")
    return wording.NONE if value is None else wording.percent(value) if share else wording.seconds(max(value, 0.0))
