"""How long a pause will last."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from sim.policies.prediction.base import Point, Predictor, Wait
from sim.policies.prediction.constant import Constant
from sim.policies.prediction.declared import Declared
from sim.policies.prediction.learned import Learned
from sim.policies.prediction.oracle import Oracle


def _named(value: Any) -> Any:
    """Let a bare name stand for the predictor with its defaults."""
    return {"kind": value} if isinstance(value, str) else value


Prediction = Annotated[Oracle | Declared | Learned | Constant, Field(discriminator="kind"), BeforeValidator(_named)]

__all__ = ["Constant", "Declared", "Learned", "Oracle", "Point", "Prediction", "Predictor", "Wait"]
