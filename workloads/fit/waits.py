"""Mixtures of log-normals for waits, fitted by expectation-maximisation on their logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from workloads.distributions import WaitDistribution

_MOST_PARTS = 4
_FEW = 20  # waits; below, a mixture says more than there is to know
_NARROWEST = 0.05  # sigma of a part; recorded times are rounded, so a part may not shrink onto one value
_ADAPTER: TypeAdapter[Any] = TypeAdapter(WaitDistribution)
_Array = NDArray[np.float64]


def fit_waits(values: Sequence[float]) -> dict[str, Any] | float:
    """Return the distribution of some waits (s), as written in a spec.

    Zeros become a part of their own; the number of log-normals (up to 4) is the one with the least BIC; `max` is
    chosen so that the mean is the recorded one, if a bound can do that, else it is the longest recorded.
    """
    data = np.asarray(values, dtype=float)
    positive = data[data > 0]
    if positive.size < 2 or positive.min() == positive.max():
        return {"quantiles": {"p0": float(data.min()), "p100": float(data.max())}} if data.min() < data.max() \
            else float(data[0])
    logs = np.log(positive)
    counts = range(1, _MOST_PARTS + 1) if positive.size >= _FEW else (1,)
    weights, mus, sigmas = min((em(logs, k) for k in counts), key=lambda parts: bic(logs, *parts))
    zero = 1 - positive.size / data.size
    order = np.argsort(mus)
    parts = [{"weight": _round(weights[i] * (1 - zero)),
              "of": {"lognormal": {"median": _round(np.exp(mus[i])), "sigma": _round(sigmas[i])}}} for i in order]
    if zero:
        parts.insert(0, {"weight": _round(zero), "of": 0.0})
    return _bounded(parts, data)


def em(logs: _Array, k: int, rounds: int = 500) -> tuple[_Array, _Array, _Array]:
    """Fit `k` normal distributions; return their weights, means and standard deviations.

    It starts from equal slices of the sorted data, so it needs no random numbers.
    """
    slices = np.array_split(np.sort(logs), k)
    mus = np.array([part.mean() for part in slices])
    sigmas = np.maximum([part.std() for part in slices], max(_NARROWEST, logs.std() / (2 * k)))
    weights = np.full(k, 1 / k)
    before = -np.inf
    for _ in range(rounds):
        densities = _densities(logs, weights, mus, sigmas)
        total = densities.sum(axis=1)
        share = densities / total[:, None]
        size = np.maximum(share.sum(axis=0), 1e-12)
        weights = size / logs.size
        mus = (share * logs[:, None]).sum(axis=0) / size
        sigmas = np.sqrt((share * (logs[:, None] - mus) ** 2).sum(axis=0) / size)
        sigmas = np.maximum(sigmas, _NARROWEST)
        likelihood = float(np.log(total).sum())
        if likelihood - before < 1e-7 * abs(likelihood):
            break
        before = likelihood
    return weights, mus, sigmas


def bic(logs: _Array, weights: _Array, mus: _Array, sigmas: _Array) -> float:
    """Return the Bayesian information criterion of a mixture: the smaller the better."""
    likelihood = float(np.log(_densities(logs, weights, mus, sigmas).sum(axis=1)).sum())
    return (3 * len(mus) - 1) * float(np.log(logs.size)) - 2 * likelihood


def _densities(logs: _Array, weights: _Array, mus: _Array, sigmas: _Array) -> _Array:
    z = (logs[:, None] - mus) / sigmas
    return np.asarray(weights * np.exp(-z * z / 2) / (sigmas * np.sqrt(2 * np.pi)) + 1e-300)


def _bounded(parts: list[dict[str, Any]], data: _Array) -> dict[str, Any]:
    """Return the mixture with the bound at which its mean is the recorded one, or the longest wait as bound."""
    longest, mean = float(data.max()), float(data.mean())

    def at(bound: float) -> dict[str, Any]:
        return {"mixture": {"parts": parts, "max": _round(bound)}}

    def mean_at(bound: float) -> float:
        return float(_ADAPTER.validate_python(at(bound)).mean())

    low, high = float(np.quantile(data, 0.95)) + 1e-6, 3 * longest
    if mean_at(high) <= mean:
        return at(high)
    if low >= high or mean_at(low) >= mean:
        return at(longest)
    for _ in range(40):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if mean_at(middle) < mean else (low, middle)
    return at(high)


def _round(value: float) -> float:
    return float(f"{value:.5g}")
