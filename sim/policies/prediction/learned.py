"""Each tool's waits as a log-normal, learned online."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import Literal

from pydantic import Field

from sim.policies.base import PolicyConfig
from sim.policies.prediction.base import Declared, Wait
from sim.units import Seconds

_NORMAL = NormalDist()
_deviations = cache(_NORMAL.inv_cdf)
#: Shortest wait that is told apart from none, in seconds.
_FLOOR_S = 1e-3


class Learned(PolicyConfig):
    """Learns each tool's waits online.

    The mean is that of the waits seen and of `prior_weight` imagined waits of length `prior`; quantiles are those of a
    log-normal with the mean and spread of the logarithms seen (a spread of 1 is imagined for the prior).
    """

    kind: Literal["learned"] = "learned"
    """Name of the predictor."""
    prior: Seconds = Field(10.0, gt=0)
    """Expected wait of a tool that has never been seen."""
    prior_weight: float = Field(1.0, gt=0)
    """How many observed waits the prior counts for."""

    def start(self, declared: Declared) -> LearnedState:
        """Return an empty memory."""
        return LearnedState(self.prior, self.prior_weight)


class LearnedWait:
    """Running sums over one tool's waits, and the distribution they suggest."""

    __slots__ = ("_log", "_square", "_total", "_weight")

    def __init__(self, prior_s: float, weight: float) -> None:
        log = math.log(max(prior_s, _FLOOR_S))
        self._weight = weight
        self._total = prior_s * weight
        self._log = log * weight
        self._square = (log * log + 1.0) * weight

    def add(self, wait_s: float) -> None:
        """Add one wait."""
        log = math.log(wait_s if wait_s > _FLOOR_S else _FLOOR_S)
        self._weight += 1.0
        self._total += wait_s
        self._log += log
        self._square += log * log

    def mean(self) -> float:
        """Return the expected wait, in seconds."""
        return self._total / self._weight

    def quantile(self, share: float) -> float:
        """Return the wait that so large a share of waits does not exceed."""
        centre, spread = self._shape()
        return math.exp(centre + spread * _deviations(min(max(share, 1e-6), 1.0 - 1e-6)))

    def cdf(self, seconds: float) -> float:
        """Return the share of waits that do not exceed `seconds`."""
        if seconds <= 0.0:
            return 0.0
        centre, spread = self._shape()
        return 0.5 * math.erfc((centre - math.log(seconds)) / (spread * math.sqrt(2.0)))

    def _shape(self) -> tuple[float, float]:
        centre = self._log / self._weight
        return centre, math.sqrt(max(self._square / self._weight - centre * centre, 1e-6))


class LearnedState:
    """What has been seen of each tool."""

    def __init__(self, prior_s: float, weight: float) -> None:
        self._prior_s = prior_s
        self._weight = weight
        self._seen: dict[str, LearnedWait] = {}

    def predict(self, tool: str, true_s: float) -> Wait:
        """Return the distribution learned so far."""
        wait = self._seen.get(tool)
        if wait is None:
            wait = self._seen[tool] = LearnedWait(self._prior_s, self._weight)
        return wait

    def observe(self, tool: str, wait_s: float) -> None:
        """Add one wait."""
        wait = self._seen.get(tool)
        if wait is None:
            wait = self._seen[tool] = LearnedWait(self._prior_s, self._weight)
        wait.add(wait_s)
