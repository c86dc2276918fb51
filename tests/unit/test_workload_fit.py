"""Does a fit find what the trajectories were drawn from, and does it say so when it does not?"""

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import yaml

from sim.cli import main
from sim.errors import InputError
from workloads.arrivals import Arrivals
from workloads.config import WorkloadConfig
from workloads.convert import write_kvplan
from workloads.fit import fit
from workloads.fit.observe import observe
from workloads.fit.quality import compare
from workloads.fit.sizes import ladder, thresholds
from workloads.fit.waits import em, fit_waits
from workloads.fit.written import text, warning
from workloads.generator import SyntheticWorkload
from workloads.readers import open_trace
from workloads.spec import TrajectorySpec

TRACES = Path(__file__).parents[1] / "data" / "traces"
SPEC = {
    "prompt": [{"name": "system", "tokens": 3000, "shared": "all"},
               {"name": "task", "tokens": {"lognormal": {"median": 2000, "sigma": 0.5}}}],
    "turns": {"lognormal": {"median": 25, "sigma": 0.5}}, "output": {"lognormal": {"median": 200, "sigma": 0.7}},
    "observation": {"lognormal": {"median": 600, "sigma": 0.9}},
    "tools": {"shell": {"weight": 8, "wait": {"mixture": [
                  {"weight": 0.7, "of": {"lognormal": {"median": 1, "sigma": 0.5}}},
                  {"weight": 0.3, "of": {"lognormal": {"median": 60, "sigma": 0.8}}}]}},
              "person": {"weight": 1, "human": True, "wait": {"lognormal": {"median": 200, "sigma": 1}}}},
    "unstable_serialization": {"probability": 0.03, "kept": 0.5}, "compaction": {"at": 30_000, "to": 0.3},
    "branching": {"probability": 0.01, "children": 2, "join": "subagent", "result": 900,
                  "agent": {"prompt": [{"name": "sub", "tokens": 500}], "turns": 4}},
}


def drawn(n=150, spec=SPEC, seed=4):
    workload = SyntheticWorkload(TrajectorySpec.model_validate(spec),
                                 Arrivals.model_validate({"closed": {"concurrency": 1}}))
    return islice(workload.trajectories(seed, 0), n)


@pytest.fixture(scope="module")
def fitted():
    return fit(drawn(), "agents drawn")


def test_it_draws_what_it_was_fitted_to(fitted):
    # All contexts end at one threshold, and a fit knows only the lengths seen before it: their peaks are blurred.
    assert {row.name for row in fitted.poor} <= {"longest prompt of a trajectory"}
    rows = {row.name: row for row in fitted.rows}
    assert {"wait: shell", "wait: person", "prompt tokens", "sub-agent turns"} <= rows.keys()
    for name in ("output tokens", "wait: shell", "turns of a trajectory", "new tokens a turn"):
        assert rows[name].distance < 0.1
        assert rows[name].drawn.mean() == pytest.approx(rows[name].recorded.mean(), rel=0.12)


def test_its_parts_are_those_drawn_from(fitted):
    kinds = [kind["agents"] for kind in fitted.agents["mix"]] if "mix" in fitted.agents else [fitted.agents]
    for spec in kinds:
        assert spec["prompt"][0] == {"name": "common", "tokens": 3000, "shared": "all"}
        assert "strip_thinking" not in spec  # outputs stay
        assert spec["branching"]["probability"] == pytest.approx(0.01, rel=0.4)
        assert spec["branching"]["agent"]["turns"] == 4
        assert spec["tools"]["person"]["human"]
        parts = spec["tools"]["shell"]["wait"]["mixture"]["parts"]
        assert sum(part["weight"] for part in parts) == pytest.approx(1, abs=1e-3)
    at = kinds[-1]["compaction"]["at"]["quantiles"]
    assert at["p0"] > 24_000


def test_expectation_maximisation_finds_the_parts():
    rng = np.random.default_rng(0)
    logs = np.concatenate((rng.normal(0, 0.4, 7000), rng.normal(4, 0.9, 3000)))
    weights, mus, sigmas = em(logs, 2)
    assert sorted(zip(np.round(mus, 1), np.round(weights, 2), strict=True)) == [(0.0, 0.7), (4.0, 0.3)]
    assert sorted(sigmas) == pytest.approx([0.4, 0.9], rel=0.05)


@pytest.mark.parametrize("waits", [[3.0], [0, 0, 0], [1, 1, 1, 1], [0, 0, 5], [0.0] * 50 + [1, 2, 3] * 20,
                                   list(range(1, 400))])
def test_odd_waits_are_no_trouble(waits):
    config = {"agents": {"tools": {"x": {"wait": fit_waits(waits)}}}}
    wait = WorkloadConfig.model_validate(config).agents.tools["x"].wait
    assert wait.mean() == pytest.approx(np.mean(waits), rel=0.1, abs=0.1)


def test_a_threshold_counts_those_that_never_got_there():
    at = thresholds([(100, True), (50, False), (60, False), (200, True), (150, False)], beyond=1000)["quantiles"]
    assert (at["p0"], at["p100"]) == (100, 200)
    assert at["p33.333"] == 100  # one of the three that came that far
    assert thresholds([(50, False)], 1000) is None
    assert thresholds([(50, True), (400, False)], 1000)["quantiles"]["p100"] == 1000
    assert ladder([5, 5, 5]) == 5


def test_a_poor_fit_is_said_loudly():
    recorded = observe(drawn())
    other = observe(drawn(spec={**SPEC, "output": 2000}, seed=5))
    rows = {row.name: row.verdict for row in compare(recorded, other)}
    assert rows["output tokens"] == "poor"
    found = fit(drawn(30))
    object.__setattr__(found, "rows", compare(recorded, other))
    assert "POOR FIT" in warning(found)
    assert "output tokens" in warning(found)
    assert text(found).split("\n")[2].startswith("# POOR FIT")


@pytest.mark.parametrize("name", ["mooncake.jsonl", "sessions", "dynamo.jsonl", "kvplan.jsonl"])
def test_the_smallest_traces_give_a_spec_that_reads_back(name):
    found = fit(open_trace(TRACES / name))
    spec = yaml.safe_load(text(found))
    agents = WorkloadConfig.model_validate({"agents": spec}).agents
    assert agents == WorkloadConfig.model_validate({"agents": json.loads(json.dumps(found.agents))}).agents
    with pytest.raises(InputError, match="no trajectory"):
        fit([])


def run(*arguments):
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return left.value.code


def test_the_command(tmp_path, capsys):
    trace, spec = tmp_path / "x.jsonl", tmp_path / "mine.yaml"
    write_kvplan(list(drawn(20)), trace)
    trace.write_text(trace.read_text() + "rubbish\n")
    assert run("workload", "fit", trace, "-o", spec) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert run("workload", "fit", trace, "-o", spec, "--on-error", "skip") == 0
    told = capsys.readouterr()
    assert "wait: shell" in told.out
    assert "skipped 1" in told.err
    assert spec.with_suffix(".png").stat().st_size > 10_000
    assert run("workload", "fit", trace, "-o", spec) == 2
    assert "exists already" in capsys.readouterr().err
    assert run("workload", "stats", spec, "--trajectories", 5) == 0
    assert run("workload", "convert", spec, "-o", tmp_path / "like.jsonl", "--trajectories", 7) == 0
    assert len(list(open_trace(tmp_path / "like.jsonl"))) == 7
