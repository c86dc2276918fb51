"""Oracle: the break-even rule, told the true wait."""

from __future__ import annotations

from typing import Literal

from sim.policies.prediction import Oracle as TrueWait
from sim.policies.prediction import Prediction
from sim.policies.retention.base import Decision, PauseView, RetentionConfig, TierName
from sim.policies.retention.break_even import BreakEven


class Oracle(RetentionConfig):
    """Knows each wait and applies the break-even rule: the bound the others are measured against."""

    policy: Literal["oracle"] = "oracle"
    """Name of the policy."""
    predictor: Prediction = TrueWait()
    """The true wait."""

    def targets(self) -> tuple[TierName, ...]:
        """Return where contexts may go."""
        return _RULE.targets()

    def decide(self, pause: PauseView) -> Decision:
        """Return what the break-even rule says for the true wait."""
        return _RULE.decide(pause)


_RULE = BreakEven()
