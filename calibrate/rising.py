"""Make measured times rise: noise must not turn a larger problem into a quicker one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Relative size of an ordinary deviation; larger ones lose weight.
_NOISE = 0.02


def rising(values: ArrayLike, rounds: int = 6) -> NDArray[Any]:
    """Return the non-decreasing sequence closest to positive values in relative absolute error.

    Least absolute deviations by reweighted isotonic regression of the logarithms: a single slow outlier (a clock that
    dropped) is passed by, where least squares would spread it.

    Parameters
    ----------
    values
        Times of ever larger problems, > 0.
    rounds
        Reweightings.
    """
    from scipy.optimize import isotonic_regression

    logs = np.log(np.asarray(values, dtype=float))
    if np.all(np.diff(logs) >= 0.0):
        return np.exp(logs)
    weights = np.ones_like(logs)
    fitted = logs
    for _ in range(rounds):
        fitted = isotonic_regression(logs, weights=weights).x
        weights = 1.0 / np.maximum(np.abs(logs - fitted), _NOISE)
    return np.exp(fitted)
