"""Histograms of step times and of the gaps between a stream's tokens, with buckets in constant ratio.

The step loop only appends a row a stretch; rows become histograms, many at once, when a window ends. Windows can be cut
apart afterwards: a warm-up is left out that way.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sim.records import BUCKET_BASE
from sim.timing.base import Line, at

_LOG_BASE = math.log(BUCKET_BASE)

#: First and last length in seconds, how many of them in even steps, and the steps and token gaps that each stands for.
Row = tuple[float, float, int, int, int]

#: Rows kept before they are folded into the histogram.
_MOST_ROWS = 1 << 15


class Latencies:
    """Step times and token gaps of one replica.

    Every step adds its length once, and once more for each stream that decodes in it.
    """

    __slots__ = ("_bucket", "_marks", "_rows", "_stalls", "_values", "_window", "add", "ends")

    def __init__(self) -> None:
        #: Ends of the windows closed so far, in seconds.
        self.ends: list[float] = []
        self._rows: list[Row] = []
        #: Takes one row: ``(first_s, last_s, count, steps, gaps)``.
        self.add = self._rows.append
        #: Prompts that ran alone since the last decode step: streams that stood still, seconds.
        self._stalls: list[tuple[int, float]] = []
        #: Rows there were when each of the last windows was closed.
        self._marks: list[int] = []
        #: The histogram of the windows before: window, bucket, and the sums of gaps, their seconds, steps, theirs.
        self._window = np.empty(0, np.int64)
        self._bucket = np.empty(0, np.int64)
        self._values = np.empty((4, 0))

    def stretch(self, lines: tuple[Line, ...], context: int, streams: int, steps: int) -> None:
        """Add `steps` decode steps of so many streams, the first of which reads `context` tokens."""
        if self._stalls:
            first_s = at(lines, context)
            self._resume(first_s, streams)
            self.add((first_s, first_s, 1, 1, 0))
            if steps == 1:
                return
            steps, context = steps - 1, context + streams
        last = context + streams * (steps - 1)
        if len(lines) == 1:
            base_s, slope_s = lines[0]
            self.add((base_s + slope_s * context, base_s + slope_s * last, steps, 1, streams))
        else:
            self.add((at(lines, context), at(lines, last), steps, 1, streams))

    def prompts(self, seconds: float, streams: int, *, decoding: bool) -> None:
        """Add a step with prompt chunks, in which so many streams decoded too or stood still."""
        self.add((seconds, seconds, 1, 1, streams if decoding else 0))
        if streams and not decoding:
            self._stalls.append((streams, seconds))

    def _resume(self, step_s: float, streams: int) -> None:
        """Book the gaps of the first decode step after prompts that ran alone: a stream waited since it joined."""
        gap_s = step_s + sum(seconds for _, seconds in self._stalls)
        booked = 0
        for still, seconds in self._stalls:
            if min(still, streams) > booked:
                self.add((gap_s, gap_s, 1, 0, min(still, streams) - booked))
                booked = min(still, streams)
            gap_s -= seconds
        self.add((step_s, step_s, 1, 0, streams - booked))
        self._stalls.clear()

    def close_window(self, now_s: float) -> None:
        """End the current window at `now_s`."""
        self.ends.append(now_s)
        self._marks.append(len(self._rows))
        if len(self._rows) > _MOST_ROWS:
            self._fold()

    def halve(self) -> None:
        """Join neighbouring windows, so that a long run keeps a bounded number of them."""
        self._fold()
        self.ends = self.ends[1::2] + self.ends[len(self.ends) & ~1:]
        self._group(self._window // 2, self._bucket, self._values)

    def token_gaps(self) -> list[tuple[float, dict[int, tuple[float, float]]]]:
        """Return the windows of gaps between tokens: (end, {bucket: (weight, seconds)})."""
        return self._windows(0)

    def step_times(self) -> list[tuple[float, dict[int, tuple[float, float]]]]:
        """Return the windows of step times: (end, {bucket: (weight, seconds)})."""
        return self._windows(2)

    def _windows(self, column: int) -> list[tuple[float, dict[int, tuple[float, float]]]]:
        self._fold()
        found: list[tuple[float, dict[int, tuple[float, float]]]] = [(end_s, {}) for end_s in self.ends]
        weights, seconds = self._values[column], self._values[column + 1]
        for window, bucket, weight, total in zip(self._window.tolist(), self._bucket.tolist(), weights.tolist(),
                                                 seconds.tolist(), strict=True):
            if weight:
                found[window][1][bucket] = (weight, total)
        return found

    def _fold(self) -> None:
        """Move the rows of closed windows into the histogram."""
        if not self._marks:
            return
        sizes = np.diff(self._marks, prepend=0)
        window = np.repeat(np.arange(len(self.ends) - len(sizes), len(self.ends)), sizes)
        count = self._marks[-1]
        if count:
            row, bucket, values = _spread(np.array(self._rows[:count], dtype=np.float64).T)
            self._group(np.concatenate((self._window, window[row])), np.concatenate((self._bucket, bucket)),
                        np.concatenate((self._values, values), axis=1))
        self._marks.clear()
        del self._rows[:count]

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
