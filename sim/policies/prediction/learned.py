"""The mean of the waits seen so far, per tool."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.policies.base import PolicyConfig
from sim.units import Seconds


class Learned(PolicyConfig):
    """Learns each tool's mean wait online.

    The estimate is the mean of the waits seen for that tool and of `prior_weight` imagined waits of length `prior`.
    """

    kind: Literal["learned"] = "learned"
    """Name of the predictor."""
    prior: Seconds = Field(10.0, ge=0)
    """Expected wait of a tool that has never been seen."""
    prior_weight: float = Field(1.0, gt=0)
    """How many observed waits the prior counts for."""

    def start(self) -> LearnedState:
        """Return an empty memory."""
        return LearnedState(self.prior, self.prior_weight)


class LearnedState:
    """Sums and counts per tool."""

    def __init__(self, prior_s: float, weight: float) -> None:
        self._prior_s = prior_s
        self._weight = weight
        self._seen: dict[str, tuple[float, float]] = {}

    def expect(self, tool: str, true_s: float) -> float:
        """Return the mean of the prior and of what was seen."""
        total, count = self._seen.get(tool, (self._prior_s * self._weight, self._weight))
        return total / count

    def observe(self, tool: str, wait_s: float) -> None:
        """Add one wait."""
        total, count = self._seen.get(tool, (self._prior_s * self._weight, self._weight))
        self._seen[tool] = (total + wait_s, count + 1.0)
