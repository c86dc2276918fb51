"""Service-level objectives: which turns and trajectories meet them, and which objectives hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: objective -> where its distribution stands in a summary
PLACES: dict[str, tuple[str, ...]] = {
    "ttft": ("ttft_s", "all"), "ttft_first": ("ttft_s", "first"), "ttft_resumed": ("ttft_s", "resumed"),
    "itl": ("itl_s",), "tpot": ("tpot_s",), "turn": ("turn_s",), "trajectory": ("trajectory_s",),
}

#: objective -> statistic (``mean``, ``p50`` ... ``p999``) -> limit in seconds
Slo = Mapping[str, Mapping[str, float]]


def limit(slo: Slo, name: str) -> float:
    """Return what one turn (or trajectory) may take under an objective: the limit of its highest percentile.

    No limit (infinity) when the objective is absent or limits the mean only.
    """
    points = {float(f"0.{stat[1:]}"): value for stat, value in slo.get(name, {}).items() if stat.startswith("p")}
    return points[max(points)] if points else np.inf


def turns_meeting(slo: Slo, ttft_s: NDArray[Any], first: NDArray[np.bool_], tpot_s: NDArray[Any],
                  turn_s: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which turns meet every objective; a turn's inter-token latency is its mean one, its TPOT."""
    ttft = np.where(first, limit(slo, "ttft_first"), limit(slo, "ttft_resumed"))
    good = (ttft_s <= np.minimum(ttft, limit(slo, "ttft"))) & (turn_s <= limit(slo, "turn"))
    pace = min(limit(slo, "itl"), limit(slo, "tpot"))
    good &= np.isnan(tpot_s) | (tpot_s <= pace)
    return np.asarray(good, dtype=bool)


def objectives(slo: Slo, summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each objective with its limit, the value reached and whether it is met (None without a value)."""
    rows = []
    for name, limits in slo.items():
        if name == "goodput":  # shares: see `shares`
            continue
        stats: Any = summary
        for key in PLACES[name]:
            stats = stats[key]
        for stat, most in limits.items():
            value = stats[stat]
            met = None if value is None else value <= most
            rows.append({"objective": f"{name}.{stat}", "limit_s": most, "value_s": value, "met": met})
    return rows


def shares(slo: Slo, reached: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """Return the objectives on goodput: the share asked for (`limit`), the one reached (`value`), whether it is met."""
    rows = []
    for name, least in slo.get("goodput", {}).items():
        value = reached[name]
        rows.append({"objective": f"goodput.{name}", "limit_s": None, "value_s": None, "limit": least, "value": value,
                     "met": None if value is None else value >= least})
    return rows
