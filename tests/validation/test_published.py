"""Are published measurements and known results reproduced? The same cases as docs/validation.md."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sim.report import validation, validation_cases
from sim.scenario import load

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted((ROOT / "scenarios" / "validation").glob("*.yaml"))


@pytest.fixture(scope="module")
def agents():
    """Mean job times with the window that host memory allows and the H200's step times as they ship, by seed."""
    return validation_cases.agent_jobs((validation_cases.WINDOW_S,), (None,), seeds=validation_cases.SEEDS)


@pytest.fixture(scope="module")
def tier():
    return validation_cases.cpu_tier()


def job_times(agents, policy: str, column: str) -> dict[int, float]:
    """The mean over the seeds, by rate."""
    return agents[agents["policy"] == policy].groupby("jobs_per_s")[column].mean().to_dict()


def test_agent_jobs_take_as_long_as_measured(agents) -> None:
    """With every seed, and seeds do differ."""
    assert len(agents) == 5 * 15
    low, high = validation_cases.error_range(agents)
    assert low < high <= validation.BOUND


def test_policies_under_pressure_come_in_the_measured_order(agents) -> None:
    right, wrong, pairs = validation_cases.order(agents[agents["jobs_per_s"] >= 6])
    assert (right, wrong) == (pairs, 0)
    assert pairs >= 6


def test_no_two_policies_come_out_reversed_at_any_rate(agents) -> None:
    assert validation_cases.order(agents)[1] == 0


@pytest.mark.parametrize("column", ["measured", "predicted"])
def test_crossovers_of_agent_jobs(agents, column: str) -> None:
    """FCFS collapses between 3 and 6 jobs a second; LMCache stays near Continuum until 6, and near FCFS at 15."""
    fcfs, lmcache, continuum = (job_times(agents, name, column) for name in ("FCFS", "LMCache", "Continuum"))
    assert fcfs[3] < 1.5 * continuum[3]
    assert fcfs[6] > 2.5 * continuum[6]
    assert lmcache[6] < 1.25 * continuum[6]
    assert 1.2 * continuum[10] < lmcache[10] < 0.5 * fcfs[10]
    assert lmcache[15] > 0.7 * fcfs[15] > 2 * continuum[15]


def test_a_window_is_read_off_a_line() -> None:
    """Jobs for 50 s at an engine of 2 jobs/s take 8 s and half of what the queue has grown to."""
    times = pd.Series({1: 8.0} | {rate: 8.0 + 50 / 2 * (rate / 2 - 1) for rate in (3, 6, 10, 15)})
    assert validation_cases.line_window_s(times) == pytest.approx(50.0)


def test_order_counts_pairs_that_differ(agents) -> None:
    """Measured times give every pair, inverse ones none, equal ones neither; one seed that disagrees undoes a pair."""
    pairs = validation_cases.order(agents)[2]
    assert pairs > 0
    assert validation_cases.order(agents.assign(predicted=agents["measured"])) == (pairs, 0, pairs)
    assert validation_cases.order(agents.assign(predicted=1 / agents["measured"])) == (0, pairs, pairs)
    assert validation_cases.order(agents.assign(predicted=1.0)) == (0, 0, pairs)
    mixed = agents["measured"].where(agents["seed"] != agents["seed"].max(), 1 / agents["measured"])
    assert validation_cases.order(agents.assign(predicted=mixed)) == (0, 0, pairs)


def test_requests_on_many_engines_take_as_long_as_measured(tier) -> None:
    main = tier[tier["figure"].isin(["request_mean_s", "tokens_per_s"])]
    assert len(main) == 8
    assert main["error"].abs().max() <= validation.BOUND


def test_offload_wins_where_contexts_exceed_hbm(tier) -> None:
    found, known = (validation_cases.gain(tier, "cpu_tier_30k", column) for column in ("predicted", "measured"))
    assert found == pytest.approx(known, abs=0.1)


def test_offload_does_not_win_where_they_fit(tier) -> None:
    assert abs(validation_cases.gain(tier, "cpu_tier_8k", "predicted")) < 0.03


def test_chunked_prefill() -> None:
    assert validation_cases.chunked()["error"].abs().max() < 1e-3


def test_paging() -> None:
    assert validation_cases.paging()["error"].abs().max() < 0.02


def test_host_link() -> None:
    """The median over both curves; at 4 KiB the copy kernel's curve has a knee that the form lacks."""
    curve = validation_cases.host_link()
    assert validation_cases.median_error(curve) < 0.05
    assert curve[curve["piece_bytes"] >= 8192]["error"].abs().max() < 0.15


@pytest.mark.study
def test_queues() -> None:
    """More of them, and priorities, are in tests/theory."""
    found = validation_cases.queues()
    assert (found["predicted"] - found["recursion"]).abs().max() < 1e-3
    assert found["error"].abs().max() < 0.15


@pytest.mark.parametrize("name", ["agent_jobs_lmcache", "cpu_tier_30k"])
def test_the_same_scenario_gives_the_same_figures(name: str) -> None:
    once, again = (validation_cases.run(name, "replications=1").summary for _ in range(2))
    assert once | {"wall_s": 0} == again | {"wall_s": 0}


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_every_scenario_loads_is_short_and_says_where_it_is_from(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert load(file).name == file.stem.replace("_", "-")
    assert len(text.splitlines()) <= 45
    head = text.partition("\nname:")[0]
    assert all(line.startswith("#") for line in head.splitlines())
    assert any(word in head for word in ("Measured:", "Known:", "agent_jobs_fcfs.yaml", "cpu_tier_30k.yaml"))
    assert file.name in (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
