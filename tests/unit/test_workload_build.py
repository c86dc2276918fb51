"""Does the `workload:` section become the right workload?"""

import json
from itertools import islice
from pathlib import Path

import pytest
from pydantic import ValidationError

import workloads
from sim.errors import InputError
from workloads.config import WorkloadConfig
from workloads.stats import shared_tokens

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



def test_a_mix_draws_each_kind_by_weight_and_keeps_contents_apart():
    kinds = [{"weight": 3, "agents": {"turns": 2, "prompt": [{"name": "a", "tokens": 10, "shared": "all"}]}},
             {"weight": 1, "agents": "chat"}]
    found = list(islice(build({"mix": kinds}).trajectories(1, 0), 800))
    plain = [t for t in found if t.roots[0].prompt_tokens == 10]
    assert 0.70 < len(plain) / 800 < 0.80
    assert shared_tokens(plain[0].roots[0], plain[1].roots[0]) == 10
    assert all(shared_tokens(plain[0].roots[0], t.roots[0]) == 0 for t in found if t not in plain)


def test_a_spec_in_a_file(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("turns: 3\noutput: 7\n")
    config = WorkloadConfig.model_validate({"agents": str(file)})
    assert config.agents.turns.value == 3
    assert WorkloadConfig.model_validate(config.model_dump()) == config  # what is resolved needs the file no more
    for content, says in (("turns: [", "mine.yaml:1|mine.yaml:2"), ("- 1\n", "expected the fields"),
                          ("trace: x\n", "expected the fields")):
        file.write_text(content)
        with pytest.raises((ValidationError, InputError), match=says):
            WorkloadConfig.model_validate({"agents": str(file)})
    with pytest.raises((ValidationError, InputError), match="cannot be read"):
        WorkloadConfig.model_validate({"agents": str(tmp_path / "none.yaml")})


def test_a_trace_is_repeated_with_contents_of_its_own():
    workload = build({"trace": "sessions", "repeat": 3}, {"poisson": {"rate": 1}})
    found = list(workload.trajectories(0, 0))
    assert [t.number for t in found] == list(range(6))
    assert shared_tokens(found[0].roots[0], found[2].roots[0]) == 0
    with pytest.raises(InputError, match="repeat"):
        build({"trace": "mooncake.jsonl", "repeat": 2})
