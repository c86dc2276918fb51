"""The wait is known: the bound that every other predictor is measured against."""

from __future__ import annotations

from typing import Literal

from sim.policies.base import PolicyConfig
from sim.policies.prediction.base import Declared, Point, Wait


class Oracle(PolicyConfig):
    """Knows each wait in advance."""

    kind: Literal["oracle"] = "oracle"
    """Name of the predictor."""

    def start(self, declared: Declared) -> Oracle:
        """Return the predictor's state: an oracle has none."""
        return self

    def predict(self, tool: str, true_s: float) -> Wait:
        """Return the true wait."""
        return Point(true_s)

    def observe(self, tool: str, wait_s: float) -> None:
        """Nothing to learn."""
