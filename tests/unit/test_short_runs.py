"""Is a run that is too short for its trajectories told apart from one that is long enough, and is that said?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sim
from sim.metrics.checks import median_life
from sim.metrics.steady import steady
from sim.metrics.wording import facts

#: Ten turns of some 5 s with pauses of 60 s: a trajectory takes ten minutes.
AGENTS = {"prompt": [{"name": "p", "tokens": 1000}], "turns": 10, "output": 100, "observation": 100,
          "tools": {"tool": {"wait": 60}}}


def load(duration: str, arrivals: dict, warmup: str = "0 s"):
    return sim.load({"duration": duration, "warmup": warmup, "model": "llama-3.1-8b", "hardware": "dgx-h100",
                     "replicas": 1, "workload": {"agents": AGENTS, "arrivals": arrivals},
                     "slo": {"ttft_resumed": {"p95": "2 s"}}})


@pytest.mark.parametrize("arrivals", [{"closed": {"concurrency": 8, "ramp": "1 min"}}, {"poisson": {"rate": "1/min"}}])
@pytest.mark.parametrize(("duration", "warmup", "short"), [
    ("8 min", "0 s", True), ("15 min", "0 s", False), ("15 min", "8 min", True), ("60 min", "8 min", False)])
def test_a_run_is_held_against_its_trajectories(arrivals, duration, warmup, short):
    summary = sim.run(load(duration, arrivals, warmup)).summary
    median = summary["checks"]["trajectory_median_s"]
    assert summary["checks"]["shorter_than_trajectories"] is short
    assert median is None if duration == "8 min" else median == pytest.approx(9 * 60, rel=0.1)
    said = dict(facts(summary))["steady?"]
    assert said.startswith("too short") is short
    assert ("set " in said and "duration" in said) is short
    assert ("workload.arrivals.closed.ramp" in said) is (short and "closed" in arrivals)


def test_what_is_said_is_enough():
    """The duration that is named is long enough for the line to go away."""
    said = steady(sim.run(load("15 min", {"closed": {"concurrency": 8}}, "8 min")).summary).text
    enough = said.partition("set duration to ")[2].partition(" or more")[0]
    assert not steady(sim.run(load(enough, {"closed": {"concurrency": 8}}, "8 min")).summary).text.startswith("half")


def test_a_load_that_swamps_the_system_is_told_so():
    busy = sim.load({"duration": "10 min", "warmup": 0, "model": "llama-3.1-70b", "hardware": "dgx-h100",
                     "parallelism": {"tp": 8}, "retention": "drop",
                     "workload": {"agents": "coding-agent", "arrivals": {"closed": {"concurrency": 200}}}})
    found = steady(sim.run(busy).summary)
    assert found.word == "too short"
    assert "ask for less" in found.text


def test_a_trace_played_to_its_end_is_never_too_short():
    trace = Path(__file__).parents[1] / "data" / "traces" / "agents.jsonl"
    whole = {"warmup": 0, "model": "llama-3.1-8b", "hardware": "dgx-h100", "replicas": 1,
             "workload": {"agents": {"trace": str(trace)}}}
    played = sim.run(sim.load(whole)).summary["checks"]
    late = 0.9 * played["span_s"]
    cut = sim.run(sim.load(whole | {"warmup": late})).summary["checks"]
    assert cut["trajectory_median_s"] == played["trajectory_median_s"] > cut["span_s"]
    assert not cut["shorter_than_trajectories"]
    stopped = sim.run(sim.load(whole | {"warmup": late, "duration": played["span_s"]})).summary["checks"]
    assert stopped["shorter_than_trajectories"]


def test_lives_that_go_on_count():
    rng = np.random.default_rng(7)
    lives, seen = rng.exponential(100.0, 20_000), rng.uniform(0.0, 200.0, 20_000)
    ages, ended = np.minimum(lives, seen), lives <= seen
    assert np.median(lives[ended]) < 50.0  # of those that ended: the short ones
    assert median_life(ages, ended) == pytest.approx(100.0 * np.log(2), rel=0.03)
    assert median_life(lives, np.ones(lives.size, dtype=bool)) == pytest.approx(np.median(lives), rel=1e-3)
    assert median_life(ages, np.zeros(ages.size, dtype=bool)) is None
    assert median_life(np.zeros(0), np.zeros(0, dtype=bool)) is None
    from scipy.stats import CensoredData, ecdf

    curve = ecdf(CensoredData.right_censored(ages, ~ended)).sf
    assert median_life(ages, ended) == curve.quantiles[np.argmax(curve.probabilities <= 0.5)]


def test_turns_longer_than_the_models_context_are_said():
    from sim.metrics.wording import facts

    model = {"n_params": 8e9, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "head_dim": 128, "d_model": 4096}

    def said(limit: int) -> list[str]:
        made = sim.run({"duration": "20 s", "warmup": 0, "model": {**model, "context_limit": limit},
                        "hardware": "dgx-h100",
                        "workload": {"agents": {"prompt": [{"name": "p", "tokens": 2000}], "turns": 1, "output": 8},
                                     "arrivals": {"closed": {"concurrency": 1}}}})
        return [text for label, text in facts(made.summary) if label == "TOO LONG"]

    (line,) = said(1000)
    assert "turns are longer than the model's context" in line
    assert not said(4000)
