"""Does a spec tell a predictor the waits that its agents then have?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import workloads
from sim.policies.prediction.declared import Declared
from workloads.config import WorkloadConfig

LOGNORMAL = {"lognormal": {"median": 9.0, "p90": 68.0, "max": 600.0}}
AGENTS = {
    "one tool": {"turns": 40, "tools": {"read": {"wait": LOGNORMAL}}},
    "two tools": {"turns": 40, "tools": {"read": {"weight": 3, "wait": {"uniform": {"low": 1, "high": 3}}},
                                         "build": {"wait": {"gamma": {"mean": 30, "cv": 2}}}}},
    "a client on top": {"turns": 40, "client": {"exponential": {"mean": 4}}, "tools": {"read": {"wait": LOGNORMAL}}},
    "some approved": {"turns": 40, "client": 1.5, "tools": {
        "run": {"wait": {"exponential": {"mean": 3}},
                "approval": {"probability": 0.3, "wait": {"lognormal": {"median": 60, "sigma": 0.5}}}}}},
    "a mix": {"mix": [{"weight": 2, "agents": {"turns": 9, "tools": {"read": {"wait": {"exponential": {"mean": 2}}}}}},
                      {"agents": {"turns": 5, "tools": {"read": {"wait": 50}}}}]},
    "sub-agents": {"turns": 30, "tools": {"read": {"wait": 3}}, "branching": {
        "probability": 0.3, "join": "subagent", "agent": {"turns": 5, "tools": {"read": {"wait": 7},
                                                                               "search": {"wait": LOGNORMAL}}}}},
}


def waits_of(workload, trajectories):
    found: dict[str, list[float]] = {}
    for trajectory, _ in zip(workload.trajectories(7, 0), range(trajectories), strict=False):
        open_turns, seen = list(trajectory.roots), set()
        while open_turns:
            turn = open_turns.pop()
            if turn in seen:
                continue
            seen.add(turn)
            open_turns += turn.next
            if turn.tool not in ("", "sub-agent"):
                found.setdefault(turn.tool, []).append(turn.wait_s)
    return {tool: np.array(waits) for tool, waits in found.items()}


@pytest.mark.parametrize("agents", AGENTS.values(), ids=AGENTS.keys())
def test_the_waits_declared_are_the_waits_drawn(agents):
    workload = workloads.build(WorkloadConfig.model_validate({"agents": agents}), Path())
    drawn = waits_of(workload, 3000)
    assert set(workload.declared_waits) == set(drawn)
    for tool, waits in drawn.items():
        said = workload.declared_waits[tool]
        assert said.mean() == pytest.approx(waits.mean(), abs=6 * waits.std() / len(waits) ** 0.5, rel=0.05)
        for at in np.quantile(waits, [0.1, 0.5, 0.9]):
            assert said.cdf(at) == pytest.approx(np.mean(waits <= at), abs=0.025)
            assert said.cdf(at * (1 - 1e-9)) - 0.025 <= np.mean(waits <= at)
        for share in (0.2, 0.7, 0.95):
            value = said.quantile(share)
            assert np.mean(waits <= value * 1.001) >= share - 0.025
            assert np.mean(waits < value * 0.999) <= share + 0.025


def test_quantile_and_cdf_belong_together():
    said = workloads.build(WorkloadConfig.model_validate({"agents": AGENTS["some approved"]}), Path()) \
        .declared_waits["run"]
    for share in np.linspace(0.001, 0.999, 57):
        value = said.quantile(float(share))
        assert said.cdf(value) >= share
        assert said.cdf(value * (1 - 1e-9)) <= share + 1e-3
    assert said.cdf(-1.0) == 0.0
    assert said.cdf(1e12) == 1.0
    assert said.quantile(0.0) <= said.quantile(1.0) < np.inf


def test_the_predictor_knows_a_library_agents_tools_and_learns_the_rest():
    workload = workloads.build(WorkloadConfig.model_validate({"agents": "coding-agent"}), Path())
    state = Declared().start(workload.declared_waits)
    for tool, said in workload.declared_waits.items():
        state.observe(tool, 1e6)
        assert state.predict(tool, 0.0) is said
    before = state.predict("sub-agent", 0.0).mean()
    state.observe("sub-agent", 1e6)
    assert state.predict("sub-agent", 0.0).mean() > before


def test_a_run_with_declared_waits_predicts_their_mean():
    import sim

    result = sim.run({
        "duration": "20 min", "warmup": 0, "model": "llama-3.1-8b", "hardware": "dgx-h100",
        "retention": {"policy": "break_even", "predictor": "declared"}, "tiers": {"dram": {"capacity": "100 GiB"}},
        "workload": {"agents": {"turns": 10, "tools": {"read": {"wait": {"exponential": {"mean": 4}}}}},
                     "arrivals": {"closed": {"concurrency": 4}}}})
    predicted = result.pauses["predicted_s"]
    assert len(predicted) > 100
    assert set(predicted.dropna().round(9)) == {4.0}
