"""Every wait is expected to take the same time."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.policies.base import PolicyConfig
from sim.policies.prediction.base import Declared, Point, Wait
from sim.units import Seconds


class Constant(PolicyConfig):
    """Expects the same wait every time."""

    kind: Literal["constant"] = "constant"
    """Name of the predictor."""
    wait: Seconds = Field(10.0, ge=0)
    """The expected wait."""

    def start(self, declared: Declared) -> Constant:
        """Return the predictor's state: a constant has none."""
        return self

    def predict(self, tool: str, true_s: float) -> Wait:
        """Return the constant."""
        return Point(self.wait)

    def observe(self, tool: str, wait_s: float) -> None:
        """Nothing to learn."""
