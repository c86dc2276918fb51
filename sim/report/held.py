"""What pauses held of HBM, beside how long resumed turns waited: the two sides of a retention policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sim.metrics import wording
from sim.metrics.intervals import student

if TYPE_CHECKING:
    from sim.sweep.result import Result

#: Columns of the table of many runs, and what they say.
HEADERS = ("p50", "p95", "p95 differs", "held", "found", "again", "turns/s", "taken")
LEGEND = ("p50, p95: TTFT of resumed turns; differs: from the first row, replication by replication;\n"
          "held: GB-seconds of HBM a pause; found: share of prompt tokens; again: share of GPU time that\n"
          "computes tokens again; taken: pins taken back; ±: 95 % interval over replications")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "": 1.0}


def rows(result: Result) -> list[dict[str, float]]:
    """Return a row for each replication: percentiles of resumed turns' TTFT, and what pauses held.

    Keys are ``replication``, ``ttft_resumed_p50_s``, ``ttft_resumed_p95_s`` and ``held_GB_s``: GB-seconds of HBM a
    pause, until the turn behind it is ready. Turns and pauses that began in the warm-up are left out, and a replication
    without a resumed turn.
    """
    warmup_s = result.summary["checks"]["warmup_s"]
    pauses, turns = result.pauses, result.turns
    resumed = turns[(turns["status"] == "finished") & (turns["ready_s"] >= warmup_s) & ~turns["first"]]
    held = pauses[pauses["start_s"] >= warmup_s].groupby("replication")["hold_hbm_byte_s"].mean() / 1e9
    found = []
    for replication, chosen in resumed.groupby("replication"):
        wait_s = chosen["first_token_s"] - chosen["ready_s"]
        found.append({"replication": replication, "held_GB_s": float(held.get(replication, 0.0)),
                      **{f"ttft_resumed_p{share}_s": float(wait_s.quantile(share / 100)) for share in (50, 95)}})
    return found


def cells(summary: Mapping[str, Any], points: Sequence[Mapping[str, Any]],
          first: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one run's figures under `HEADERS`; `first` are the points of the run that it is compared with.

    Replications are compared one by one: they drew the same agents, so what the agents themselves vary by cancels.
    """
    counts, gpu = summary["counts"], summary["ledger"]["gpu_s"]
    before = {point["replication"]: point["ttft_resumed_p95_s"] for point in first}
    apart = [point["ttft_resumed_p95_s"] - before[point["replication"]]
             for point in points if point["replication"] in before]
    return [*(_about([point[f"ttft_resumed_p{share}_s"] for point in points], wording.seconds) for share in (50, 95)),
            _about(apart, wording.seconds, sign="+") if any(apart) else wording.NONE,
            _about([point["held_GB_s"] for point in points], wording.number),
            wording.percent(summary["hit_rate"]["total"]), wording.percent(gpu["recompute"] / sum(gpu.values())),
            wording.number(summary["throughput"]["turns_per_s"]), wording.number(counts["forced_evictions"])]


def _about(values: Sequence[float], write: Callable[[float], str], sign: str = "") -> str:
    """Return the mean over replications, with half of its interval where there are at least three.

    The half is rounded to one digit, to two if the first is 1; the mean to the same place.
    """
    if not values:
        return wording.NONE
    mean = sum(values) / len(values)
    spread = student(values) if len(values) > 2 else None
    text = write(abs(mean))
    before = ("-" if mean < 0 else sign) if mean else ""
    if spread is None or spread["high"] == spread["low"]:
        return before + text
    unit = text.partition(" ")[2]
    half = (spread["high"] - spread["low"]) / 2 / _UNITS[unit]
    digits = -math.floor(math.log10(half / 2))
    figures = (f"{round(figure, digits):,.{max(digits, 0)}f}" for figure in (abs(mean) / _UNITS[unit], half))
    return f"{before}{'±'.join(figures)} {unit}".rstrip()
