"""Distributions as a mean and percentiles, from samples or from the engine's histograms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.records import BUCKET_BASE

#: Percentiles of every distribution in a summary.
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}

#: bucket -> (weight, weighted seconds)
Histogram = Mapping[int, tuple[float, float]]
Stats = dict[str, float | None]


def empty() -> Stats:
    """Return the statistics of no sample at all: every one None."""
    return dict.fromkeys(["mean", *QUANTILES])


def of_samples(values: NDArray[Any]) -> Stats:
    """Return mean and percentiles (linear interpolation) of samples; NaNs are left out."""
    kept = values[~np.isnan(values)] if values.size else values
    if not kept.size:
        return empty()
    points = np.quantile(kept, list(QUANTILES.values()))
    return {"mean": float(kept.mean()), **{name: float(x) for name, x in zip(QUANTILES, points, strict=True)}}


def of_histogram(histogram: Histogram) -> Stats:
    """Return mean (exact) and percentiles (within one bucket, 1 %) of a weighted histogram.

    A percentile is the mean of the bucket in which the cumulated weight reaches it.
    """
    if not histogram or sum(weight for weight, _ in histogram.values()) <= 0:
        return empty()
    buckets = sorted(histogram)
    weights = np.array([histogram[bucket][0] for bucket in buckets], dtype=float)
    seconds = np.array([histogram[bucket][1] for bucket in buckets], dtype=float)
    low = np.power(BUCKET_BASE, np.array(buckets, dtype=float))
    centres = np.clip(seconds / np.maximum(weights, 1e-300), low, low * BUCKET_BASE)
    share = np.cumsum(weights) / weights.sum()
    stats: Stats = {"mean": float(seconds.sum() / weights.sum())}
    for name, q in QUANTILES.items():
        stats[name] = float(centres[min(int(np.searchsorted(share, q - 1e-12)), len(centres) - 1)])
    return stats


def merge(histograms: Iterable[Histogram]) -> dict[int, tuple[float, float]]:
    """Add histograms up."""
    total: dict[int, tuple[float, float]] = {}
    for histogram in histograms:
        for bucket, (weight, seconds) in histogram.items():
            old = total.get(bucket, (0.0, 0.0))
            total[bucket] = (old[0] + weight, old[1] + seconds)
    return total


def after(windows: Sequence[tuple[float, Histogram]], warmup_s: float) -> dict[int, tuple[float, float]]:
    """Add up the windows that begin at or after `warmup_s`.

    A window begins where the one before it ends; windows of several replicas come one replica after the other, or
    interleaved by their end. When none begins after the warm-up, those that end after it count.
    """
    begins: list[float] = []
    previous = last = 0.0
    for end, _ in windows:
        if end < last:  # the next replica
            previous, last = 0.0, end
        elif end > last:
            previous, last = last, end
        begins.append(previous)
    chosen = [histogram for begin, (_, histogram) in zip(begins, windows, strict=True) if begin >= warmup_s]
    return merge(chosen or [histogram for end, histogram in windows if end > warmup_s])


def columns(histogram: Histogram) -> dict[str, list[float]]:
    """Return a histogram as columns for a file: bounds of each bucket in seconds, weight, weighted seconds."""
    buckets = sorted(histogram)
    return {
        "low_s": [BUCKET_BASE**bucket for bucket in buckets],
        "high_s": [BUCKET_BASE ** (bucket + 1) for bucket in buckets],
        "weight": [histogram[bucket][0] for bucket in buckets],
        "seconds": [histogram[bucket][1] for bucket in buckets],
    }
