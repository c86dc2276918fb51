"""Where do turns go with several replicas, and what does an agent that moves lose?"""

from __future__ import annotations

from typing import Any

import pytest

import sim
from sim.policies.routing import LeastLoaded, Sticky


class View:
    """Replicas by the trajectories and turns each has."""

    def __init__(self, alive: list[int], loads: list[int]) -> None:
        self._alive, self._loads = alive, loads

    def __len__(self) -> int:
        return len(self._loads)

    def alive(self) -> list[int]:
        return self._alive

    def loads(self) -> list[int]:
        return self._loads

    def matches(self) -> list[int]:
        return [0] * len(self._loads)


def agents(**changes: Any) -> sim.Result:
    """Forty agents, most of them waiting for tools at any time, on four replicas with room for all."""
    return sim.run({
        "model": "llama-3.1-8b", "hardware": "dgx-h100", "replicas": 4, "duration": "20 min", "warmup": "5 min",
        "workload": {"arrivals": {"closed": {"concurrency": 40, "ramp": "4 min"}}, "agents": {
            "prompt": [{"name": "system", "tokens": 500, "shared": "all"}, {"name": "task", "tokens": 2000}],
            "turns": 30, "output": 80, "observation": 600, "tools": {"shell": {"wait": "20 s"}}}}, **changes})


def test_an_agent_stays_and_a_new_one_goes_where_the_fewest_live() -> None:
    view = View(alive=[3, 1, 1], loads=[0, 2, 1])
    assert Sticky().choose(view, 0, 0, 100) == 0
    assert Sticky().choose(view, None, 0, 100) == 2
    assert LeastLoaded().choose(view, 1, 0, 100) == 0


def test_agents_find_their_contexts_again_unless_told_otherwise() -> None:
    stays, moves = agents(), agents(routing="least_loaded")
    assert stays.summary["hit_rate"]["total"] == pytest.approx(stays.summary["hit_rate"]["ceiling"], abs=0.02)
    assert moves.summary["hit_rate"]["total"] < stays.summary["hit_rate"]["total"] - 0.1
    homes = stays.turns.groupby("trajectory")["replica"].nunique()
    assert (homes == 1).all()


def test_replicas_hold_equally_many_agents() -> None:
    result = agents()
    alive = result.trajectories
    first = result.turns.groupby("trajectory")["replica"].first()
    for now_s in (300.0, 600.0, 900.0):
        there = alive[(alive["start_s"] <= now_s) & ((alive["end_s"] > now_s) | alive["end_s"].isna())]
        counts = first.reindex(there["trajectory"]).value_counts()
        assert len(counts) == 4
        assert counts.max() - counts.min() <= 2
