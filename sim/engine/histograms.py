"""Histograms of step times and of the gaps between tokens, by time window, with buckets in constant ratio."""

from __future__ import annotations

import math
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from sim.records import BUCKET_BASE

_LOG_BASE = math.log(BUCKET_BASE)

#: First and last length in seconds, how many of them in even steps, and the steps and token gaps that each stands for.
Row = tuple[float, float, int, int, int]
#: {bucket: (weight, seconds)}.
Buckets = dict[int, tuple[float, float]]


class Histograms:
    """Two histograms for each of some windows: of steps, and of gaps."""

    __slots__ = ("_bucket", "_values", "_window")

    def __init__(self) -> None:
        #: Of each entry: window, bucket, and the sums of gaps, their seconds, steps, theirs.
        self._window = np.empty(0, np.int64)
        self._bucket = np.empty(0, np.int64)
        self._values = np.empty((4, 0))

    def fold(self, rows: list[Row], marks: list[int], windows: int) -> None:
        """Add rows, cut into the last of so many `windows` by the counts of rows at which these ended."""
        sizes = np.diff(marks, prepend=0)
        window = np.repeat(np.arange(windows - len(sizes), windows), sizes)
        columns = np.fromiter(chain.from_iterable(rows), np.float64, 5 * len(rows)).reshape(-1, 5).T
        row, bucket, values = _spread(columns)
        self._group(np.concatenate((self._window, window[row])), np.concatenate((self._bucket, bucket)),
                    np.concatenate((self._values, values), axis=1))

    def halve(self) -> None:
        """Join each two neighbouring windows."""
        self._group(self._window // 2, self._bucket, self._values)

    def gaps(self, windows: int) -> list[Buckets]:
        """Return the histograms of the gaps in so many windows."""
        return self._buckets(0, windows)

    def steps(self, windows: int) -> list[Buckets]:
        """Return the histograms of the steps in so many windows."""
        return self._buckets(2, windows)

    def _buckets(self, column: int, windows: int) -> list[Buckets]:
        real = np.flatnonzero(self._values[column])  # entries lie in the order of their windows
        weights, seconds = (self._values[column + part][real].tolist() for part in (0, 1))
        buckets, pairs = self._bucket[real].tolist(), list(zip(weights, seconds, strict=True))
        edges = np.searchsorted(self._window[real], np.arange(windows + 1)).tolist()
        return [dict(zip(buckets[begin:end], pairs[begin:end], strict=True)) for begin, end in pairwise(edges)]

    def _group(self, window: NDArray[np.int64], bucket: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Make the histogram of the sums over equal windows and buckets."""
        if window.size:
            low = int(bucket.min())
            width = int(bucket.max()) - low + 1
            key, where = np.unique(window * width + (bucket - low), return_inverse=True)
            values = np.stack([np.bincount(where, weights) for weights in values])
            window, bucket = key // width, key % width + low
        self._window, self._bucket, self._values = window, bucket, values


def _spread(columns: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Divide each row among the buckets that its lengths cross: number of the row, bucket, values."""
    real = np.flatnonzero(columns[0] > 0.0)
    first, last, count, steps, gaps = columns[:, real]
    low = _bucket_of(first)
    high = np.maximum(_bucket_of(last), low)
    buckets = high - low + 1
    row = np.repeat(np.arange(first.size), buckets)
    bucket = np.arange(row.size) - np.repeat(np.cumsum(buckets) - buckets, buckets) + low[row]
    rise = ((last - first) / np.maximum(count - 1.0, 1.0))[row]
    with np.errstate(divide="ignore", invalid="ignore"):
        upto = np.ceil((np.exp((bucket + 1) * _LOG_BASE) - first[row]) / rise)
    upto = np.where(bucket == high[row], count[row], np.minimum(upto, count[row]))
    begin = np.where(bucket == low[row], 0.0, np.roll(upto, 1))
    number = upto - begin
    seconds = number * (first[row] + rise * (begin + (number - 1.0) * 0.5))
    return real[row], bucket, np.stack((number * gaps[row], seconds * gaps[row], number * steps[row],
                                        seconds * steps[row]))


def _bucket_of(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.floor(np.log(seconds) / _LOG_BASE).astype(np.int64)
