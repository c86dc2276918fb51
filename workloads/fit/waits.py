"""Mixtures of log-normals for waits, fitted by expectation-maximisation on their logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.fit.sizes import ladder

_MOST_PARTS = 4
_MANY = 200  # waits; from here on the longest hundredth is kept as it is
_FEW = 20  # waits; below, their quantiles say all there is to know
_NARROWEST = 0.05  # sigma of a part; recorded times are rounded, so a part may not shrink onto one value
_Array = NDArray[np.float64]


def fit_waits(values: Sequence[float]) -> dict[str, Any] | float:
    """Return the distribution of some waits (s), as written in a spec.

    Zeros become a part of their own, and so does the longest hundredth of 200 or more waits, as the quantiles they
    have: a few waits of hours decide the mean, and no smooth tail gets them right. The number of log-normals for the
    rest (up to 4) is the one with the least BIC. `max` is the longest recorded.
    """
    data = np.asarray(values, dtype=float)
    if data.min() == data.max():
        return float(data[0])
    cut = float(np.quantile(data, 0.99)) if data.size >= _MANY else np.inf
    body, tail = data[(data > 0) & (data <= cut)], data[data > cut]
    parts: list[dict[str, Any]] = []
    if body.size < _FEW or body.min() == body.max():
        parts += [{"weight": _round(body.size / data.size), "of": ladder(body, least=1e-6)}] if body.size else []
    else:
        logs = np.log(body)
        found = [em(logs, k) for k in range(1, _MOST_PARTS + 1)]
        weights, mus, sigmas = min(found, key=lambda parts: bic(logs, *parts))
        parts += [{"weight": _round(weights[i] * body.size / data.size), "of": {"lognormal": {
            "median": _round(np.exp(mus[i])), "sigma": _round(sigmas[i])}}} for i in np.argsort(mus)]
    zeros = int((data <= 0).sum())
    if zeros:
        parts.insert(0, {"weight": _round(zeros / data.size), "of": 0.0})
    if tail.size:
        parts.append({"weight": _round(tail.size / data.size), "of": ladder(tail)})
    return {"mixture": {"parts": parts, "max": _round(data.max())}}


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


def _round(value: float) -> float:
    return float(f"{value:.5g}")
