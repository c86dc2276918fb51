"""What pauses held of HBM, beside how long resumed turns waited: the two sides of a retention policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sim.metrics import wording
from sim.metrics.intervals import student

if TYPE_CHECKING:
    from sim.sweep.result import Result

#: Columns of the table of many runs, and what they say.
HEADERS = ("p50", "p95", "95 % interval", "held", "turns/s", "found", "recomputing", "forced", "preempted")
LEGEND = ("p50, p95: TTFT of resumed turns; held: GB-seconds of HBM that pauses hold, a turn; found: share of\n"
          "prompt tokens; recomputing: share of GPU time; forced: pins taken back; preempted: turns")


def rows(result: Result) -> list[dict[str, float]]:
    """Return for each replication ``ttft_resumed_p95_s`` and ``held_GB_s``: GB-seconds of HBM a finished turn.

    HBM that pauses held counts until the turn behind them is ready; pauses that began in the warm-up are left out.
    """
    warmup_s = result.summary["checks"]["warmup_s"]
    pauses, turns = result.pauses, result.turns
    turns = turns[(turns["status"] == "finished") & (turns["ready_s"] >= warmup_s)]
    held = pauses[pauses["start_s"] >= warmup_s].groupby("replication")["hold_hbm_byte_s"].sum() / 1e9
    found = []
    for replication, chosen in turns.groupby("replication"):
        resumed = chosen[~chosen["first"]]
        if len(resumed):
            wait_s = (resumed["first_token_s"] - resumed["ready_s"]).quantile(0.95)
            found.append({"ttft_resumed_p95_s": float(wait_s),
                          "held_GB_s": float(held.get(replication, 0.0)) / len(chosen)})
    return found


def cells(summary: Mapping[str, Any], points: Sequence[Mapping[str, float]]) -> list[str]:
    """Return one run's figures under `HEADERS`."""
    resumed, counts, gpu = summary["ttft_s"]["resumed"], summary["counts"], summary["ledger"]["gpu_s"]
    held = [point["held_GB_s"] for point in points]
    spread = student([point["ttft_resumed_p95_s"] for point in points]) if len(points) > 2 else None
    interval = wording.NONE
    if spread is not None:
        interval = f"{wording.seconds(max(spread['low'], 0.0))} to {wording.seconds(spread['high'])}"
    return [wording.seconds(resumed["p50"]), wording.seconds(resumed["p95"]), interval,
            wording.number(sum(held) / len(held)) if held else wording.NONE,
            wording.number(summary["throughput"]["turns_per_s"]), wording.percent(summary["hit_rate"]["total"]),
            wording.percent(gpu["recompute"] / sum(gpu.values())), wording.number(counts["forced_evictions"]),
            wording.number(counts["preemptions"])]
