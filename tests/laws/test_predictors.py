"""Does knowing the wait ever hurt? Agents of the retention study, fewer of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sim
from sim.metrics.intervals import student

STUDY = Path(__file__).parents[2] / "scenarios" / "retention_study.yaml"
#: A fifth of the study's agents on a fifth of its memory and of its links.
SMALLER = ["vary=null", "workload.arrivals.closed.concurrency=40", "workload.arrivals.closed.ramp=2 min",
           "duration=25 min", "warmup=8 min", "replications=4", "engine.pool=60 GB", "tiers.dram.capacity=200 GB",
           "tiers.dram.layout=per_layer", "engine.block_size=16"]
#: Policies that act on a predicted wait, as the study has them.
POLICIES = {value["policy"]: value for value in next(iter(sim.load(STUDY).vary.values())) if "predictor" in value}


def waits(policy: str, predictor: str) -> list[float]:
    """Return the mean TTFT of resumed turns in each replication, in seconds: what these policies are to lower."""
    settings = json.dumps({**POLICIES[policy], "predictor": predictor})
    result = sim.run(STUDY, overrides=[*SMALLER, f"retention={settings}"])
    values: list[float] = result.summary["intervals"]["ttft_s.resumed.mean"]["values"]
    assert result.summary["prediction_error"]["predictions"] > 100
    return values


@pytest.mark.parametrize("policy", POLICIES)
def test_being_told_the_true_wait_is_no_worse(policy: str) -> None:
    """The interval of the paired difference, true wait less guessed, does not lie above zero."""
    told = waits(policy, "oracle")
    for predictor in ("learned", "declared", "constant"):
        guessed = waits(policy, predictor)
        spread: Any = student([a - b for a, b in zip(told, guessed, strict=True)])
        assert spread["low"] <= 0.0, (policy, predictor, told, guessed)


def test_a_predictor_that_knows_makes_no_error() -> None:
    result = sim.run(STUDY, overrides=[*SMALLER, "replications=1", "duration=8 min", "warmup=2 min",
                                       "retention={policy: break_even, predictor: oracle}"])
    error = result.summary["prediction_error"]
    assert error["mean_absolute_s"] == pytest.approx(0.0, abs=1e-6)
