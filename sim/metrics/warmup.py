"""Where the start of a run stops mattering."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Samples averaged into one point before the rule is applied (the 5 of MSER-5).
BATCH = 5


def mser(values: NDArray[Any], batch: int = BATCH) -> tuple[int, bool]:
    """Return how many leading samples to drop, and whether the rule found its minimum before the middle.

    The rule drops the d leading batches that minimise the squared standard error of what remains,
    ``sum((y_j - mean_d)**2) / (n - d)**2`` over the remaining batch means, looking no further than half of them
    (White, Cobb and Spratt 2000, "A comparison of five steady-state truncation heuristics for simulation").

    Parameters
    ----------
    values
        Samples in order of time, shape (n,).
    batch
        Samples a batch.
    """
    n = values.size // batch
    if n < 4:
        return 0, n == 0 or bool(np.ptp(values) == 0)
    means = values[: n * batch].reshape(n, batch).mean(axis=1)
    means = means - means.mean()  # sums of squares of small numbers: no cancellation
    count = np.arange(n, 0, -1, dtype=float)
    total = np.cumsum(means[::-1])[::-1]
    square = np.cumsum(means[::-1] ** 2)[::-1]
    half = n // 2
    score = (np.maximum(square - total**2 / count, 0.0) / count**2)[: half + 1]
    best = int(np.argmax(score <= score.min() + 1e-12 * score[0]))  # the first of equals, rounding aside
    return best * batch, best < half


def cut(ready_s: NDArray[Any], ttft_s: NDArray[Any], *, warmup_s: float | None, finite: bool) -> tuple[float, bool]:
    """Return the end of the warm-up in seconds, and whether the run had settled by then.

    Parameters
    ----------
    ready_s, ttft_s
        Of the finished turns, in order of `ready_s`.
    warmup_s
        A given warm-up, or None for MSER-5.
    finite
        The run plays a finite workload (a trace) to its end. Then the whole of it is the population and nothing is
        cut: such a run has no steady state to wait for.
    """
    if warmup_s is not None:
        return warmup_s, True
    if finite:
        return 0.0, True
    drop, settled = mser(ttft_s)
    return (float(ready_s[drop]) if drop else 0.0), settled
