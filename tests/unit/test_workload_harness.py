"""Do the harness scenarios load, and does each cost the hits that its page says?"""

from itertools import islice
from pathlib import Path

import pytest

import workloads
from sim import load
from workloads.stats import stats

FOLDER = Path(__file__).parents[2] / "scenarios" / "harness"


def ceiling(name, *overrides):
    """The hit rate of an infinite cache, drawn without a simulation."""
    scenario = load(FOLDER / f"{name}.yaml", list(overrides))
    return stats(islice(workloads.build(scenario.workload, Path()).trajectories(7, 0), 120))["hit_rate"]


def test_there_are_no_others():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {
        "stable_head", "volatile_head", "volatile_tail", "compaction", "tool_list", "one_repository",
        "many_repositories"}


def test_what_layouts_cost():
    best = ceiling("stable_head")
    assert best == pytest.approx(0.978, abs=0.01)
    assert 0 < best - ceiling("volatile_tail") < 0.015
    assert ceiling("volatile_head") < 0.4
    assert ceiling("one_repository") > ceiling("many_repositories") + 0.01


def test_what_changes_cost():
    early, late = (ceiling("compaction", f"workload.agents.compaction.at={at}") for at in (40_000, 190_000))
    assert late > early + 0.005
    rates = [ceiling("tool_list", f"workload.agents.tool_list_change.probability={p}") for p in (0, 0.01, 0.05, 0.2)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] - rates[-1] > 0.1
