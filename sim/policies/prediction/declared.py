"""The workload's own distribution for each tool: what a harness that knows its tools could tell the engine."""

from __future__ import annotations

from typing import Literal

from sim.policies.base import PolicyConfig
from sim.policies.prediction.base import Declared as Waits
from sim.policies.prediction.base import Wait
from sim.policies.prediction.learned import Learned, LearnedState


class Declared(PolicyConfig):
    """Answers with the distribution the workload draws a tool's waits from; for a tool without one it learns."""

    kind: Literal["declared"] = "declared"
    """Name of the predictor."""

    def start(self, declared: Waits) -> DeclaredState:
        """Return the state: the workload's distributions, and an empty memory for the rest."""
        return DeclaredState(declared)


class DeclaredState:
    """The distributions a workload states, and what is learned about the others."""

    def __init__(self, declared: Waits) -> None:
        self._declared = declared
        self._learned: LearnedState = Learned().start({})

    def predict(self, tool: str, true_s: float) -> Wait:
        """Return the stated distribution, or the learned one."""
        return self._declared.get(tool) or self._learned.predict(tool, true_s)

    def observe(self, tool: str, wait_s: float) -> None:
        """Learn about a tool without a stated distribution."""
        if tool not in self._declared:
            self._learned.observe(tool, wait_s)
