"""When trajectories arrive: a closed loop of agents, or an open stream of them.

In YAML exactly one of the keys below, with its parameters::

    arrivals: {closed: {concurrency: 64}}
    arrivals: {poisson: {rate: 0.2/s}}
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

from sim import units
from sim.errors import InputError

_CONFIG = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
_BATCH = 1024
Rate = Annotated[units.Rate, Field(gt=0, le=1e6)]


class ClosedLoop(BaseModel):
    """Always so many trajectories alive: when one ends the next starts."""

    model_config = _CONFIG

    concurrency: Annotated[int, Field(ge=1, le=10_000_000)]
    """Trajectories alive, at most ten million."""
    think: Annotated[units.Seconds, Field(ge=0, le=1e9)] = 0.0
    """Pause between one trajectory's end and the start of the next in its place."""
    ramp: Annotated[units.Seconds, Field(ge=0, le=1e9)] = 0.0
    """The first starts are spread evenly over this time."""


class PoissonArrivals(BaseModel):
    """Independent arrivals at a constant rate."""

    model_config = _CONFIG

    rate: Rate
    """Trajectories a second, at most a million."""

    def gaps(self, rng: np.random.Generator) -> Iterator[np.ndarray[Any, Any]]:
        """Yield batches of times between arrivals, in seconds."""
        while True:
            yield rng.exponential(1 / self.rate, _BATCH)


class GammaArrivals(BaseModel):
    """Gamma-distributed gaps: burstier than Poisson for `cv` above 1, more regular below."""

    model_config = _CONFIG

    rate: Rate
    """Trajectories a second, at most a million."""
    cv: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Standard deviation of the gaps over their mean."""

    def gaps(self, rng: np.random.Generator) -> Iterator[np.ndarray[Any, Any]]:
        """Yield batches of times between arrivals, in seconds."""
        while True:
            yield rng.gamma(self.cv**-2, self.cv**2 / self.rate, _BATCH)


class WeibullArrivals(BaseModel):
    """Weibull-distributed gaps: burstier than Poisson for a shape below 1."""

    model_config = _CONFIG

    rate: Rate
    """Trajectories a second, at most a million."""
    shape: Annotated[float, Field(ge=0.05, allow_inf_nan=False)]
    """Shape of the gaps' distribution."""

    def gaps(self, rng: np.random.Generator) -> Iterator[np.ndarray[Any, Any]]:
        """Yield batches of times between arrivals, in seconds."""
        scale = 1 / (self.rate * math.gamma(1 + 1 / self.shape))
        while True:
            yield scale * rng.weibull(self.shape, _BATCH)


class DiurnalArrivals(BaseModel):
    """Poisson arrivals whose rate follows a sine: rate * (1 + amplitude * sin(2 pi t / period))."""

    model_config = _CONFIG

    rate: Rate
    """Mean number of trajectories a second, at most a million."""
    amplitude: Annotated[units.Fraction, Field(ge=0, le=1)] = 0.5
    """Swing around the mean, as a fraction of it."""
    period: Annotated[units.Seconds, Field(gt=0)] = 86400.0
    """Length of one cycle."""

    def gaps(self, rng: np.random.Generator) -> Iterator[np.ndarray[Any, Any]]:
        """Yield batches of times between arrivals, in seconds (thinning a Poisson process of the peak rate)."""
        peak = self.rate * (1 + self.amplitude)
        now = last = 0.0
        while True:
            times = now + np.cumsum(rng.exponential(1 / peak, _BATCH))
            now = float(times[-1])
            rate = self.rate * (1 + self.amplitude * np.sin(2 * np.pi * times / self.period))
            kept = times[rng.random(_BATCH) * peak < rate]
            if kept.size:
                yield np.diff(kept, prepend=last)
                last = float(kept[-1])


class RampArrivals(BaseModel):
    """Poisson arrivals whose rate rises (or falls) linearly from `start` to `end` within `over`, and stays there."""

    model_config = _CONFIG

    start: Annotated[units.Rate, Field(ge=0, le=1e6)] = 0.0
    """Trajectories a second at first."""
    end: Rate
    """Trajectories a second in the end."""
    over: Annotated[units.Seconds, Field(gt=0)]
    """Time from the one to the other."""

    def gaps(self, rng: np.random.Generator) -> Iterator[np.ndarray[Any, Any]]:
        """Yield batches of times between arrivals, in seconds (a unit Poisson process, its clock bent by the rate)."""
        expected = last = 0.0
        slope = (self.end - self.start) / self.over
        by_then = (self.start + self.end) / 2 * self.over  # arrivals expected during the ramp
        while True:
            at = expected + np.cumsum(rng.exponential(1.0, _BATCH))
            expected = float(at[-1])
            ramped = np.minimum(at, by_then)
            # start t + slope t^2 / 2 = at, in the form that is exact for a slope of 0 too
            root = np.sqrt(np.maximum(self.start**2 + 2 * slope * ramped, 0.0))
            times = 2 * ramped / np.maximum(self.start + root, 1e-300) + (at - ramped) / self.end
            yield np.diff(times, prepend=last)
            last = float(times[-1])


class TraceTimes(BaseModel):
    """The times a trace records."""

    model_config = _CONFIG

    time_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Times of arrival are multiplied by this: 0.5 plays the trace twice as fast. Waits inside stay as they are."""


class Arrivals(BaseModel):
    """How trajectories arrive: exactly one of these."""

    model_config = _CONFIG

    closed: ClosedLoop | None = None
    """A fixed number of trajectories is always alive."""
    poisson: PoissonArrivals | None = None
    """Open: Poisson."""
    gamma: GammaArrivals | None = None
    """Open: gamma-distributed gaps with a given variability."""
    weibull: WeibullArrivals | None = None
    """Open: Weibull-distributed gaps."""
    diurnal: DiurnalArrivals | None = None
    """Open: a rate that swings with the hour."""
    ramp: RampArrivals | None = None
    """Open: a rate that rises to a level (a launch, a load test)."""
    trace: TraceTimes | None = None
    """Open: the trace's own times."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise InputError(f"give exactly one of {', '.join(type(self).model_fields)}",
                             got=", ".join(given) or "none")
        return self

    @model_serializer(mode="plain")
    def _as_written(self) -> dict[str, Any]:
        return {name: value.model_dump() for name in type(self).model_fields
                if (value := getattr(self, name)) is not None}

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield ever-increasing times of arrival in seconds, without end (for the open kinds but `trace`)."""
        process = self.poisson or self.gamma or self.weibull or self.diurnal or self.ramp
        if process is None:
            raise ValueError("closed and trace arrivals have no times of their own")
        now = 0.0
        for gaps in process.gaps(rng):
            times = now + np.cumsum(gaps)
            now = float(times[-1])
            yield from times.tolist()
