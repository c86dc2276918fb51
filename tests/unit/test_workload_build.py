"""Does the `workload:` section become the right workload?"""

import json
from itertools import islice
from pathlib import Path

import pytest
from pydantic import ValidationError

import workloads
from sim.errors import InputError
from workloads.config import WorkloadConfig

TRACES = Path(__file__).parents[1] / "data" / "traces"


def build(agents, arrivals=None):
    return workloads.build(WorkloadConfig.model_validate({"agents": agents, "arrivals": arrivals}), TRACES)


def test_defaults_of_arrivals():
    assert build("chat").closed.concurrency == 16
    assert build({"turns": 3}).closed.concurrency == 16
    assert build({"trace": "sessions"}).closed.concurrency == 2  # no absolute times: all at once
    assert build({"trace": "mooncake.jsonl"}).closed is None
    assert [t.arrival_s for t in build({"trace": "mooncake.jsonl"}).trajectories(0, 0)] == [0, 0, 1.5, 2.5, 2.5]


def test_arrivals_given():
    closed = build({"trace": "mooncake.jsonl"}, {"closed": {"concurrency": 2, "think": "1 s", "ramp": 3}}).closed
    assert (closed.concurrency, closed.think_s, closed.ramp_s) == (2, 1, 3)
    scaled = build({"trace": "kvplan.jsonl"}, {"trace": {"time_scale": 0.5}})
    assert [t.arrival_s for t in scaled.trajectories(0, 0)] == [0, 1.25]
    timed = build({"trace": "sessions"}, {"poisson": {"rate": 1}})
    first, again, other = (list(timed.trajectories(*key)) for key in ((0, 0), (0, 0), (0, 1)))
    assert [t.arrival_s for t in first] == [t.arrival_s for t in again] != [t.arrival_s for t in other]


def test_every_call_starts_afresh():
    workload = build({"trace": "sessions"})
    one, two = list(workload.trajectories(0, 0)), list(workload.trajectories(0, 0))
    assert [t.turns for t in one] == [t.turns for t in two]
    assert one[0].roots[0] is not two[0].roots[0]
    assert len(list(build({"trace": "sessions", "limit": 1}).trajectories(0, 0))) == 1


@pytest.mark.parametrize(("agents", "arrivals", "says"), [
    ("chatt", None, "no agent of the library"), ({"trace": "nope.jsonl"}, None, "does not exist"),
    ({"trace": "nope.jsonl", "format": "mooncake"}, None, "does not exist"),
    ("chat", {"trace": {}}, "no recorded times"),
    ({"trace": "sessions"}, {"trace": {}}, "when its trajectories arrive"),
])
def test_errors(agents, arrivals, says):
    with pytest.raises(InputError, match=says):
        build(agents, arrivals)


@pytest.mark.parametrize("section", [
    {}, {"agents": None}, {"agents": 3}, {"agents": {"trace": "x", "format": "nope"}},
    {"agents": {"trace": "x", "on_error": "?"}}, {"agents": {"trace": "x", "limit": 0}},
    {"agents": "chat", "arrivals": {"poisson": 3}}, {"agents": {"turns": 3, "x": 1}},
])
def test_nonsense_is_refused(section):
    with pytest.raises(ValidationError):
        WorkloadConfig.model_validate(section)


@pytest.mark.parametrize("agents", [
    "chat", {"trace": "x.jsonl"}, {"turns": 3, "branching": {"at": [1], "agent": {"turns": 2}}},
])
def test_what_is_written_out_reads_back(agents):
    config = WorkloadConfig.model_validate({"agents": agents, "arrivals": {"poisson": {"rate": "0.2/s"}}})
    assert WorkloadConfig.model_validate(json.loads(config.model_dump_json())) == config


@pytest.mark.parametrize("name", workloads.library_names())
def test_library(name):
    trajectories = list(islice(build(name).trajectories(1, 0), 5))
    assert all(t.turns >= 1 for t in trajectories)
    assert workloads.library(name).description


def test_coding_agent_has_the_recorded_shape():
    from workloads.stats import stats

    found = stats(islice(build("coding-agent").trajectories(7, 0), 600))
    expected = {  # kv-cache-tester, 710 traces; the tolerance covers the sample and what one spec cannot hold
        ("turns_per_trajectory", "p50"): (45, 0.15), ("turns_per_trajectory", "p95"): (232, 0.2),
        ("prompt_tokens", "p50"): (104_644, 0.1), ("output_tokens", "p50"): (216, 0.05),
        ("added_tokens", "p50"): (705, 0.05), ("added_tokens", "mean"): (3268, 0.15),
    }
    for (name, quantile), (value, tolerance) in expected.items():
        assert found[name][quantile] == pytest.approx(value, rel=tolerance), (name, quantile)
    gap = found["waits_by_tool"]["tool"]
    assert gap["p50"] == pytest.approx(9, rel=0.1)
    assert gap["p90"] == pytest.approx(68, rel=0.15)
    assert gap["p99"] == pytest.approx(610, rel=0.25)
    assert found["prompt_hit_rate"] == pytest.approx(0.963, abs=0.01)
    assert found["break_rate"] == pytest.approx(0.017, abs=0.005)
