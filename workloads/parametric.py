"""Distributions with a closed form: a few parameters, and mean, quantiles and sampling that follow from them."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from sim.errors import InputError
from workloads.bounded import Array, Distribution, Positive, Value

_Z90 = 1.2815515655446004  # the 90 % point of the standard normal


class Constant(Distribution):
    """Always `value`. Written as a bare number."""

    kind: Literal["constant"] = "constant"
    value: Value

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return np.full(n, self.value, dtype=float)

    def _quantile(self, q: Array) -> Array:
        return np.full_like(q, self.value)

    def _cdf(self, x: Array) -> Array:
        return np.asarray(x >= self.value, dtype=float)

    def _mean(self) -> float:
        return float(self.value)


class Uniform(Distribution):
    """Anywhere between `low` and `high` alike."""

    kind: Literal["uniform"] = "uniform"
    low: Value
    high: Value

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise InputError(f"low is above high {self.high:g}", field="low", got=self.low)
        return self

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return rng.uniform(self.low, self.high, n)

    def _quantile(self, q: Array) -> Array:
        return self.low + (self.high - self.low) * q

    def _cdf(self, x: Array) -> Array:
        if self.high == self.low:
            return np.asarray(x >= self.low, dtype=float)
        return np.clip((x - self.low) / (self.high - self.low), 0.0, 1.0)

    def _mean(self) -> float:
        return (self.low + self.high) / 2


class Lognormal(Distribution):
    """Log-normal, given by its median and `sigma` (of the logarithm), its median and p90, or its mean and cv."""

    kind: Literal["lognormal"] = "lognormal"
    median: Positive | None = None
    """Half of the values lie below."""
    sigma: Annotated[float, Field(ge=0, le=20, allow_inf_nan=False)] | None = None
    """Standard deviation of the logarithm."""
    p90: Positive | None = None
    """90 % of the values lie below."""
    average: Positive | None = Field(default=None, alias="mean")
    """The mean (`mean` in YAML)."""
    cv: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Standard deviation over mean."""

    @model_validator(mode="after")
    def _one_pair(self) -> Self:
        given = {name for name in ("median", "sigma", "p90", "cv") if getattr(self, name) is not None}
        given |= {"mean"} if self.average is not None else set()
        if given not in ({"median", "sigma"}, {"median", "p90"}, {"mean", "cv"}):
            raise InputError("give median and sigma, median and p90, or mean and cv", got=", ".join(sorted(given)))
        if self.p90 is not None and self.median is not None and self.p90 < self.median:
            raise InputError(f"p90 is below the median {self.median:g}", field="p90", got=self.p90)
        return self

    @cached_property
    def log_sigma(self) -> float:
        """Standard deviation of the logarithm."""
        if self.sigma is not None:
            return self.sigma
        if self.median is not None and self.p90 is not None:
            return math.log(self.p90 / self.median) / _Z90
        return math.sqrt(math.log1p((self.cv or 0.0) ** 2))

    @cached_property
    def log_mu(self) -> float:
        """Mean of the logarithm, that is, the logarithm of the median."""
        if self.median is not None:
            return math.log(self.median)
        return math.log(self.average or 1.0) - self.log_sigma**2 / 2

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return rng.lognormal(self.log_mu, self.log_sigma, n)

    def _quantile(self, q: Array) -> Array:
        from scipy.special import ndtri
        if self.log_sigma == 0:
            return np.full_like(q, math.exp(self.log_mu))
        return np.asarray(np.exp(self.log_mu + self.log_sigma * ndtri(q)))

    def _cdf(self, x: Array) -> Array:
        from scipy.special import ndtr
        with np.errstate(divide="ignore"):
            z = np.log(np.maximum(x, 0.0)) - self.log_mu
        if self.log_sigma == 0:
            return np.asarray(z >= 0, dtype=float)
        with np.errstate(over="ignore"):
            return np.asarray(ndtr(z / self.log_sigma))

    def _mean(self) -> float:
        return math.exp(min(self.log_mu + self.log_sigma**2 / 2, 700.0))


class Gamma(Distribution):
    """Gamma, given by its mean and its coefficient of variation."""

    kind: Literal["gamma"] = "gamma"
    average: Positive = Field(alias="mean")
    """The mean (`mean` in YAML)."""
    cv: Positive
    """Standard deviation over mean; 1 is the exponential distribution."""

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return rng.gamma(self.cv**-2, self.average * self.cv**2, n)

    def _quantile(self, q: Array) -> Array:
        from scipy.special import gammaincinv
        return np.asarray(gammaincinv(self.cv**-2, q) * self.average * self.cv**2)

    def _cdf(self, x: Array) -> Array:
        from scipy.special import gammainc
        return np.asarray(gammainc(self.cv**-2, np.maximum(x, 0.0) / (self.average * self.cv**2)))

    def _mean(self) -> float:
        return float(self.average)


class Exponential(Distribution):
    """Exponential with the given mean."""

    kind: Literal["exponential"] = "exponential"
    average: Positive = Field(alias="mean")
    """The mean (`mean` in YAML)."""

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return rng.exponential(self.average, n)

    def _quantile(self, q: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(-self.average * np.log1p(-q))

    def _cdf(self, x: Array) -> Array:
        return np.asarray(-np.expm1(-np.maximum(x, 0.0) / self.average))

    def _mean(self) -> float:
        return float(self.average)


class Weibull(Distribution):
    """Weibull with a scale (its 63 % point) and a shape; a shape below 1 is heavier than exponential."""

    kind: Literal["weibull"] = "weibull"
    scale: Positive
    shape: Annotated[float, Field(ge=0.05, allow_inf_nan=False)]

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return self.scale * rng.weibull(self.shape, n)

    def _quantile(self, q: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(self.scale * (-np.log1p(-q)) ** (1 / self.shape))

    def _cdf(self, x: Array) -> Array:
        return np.asarray(-np.expm1(-((np.maximum(x, 0.0) / self.scale) ** self.shape)))

    def _mean(self) -> float:
        return self.scale * math.gamma(1 + 1 / self.shape)


class Pareto(Distribution):
    """Pareto: P(X > x) = (scale / x) ** alpha above `scale`. No mean for alpha <= 1."""

    kind: Literal["pareto"] = "pareto"
    scale: Positive
    alpha: Positive

    def _quantile(self, q: Array) -> Array:
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(self.scale * (1 - q) ** (-1 / self.alpha))

    def _cdf(self, x: Array) -> Array:
        return np.asarray(1 - (self.scale / np.maximum(x, self.scale)) ** self.alpha)

    def _mean(self) -> float:
        return self.scale * self.alpha / (self.alpha - 1) if self.alpha > 1 else math.inf


class Zipf(Distribution):
    """A rank 1..n with probability proportional to rank ** -exponent."""

    kind: Literal["zipf"] = "zipf"
    exponent: Annotated[float, Field(ge=0, le=20, allow_inf_nan=False)]
    n: Annotated[int, Field(ge=1, le=10_000_000)]

    def _quantile(self, q: Array) -> Array:
        return np.asarray(np.searchsorted(zipf_cumulative(self.n, self.exponent), q) + 1.0)

    def _cdf(self, x: Array) -> Array:
        rank = np.clip(np.floor(x), 0, self.n).astype(int)
        return np.asarray(np.concatenate(([0.0], zipf_cumulative(self.n, self.exponent)))[rank])

    def _mean(self) -> float:
        weights = np.diff(zipf_cumulative(self.n, self.exponent), prepend=0.0)
        return float(weights @ np.arange(1, self.n + 1))


def zipf_cumulative(n: int, exponent: float) -> Array:
    """Return the cumulative probabilities of ranks 1..n, proportional to rank ** -exponent."""
    weights = np.arange(1, n + 1, dtype=float) ** -exponent
    total = np.cumsum(weights)
    return np.asarray(total / total[-1])
