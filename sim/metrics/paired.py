"""Differences between two runs that served the same agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sim.metrics.intervals import student

if TYPE_CHECKING:
    import pandas as pd

#: Latencies compared turn by turn: label -> (begins, ends, which turns).
TURNS = {"TTFT, first turn": ("ready_s", "first_token_s", True), "TTFT, resumed": ("ready_s", "first_token_s", False),
         "turn": ("ready_s", "end_s", None)}
#: Columns of `turns` a comparison needs.
TURN_COLUMNS = ["replication", "trajectory", "turn", "branch", "status", "first", "ready_s", "first_token_s", "end_s"]
TRAJECTORY_COLUMNS = ["replication", "trajectory", "status", "start_s", "end_s"]


def paired(base: tuple[pd.DataFrame, pd.DataFrame], other: tuple[pd.DataFrame, pd.DataFrame],
           warmup_s: float) -> list[dict[str, Any]]:
    """Return mean differences `other` - `base` of latencies in seconds, with 95 % intervals.

    Parameters
    ----------
    base, other
        Turns and trajectories of each run.
    warmup_s
        Turns that became ready earlier in either run are left out.

    Notes
    -----
    A turn is paired with the same turn of the same trajectory. Differences are first averaged within a trajectory;
    trajectories (or replications, when there are three or more) are what the interval counts as independent.
    """
    keys = ["replication", "trajectory", "turn", "branch"]
    left, right = (_finished(frames[0], "ready_s", warmup_s) for frames in (base, other))
    both = left.merge(right, on=keys, suffixes=("_a", "_b"), validate="one_to_one")
    rows = []
    for label, (begin, end, first) in TURNS.items():
        chosen = both if first is None else both[both["first_a"] == first]
        rows.append(_row(label, chosen, begin, end))
    lives = [_finished(frames[1], "end_s", warmup_s) for frames in (base, other)]
    both = lives[0].merge(lives[1], on=keys[:2], suffixes=("_a", "_b"), validate="one_to_one")
    return [*rows, _row("trajectory", both, "start_s", "end_s")]


def _finished(frame: pd.DataFrame, when: str, warmup_s: float) -> pd.DataFrame:
    return frame[(frame["status"] == "finished") & (frame[when] >= warmup_s)]


def _row(label: str, both: pd.DataFrame, begin: str, end: str) -> dict[str, Any]:
    first, second = (both[f"{end}_{side}"] - both[f"{begin}_{side}"] for side in "ab")
    difference = second - first
    groups = ["replication"] if both["replication"].nunique() > 2 else ["replication", "trajectory"]
    means: Sequence[float] = list(difference.groupby([both[name] for name in groups]).mean())
    interval = student(means)
    centre = float(difference.mean()) if len(both) else None
    row = {"latency": label, "pairs": len(both), "base_s": float(first.mean()) if len(both) else None,
           "difference_s": centre, "low_s": None, "high_s": None, "sure": False}
    if interval is not None and centre is not None:
        half = (interval["high"] - interval["low"]) / 2
        row |= {"low_s": centre - half, "high_s": centre + half, "sure": abs(centre) > half}
    return row
