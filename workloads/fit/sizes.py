"""Token and turn counts as ladders of quantiles, and how long contexts live until they are compacted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LADDER = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 100)


def ladder(values: Sequence[float] | NDArray[np.float64], least: float = 1.0) -> dict[str, Any] | float:
    """Return the quantiles of some numbers, as a distribution written in a spec.

    Quantiles that so few numbers cannot tell are left out. `least` takes the place of anything smaller, for the
    interpolation is logarithmic.
    """
    data = np.maximum(np.asarray(values, dtype=float), least)
    if data.min() == data.max():
        return _round(float(data[0]))
    wanted = [q for q in _LADDER if q in (0, 100) or min(q, 100 - q) / 100 * data.size >= 1]
    points = {f"p{q:g}": _round(value) for q, value in
              zip(wanted, np.quantile(data, np.array(wanted) / 100), strict=True)}
    return {"quantiles": {**points, "interpolation": "log"}}


def thresholds(cycles: Sequence[tuple[int, bool]], beyond: float) -> dict[str, Any] | None:
    """Return the distribution of the prompt length at which contexts are compacted; None if none ever was.

    Sessions that ended before are censored, not evidence of a high threshold: the estimate is Kaplan and Meier's.
    What it leaves open above the longest prompt gets the threshold `beyond`.
    """
    order = sorted(cycles)
    if not any(event for _, event in order):
        return None
    at_risk, alive = len(order), 1.0
    points = {"p0": float(next(length for length, event in order if event))}
    for index, (length, event) in enumerate(order):
        if event:
            alive *= 1 - 1 / (at_risk - index)
            points[f"p{_round(100 * (1 - alive)):g}"] = float(length)
    if alive > 1e-9:
        last = max(points.values())
        points[f"p{min(_round(100 * (1 - alive)) + 0.01, 99.99):g}"] = max(last, beyond)
        points["p100"] = max(last, beyond)
    else:
        points["p100"] = max(points.values())
    return {"quantiles": {**points, "interpolation": "log"}}


def _round(value: float) -> float:
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() else rounded
