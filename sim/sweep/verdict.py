"""Does a load meet the objectives? Yes, no, or too close to say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

#: Confidence of one verdict. A search gives about ten of them, and all should hold.
LEVEL = 0.99

Answer = Literal["meets", "misses", "unsure"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the replications of one load say.

    Attributes
    ----------
    answer
        ``meets`` when every objective's interval lies within its limit, ``misses`` when one lies beyond, else
        ``unsure``.
    likely
        Whether the means meet the limits: what counts when nothing is sure.
    objectives
        For each: its limit, mean, interval (`LEVEL`) and answer. Latencies in seconds, shares as fractions.
    why
        What is missed, in words; empty when nothing is.
    """

    answer: Answer
    likely: bool
    objectives: list[dict[str, Any]]
    why: str


def judge(summaries: Sequence[Mapping[str, Any]], *, is_open: bool) -> Verdict:
    """Judge a load by the summaries of its replications (each of one run).

    A rejected turn counts as one that is later than any limit. An open workload whose queue grows has no steady
    state: it misses.
    """
    rows = [_objective(name, [_row(summary, name) for summary in summaries], _refused(summaries))
            for name in _names(summaries)]
    if is_open:
        unstable = sum(summary["checks"]["stable"] is False for summary in summaries)
        if 2 * unstable > len(summaries):
            rows.append({"objective": "stable", "limit": 1.0, "mean": 0.0, "low": 0.0, "high": 0.0,
                         "answer": "misses", "likely": False, "why": "the queue grows without end"})
    answers = [row["answer"] for row in rows]
    answer: Answer = "misses" if "misses" in answers else "unsure" if "unsure" in answers or not rows else "meets"
    likely = all(row["likely"] for row in rows)
    missed = [row["why"] for row in rows if not row["likely"]]
    return Verdict(answer, likely, rows, "; ".join(missed))


def effect(base: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any] | None:
    """Return by how much one objective differs from `base` in `other`, replication by replication, with its interval.

    The same replications see the same agents, so the difference is known far better than either value. None without
    two replications that have a value in both.
    """
    key = "value" if name.startswith("goodput.") else "value_s"
    pairs = [(_row(one, name).get(key), _row(two, name).get(key)) for one, two in zip(base, other, strict=False)]
    gaps = [two - one for one, two in pairs if one is not None and two is not None]
    if len(gaps) < 2:
        return None
    mean, half = _interval(gaps)
    worse = -1.0 if key == "value" else 1.0
    return {"objective": name, "difference": mean, "low": mean - half, "high": mean + half,
            "better": bool(worse * mean + half < 0)}


def _names(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["objective"] for summary in summaries for row in summary["goodput"]["objectives"]))


def _row(summary: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next((row for row in summary["goodput"]["objectives"] if row["objective"] == name), {})


def _refused(summaries: Sequence[Mapping[str, Any]]) -> float:
    refused = sum(summary["counts"].get("rejections", 0) for summary in summaries)
    served = sum(summary["turns"] for summary in summaries)
    return float(refused / max(refused + served, 1))


def _objective(name: str, rows: Sequence[Mapping[str, Any]], refused: float) -> dict[str, Any]:
    share = name.startswith("goodput.")
    limit = next(row["limit" if share else "limit_s"] for row in rows if row)
    values = [row["value" if share else "value_s"] for row in rows if row]
    values = [value for value in values if value is not None]
    made = {"objective": name, "limit": limit, "mean": None, "low": None, "high": None, "answer": "meets",
            "likely": True, "why": ""}
    if not share and refused > _may_be_late(name):
        return made | {"answer": "misses", "likely": False,
                       "why": f"{refused:.1%} of turns were rejected: {name} has no bound"}
    if not values:
        return made  # nothing of the kind happened: there is nothing to be late
    mean, half = _interval(values)
    low, high = mean - half, mean + half
    good, bad = (low >= limit, high < limit) if share else (high <= limit, low > limit)
    likely = mean >= limit if share else mean <= limit
    said = f"{name} {mean:.4g} {'<' if share else '>'} {limit:.4g}" + ("" if share else " s")
    return made | {"mean": mean, "low": low, "high": high, "answer": "meets" if good else "misses" if bad else "unsure",
                   "likely": likely, "why": said}


def _may_be_late(name: str) -> float:
    stat = name.rpartition(".")[2]
    return 1.0 - float(f"0.{stat[1:]}") if stat.startswith("p") else 0.0


def _interval(values: Sequence[float]) -> tuple[float, float]:
    import numpy as np
    from scipy.special import stdtrit

    n = len(values)
    mean = float(np.mean(values))
    if n < 2:
        return mean, math.inf
    return mean, float(stdtrit(n - 1, 0.5 + LEVEL / 2)) * float(np.std(values, ddof=1)) / n**0.5
