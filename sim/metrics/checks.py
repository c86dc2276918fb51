"""Can the numbers be trusted? Stability, Little's law, ledgers that close."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics.collect import Columns
from sim.metrics.ledgers import Timeline
from sim.records import RunTotals

#: Windows the measured span is divided into for the test of stability.
WINDOWS = 20
#: One-sided Student t for 18 degrees of freedom at 0.5 %.
SLOPE_T = 2.88
#: Growth over the span, relative to the mean, below which a slope does not matter.
GROWTH = 0.25


def check(timeline: Timeline, turn: Mapping[str, NDArray[Any]], columns: Columns, totals: RunTotals, *, finite: bool,
          ledger: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return what is checked for one replication.

    `stable` (None when the span is too short to say); `little_residual` (None without turns); `alive_residual`, the
    difference between the engine's own time integral of trajectories alive and the sum of their recorded lives; and
    the residuals of the three ledgers. All residuals are relative.
    """
    span = timeline.end_s - timeline.warmup_s
    wholes = {"turn_s": float(turn["turn_s"].sum()), "pool_byte_s": totals.pool_bytes * span * totals.replicas,
              "gpu_s": span * totals.replicas}
    lives = in_system(columns, "trajectories", "start_s", ("unfinished",), 0.0, totals.end_s)
    return {
        "stable": _stable(timeline, columns, finite=finite),
        "little_residual": _little(columns, turn, timeline.warmup_s, timeline.end_s),
        "alive_residual": relative(lives, totals.alive_integral_s),
        "ledger_residual": {name: relative(sum(ledger[name].values()), whole) for name, whole in wholes.items()},
    }


def in_system(columns: Columns, table: str, begins: str, open_ended: tuple[str, ...], begin: float,
              stop: float) -> float:
    """Return the time integral, from `begin` to `stop`, of how many turns (or trajectories) are in the system.

    Rejected ones and pruned turns count as long as their records say; those with a status in `open_ended` are there
    to the end.
    """
    start, end = columns(table, begins), columns(table, "end_s")
    for status in open_ended:
        end = np.where(columns.equals(table, "status", status), stop, end)
    inside = np.clip(np.minimum(end, stop) - np.maximum(start, begin), 0.0, None)
    return float(inside[~np.isnan(inside)].sum())


def ages(columns: Columns, stop: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return how old each trajectory grew that began and was not rejected, and whether it had come to its end."""
    taken = ~columns.equals("trajectories", "status", "rejected")
    ended = columns.equals("trajectories", "status", "finished")
    last = np.where(ended, columns("trajectories", "end_s"), stop)
    return (last - columns("trajectories", "start_s"))[taken], ended[taken]


def median_life(ages_s: NDArray[Any], ended: NDArray[Any]) -> float | None:
    """Return the median life of trajectories of which some go on: what half of them take at most.

    That of those that ended would be too short, because the short ones end first. A trajectory that goes on counts as
    one that lives longer than it has until now (Kaplan and Meier 1958, "Nonparametric estimation from incomplete
    observations"). None where the run is too short to see half of them end.
    """
    order = np.lexsort((~ended, ages_s))
    left = np.cumprod(1.0 - ended[order] / np.arange(ages_s.size, 0, -1))
    half = np.flatnonzero(left <= 0.5)
    return float(ages_s[order][half[0]]) if half.size else None


def relative(value: float, whole: float) -> float:
    """Return ``|value - whole| / whole``, 0 for two zeros."""
    return abs(value - whole) / whole if whole else abs(value)


def _little(columns: Columns, turn: Mapping[str, NDArray[Any]], begin: float, stop: float) -> float | None:
    """Return ``|L - lambda W| / L`` on turns in the system after the warm-up.

    L counts every turn while it is there, also those in flight at either end; lambda and W are of the measured turns
    that finished. The two agree when the span is long and the system steady: turns left over at the end, or a queue
    that grows, drive them apart.
    """
    if stop <= begin or not turn["turn_s"].size:
        return None
    mean = in_system(columns, "turns", "ready_s", ("unfinished",), begin, stop)
    return abs(mean - float(turn["turn_s"].sum())) / mean if mean > 0 else None


def _stable(timeline: Timeline, columns: Columns, *, finite: bool) -> bool | None:
    """Return whether neither the queue nor the trajectories alive grow through the measured span.

    A finite workload is judged up to its last arrival: after that it drains, whatever the load.
    """
    stop = timeline.end_s
    starts = columns("trajectories", "start_s")
    if finite and starts.size:
        stop = min(stop, float(starts.max()))
    samples = columns("timeline", "time_s")
    inside = np.unique(samples[(samples >= timeline.warmup_s) & (samples <= stop)]).size
    if inside < WINDOWS or stop - timeline.warmup_s < 0.1 * (timeline.end_s - timeline.warmup_s):
        return None
    edges = np.linspace(timeline.warmup_s, stop, WINDOWS + 1)
    series = [timeline.windows("waiting", edges), timeline.windows("alive", edges, shared=True)]
    return not any(grows(values) for values in series)


def grows(values: NDArray[Any]) -> bool:
    """Return whether a series rises: in its second half against its first, and by a test of its slope."""
    n = values.size
    time = np.arange(n) - (n - 1) / 2
    slope = float((time * values).sum() / (time**2).sum())
    rise = slope * n
    if rise <= max(GROWTH * float(values.mean()), 1.0) or values[n // 2 :].mean() <= values[: n // 2].mean():
        return False
    residual = values - values.mean() - slope * time
    error = float(np.sqrt((residual**2).sum() / (n - 2) / (time**2).sum()))
    return error == 0 or slope / error > SLOPE_T
