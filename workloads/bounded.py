"""What every distribution has in common: bounds that clip, and mean and quantiles with them applied."""

from __future__ import annotations

from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

from sim.errors import InputError

Array = NDArray[np.float64]
#: A token count, a time in seconds or a plain number; text with a unit has been read by then. 1e12 s are
#: some 30,000 years: no wait and no context is longer.
Value = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]


class Distribution(BaseModel):
    """What all have in common: bounds, and quantile and mean with the bounds applied."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: str
    min: Value | None = None
    """Values below become this."""
    max: Value | None = None
    """Values above become this."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise InputError(f"min is above max {self.max:g}", field="min", got=self.min)
        return self

    @model_serializer(mode="plain")
    def _as_written(self) -> Any:
        values = {field.alias or name: getattr(self, name) for name, field in type(self).model_fields.items()}
        given = {name: value for name, value in values.items() if value is not None and name != "kind"}
        if self.kind == "constant" and list(given) == ["value"]:
            return given["value"]
        return {self.kind: given}

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Return `n` independent draws."""
        return self._clip(self._draw(rng, n))

    def quantile(self, q: ArrayLike) -> Array:
        """Return the values below which fractions `q` (0..1) of the probability lie."""
        return self._clip(self._quantile(np.asarray(q, dtype=float)))

    def cdf(self, x: ArrayLike) -> Array:
        """Return the probability of a value of at most `x`."""
        at = np.asarray(x, dtype=float)
        below = self._cdf(at)
        if self.min is not None:
            below = np.where(at < self.min, 0.0, below)
        return np.asarray(below if self.max is None else np.where(at >= self.max, 1.0, below))

    def mean(self) -> float:
        """Return the mean, infinite if there is none; with bounds, by integrating over what they cut."""
        if self.min is None and self.max is None:
            return self._mean()
        low = float(self.quantile(0.0)) if self.min is None else self.min
        if self.max is not None:
            if self.max <= low:
                return float(self.max)
            return low + _integral(lambda x: 1 - self._cdf(x), low, self.max)
        below = min(float(self._quantile(np.asarray(0.0))), low)
        return self._mean() + (_integral(self._cdf, below, low) if low > below else 0.0)

    def _clip(self, values: Array) -> Array:
        if self.min is not None:
            values = np.maximum(values, self.min)
        return values if self.max is None else np.minimum(values, self.max)

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return self._quantile(rng.random(n))

    def _quantile(self, q: Array) -> Array:
        raise NotImplementedError

    def _cdf(self, x: Array) -> Array:
        raise NotImplementedError

    def _mean(self) -> float:
        raise NotImplementedError


def _integral(f: Any, low: float, high: float) -> float:
    """Integrate a monotone function on [low, high], on a grid that is fine near `low` (tails are long on the right)."""
    grid = low + (high - low) * np.linspace(0.0, 1.0, 20_001) ** 4
    return float(np.trapezoid(f(grid), grid))
