"""Distributions of token counts, waits and sizes, as written in a trajectory spec.

In YAML a distribution is a bare number (a constant) or one key with its parameters::

    tokens: 800
    wait: {lognormal: {median: 9 s, p90: 68 s, max: 1 h}}
    turns: {quantiles: {p0: 1, p50: 45, p95: 232, p100: 514, interpolation: log}}
    wait:
      mixture:
        - {weight: 0.65, of: {lognormal: {median: 6.9 s, sigma: 0.49}}}
        - {weight: 0.35, of: {lognormal: {median: 33 s, sigma: 1.43}}}

`TokenDistribution` takes numbers of tokens, `WaitDistribution` times, `CountDistribution` plain numbers; inside all
are floats. Each has `sample(rng, n)`, `quantile(q)`, `cdf(x)` and `mean()`. `min` and `max` clip: what falls outside
becomes the bound, so a bound puts probability there (a tool's timeout does just that).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sim import units
from sim.errors import InputError
from workloads.bounded import Array, Distribution, Positive, Value
from workloads.parametric import Constant, Exponential, Gamma, Lognormal, Pareto, Uniform, Weibull, Zipf


class Quantiles(Distribution):
    """An empirical distribution given by some of its quantiles, interpolated between them.

    Below the lowest and above the highest quantile given, the value is that of the nearest one.
    """

    kind: Literal["quantiles"] = "quantiles"
    points: dict[str, Value]
    """Quantile to value: ``{p0: 1, p50: 45, p95: 232, p100: 514}``."""
    interpolation: Literal["linear", "log"] | None = None
    """Interpolate the value (`linear`, the default) or its logarithm (`log`, for heavy tails)."""

    @model_validator(mode="before")
    @classmethod
    def _points_alone(cls, value: Any) -> Any:
        if isinstance(value, dict) and "points" not in value:
            points = {key: entry for key, entry in value.items() if isinstance(key, str) and _percent(key) is not None}
            return {**{key: entry for key, entry in value.items() if key not in points}, "points": points}
        return value

    @model_validator(mode="after")
    def _rising(self) -> Self:
        unknown = [key for key in self.points if _percent(key) is None]
        if unknown:
            raise InputError("quantiles are named p0 to p100", field="points", got=unknown[0])
        if len(self.points) < 2:
            raise InputError("give at least two quantiles", field="points", got=len(self.points))
        q, x = self._table
        if np.any(np.diff(q) <= 0) or np.any(np.diff(x) < 0):
            raise InputError("values must not fall from one quantile to the next", field="points", got=self.points)
        if self.interpolation == "log" and x[0] <= 0:
            raise InputError("log interpolation needs values above 0", field="points", got=float(x[0]))
        return self

    @property
    def _table(self) -> tuple[Array, Array]:
        return _sorted_points(tuple(self.points.items()))

    def _quantile(self, q: Array) -> Array:
        at, x = self._table
        if self.interpolation == "log":
            return np.asarray(np.exp(np.interp(q, at, np.log(x))))
        return np.asarray(np.interp(q, at, x))

    def _cdf(self, x: Array) -> Array:
        at, values = self._table
        rising = np.concatenate((np.diff(values) > 0, [True]))  # of equal values, the highest quantile counts
        at, values = at[rising], values[rising]
        if self.interpolation == "log":
            with np.errstate(divide="ignore"):
                inside = np.interp(np.log(np.maximum(x, 0.0)), np.log(values), at)
        else:
            inside = np.interp(x, values, at)
        return np.where(x < values[0], 0.0, np.where(x >= values[-1], 1.0, inside))

    def _mean(self) -> float:
        return float(np.mean(self._quantile((np.arange(100_000) + 0.5) / 100_000)))


@lru_cache(maxsize=4096)
def _sorted_points(points: tuple[tuple[str, float], ...]) -> tuple[Array, Array]:
    """Return quantiles (0..1) and their values, both rising."""
    pairs = sorted((_percent(key) or 0.0, float(value)) for key, value in points)
    return np.array([q / 100 for q, _ in pairs]), np.array([x for _, x in pairs])


def _percent(name: str) -> float | None:
    """Return 99.9 for ``p99.9``, None for what is no quantile's name."""
    try:
        value = float(name[1:]) if name[:1] == "p" and name[1:2].isdigit() else math.nan
    except ValueError:
        return None
    return value if 0 <= value <= 100 else None


_Simple = Constant | Uniform | Lognormal | Gamma | Exponential | Weibull | Pareto | Zipf | Quantiles


class Part(BaseModel):
    """One component of a mixture."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    weight: Positive
    """Share of the draws, relative to the other parts."""
    of: Annotated[_Simple, Field(discriminator="kind")]
    """The distribution (not a mixture itself)."""


class Mixture(Distribution):
    """One of several distributions, drawn by weight. One log-normal fits tool times poorly; two often do."""

    kind: Literal["mixture"] = "mixture"
    parts: Annotated[list[Part], Field(min_length=1)]
    """The components."""

    def _weights(self) -> Array:
        weights = np.array([part.weight for part in self.parts])
        return np.asarray(weights / weights.sum())

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        which = np.searchsorted(np.cumsum(self._weights())[:-1], rng.random(n), side="right")
        values = np.empty(n)
        for index, part in enumerate(self.parts):
            chosen = np.flatnonzero(which == index)
            if chosen.size:
                values[chosen] = part.of.sample(rng, chosen.size)
        return values

    def _cdf(self, x: Array) -> Array:
        return np.asarray(sum(w * part.of.cdf(x) for w, part in zip(self._weights(), self.parts, strict=True)))

    def _quantile(self, q: Array) -> Array:
        each = np.stack([part.of.quantile(q) for part in self.parts])
        low, high = each.min(axis=0), each.max(axis=0)  # the answer lies between the parts' own quantiles
        for _ in range(200):
            middle = (low + high) / 2
            enough = self._cdf(middle) >= q
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
            if np.all(high - low <= 1e-12 * np.maximum(np.abs(high), 1e-300)):
                break
        return np.asarray(high)

    def _mean(self) -> float:
        return float(sum(w * part.of.mean() for w, part in zip(self._weights(), self.parts, strict=True)))


_KINDS = {kind.model_fields["kind"].default: kind
          for kind in (Constant, Uniform, Lognormal, Gamma, Exponential, Weibull, Pareto, Zipf, Quantiles, Mixture)}
#: Parameters that are quantities of the thing drawn, so may be text with a unit; the others are plain numbers.
_QUANTITIES = frozenset({"value", "low", "high", "median", "p90", "mean", "scale", "min", "max"})


def _as_read(value: Any, unit: units.Kind | None) -> Any:
    """Turn the YAML form (a number, or one key with its parameters) into what the discriminated union takes."""
    if isinstance(value, Distribution):
        return value
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        return {"kind": "constant", "value": _number("", value, unit)}
    if isinstance(value, dict) and value.get("kind") in _KINDS:
        return value
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in _KINDS:
        raise InputError(f"expected a number, or one of {', '.join(_KINDS)} with its parameters",
                         got=", ".join(map(str, value)) if isinstance(value, dict) else value)
    (kind, given), = value.items()
    if kind == "mixture":
        given = {"parts": given} if isinstance(given, list) else given
    elif kind == "constant":
        given = {"value": given} if not isinstance(given, dict) else given
    if not isinstance(given, dict):
        raise InputError(f"expected the parameters of {kind}", got=given)
    return {"kind": kind, **{name: _parameter(kind, name, entry, unit) for name, entry in given.items()}}


def _parameter(kind: str, name: Any, entry: Any, unit: units.Kind | None) -> Any:
    if kind == "mixture" and name == "parts" and isinstance(entry, list):
        return [{**part, "of": _as_read(part["of"], unit)} if isinstance(part, dict) and "of" in part else part
                for part in entry]
    if kind == "quantiles" and name == "points" and isinstance(entry, dict):
        return {key: _number(key, point, unit) for key, point in entry.items()}
    if name in _QUANTITIES or (kind == "quantiles" and isinstance(name, str) and _percent(name) is not None):
        return _number(name, entry, unit)
    return entry


def _number(name: str, value: Any, unit: units.Kind | None) -> Any:
    """Read text with a unit; what is no text is left for the field's own validation."""
    if not isinstance(value, str) or unit is None:
        return value
    try:
        return units.parse(value, unit)
    except InputError as error:
        raise InputError(error.reason, field=name or None, got=value) from None


_Any = Annotated[_Simple | Mixture, Field(discriminator="kind")]

TokenDistribution = Annotated[_Any, BeforeValidator(lambda value: _as_read(value, units.TOKENS))]
WaitDistribution = Annotated[_Any, BeforeValidator(lambda value: _as_read(value, units.SECONDS))]
CountDistribution = Annotated[_Any, BeforeValidator(lambda value: _as_read(value, None))]
