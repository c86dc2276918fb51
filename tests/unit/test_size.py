"""Does the capacity search find answers that are known, surely and in few trials?"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sim
from sim.errors import InputError
from sim.sweep import relief, search, sizing
from sim.sweep.verdict import Verdict, effect, judge

LLAMA = {"n_params": 70_600_000_000, "n_layers": 80, "n_heads": 64, "n_kv_heads": 8, "head_dim": 128, "d_model": 8192}
FAST = {"gpu": {"hbm_bytes": 1e15, "hbm_Bps": 1e15, "peak_flops": {"bf16": 1e20}}, "gpus": 4,
        "host_link": {"out_Bps": 5e10, "in_Bps": 5e10}}


def capacity(shared: bool):
    """The worked number: 32k contexts in a pool of 526 GB with 10 % headroom, alone or with 24k in common."""
    own = [{"name": "own", "tokens": 32768}]
    zones = [{"name": "system", "tokens": 24576, "shared": "all"}, {"name": "own", "tokens": 8192}]
    return sim.load({
        "duration": "100 s", "warmup": 0, "model": LLAMA, "hardware": FAST, "replicas": 1,
        "timing": {"roofline": {"mode": "sum", "mfu": 1, "mbu": 1}},
        "engine": {"pool": 525.99476736e9, "headroom": 0.10, "step_overhead": "10 ms",
                   "schedule": {"token_budget": 1 << 30, "max_seqs": 1 << 20, "reserve": "prompt_and_output"}},
        "workload": {"agents": {"prompt": zones if shared else own, "turns": 1, "output": 2048},
                     "arrivals": {"closed": {"concurrency": 1, "ramp": "10 s"}}},
        "slo": {"ttft": {"p99": "50 ms"}}})


def mmc(servers: int, wait_s: float, duration: str = "400 s", **arrivals):
    """M/M/c: exponential service of 1 s at so many servers; the mean wait for service may be `wait_s`."""
    return sim.load({
        "seed": 5, "duration": duration, "warmup": "50 s",
        "model": {"n_params": 1000, "n_layers": 1, "n_heads": 1, "n_kv_heads": 1, "head_dim": 1, "d_model": 1},
        "hardware": FAST, "replicas": 1,
        "timing": {"roofline": {"mode": "sum", "mfu": 1, "mbu": 1}},
        "engine": {"pool": 1e12, "step_overhead": "2 ms",
                   "schedule": {"max_seqs": servers, "token_budget": 1 << 20}, "prefix_cache": False},
        "workload": {"agents": {"prompt": [{"name": "p", "tokens": 1}], "turns": 1,
                                "output": {"exponential": {"mean": 500}}},
                     "arrivals": arrivals or {"poisson": {"rate": 1.0}}},
        "slo": {"ttft": {"mean": wait_s}}})


def erlang_rate(servers: int, wait_s: float) -> float:
    """Return the rate at which the mean wait of M/M/c with unit service is `wait_s`."""
    low, high = 1e-6, servers - 1e-9
    for _ in range(200):
        rate = (low + high) / 2
        last = rate**servers / math.factorial(servers) * servers / (servers - rate)
        waits = last / (sum(rate**k / math.factorial(k) for k in range(servers)) + last)
        low, high = (rate, high) if waits / (servers - rate) < wait_s else (low, rate)
    return low


@pytest.mark.parametrize(("shared", "expected"), [
    (False, 41), pytest.param(True, 138, marks=pytest.mark.study)])
def test_the_worked_capacity(shared, expected):
    found = sim.size(capacity(shared), jobs=1, reliefs=False)
    assert (found.answer, found.low, found.high) == (expected, expected, expected + 1)
    assert len(found.candidates) <= 12
    assert "ttft.p99" in found.missed_beyond


def test_only_the_resource_that_binds_moves_the_answer():
    found = sim.size(capacity(False), jobs=1)
    assert (found.binds, found.binds_by) == ("memory", "relief")
    gains = {row["resource"]: row for row in found.reliefs}
    assert gains["memory"]["answer"] == pytest.approx(51, abs=1)  # 41.49 x 1.25 = 51.9
    assert gains["memory"]["clear"]
    assert {row["gain"] for name, row in gains.items() if name != "memory"} == {0.0}
    assert not any(row["clear"] for name, row in gains.items() if name != "memory")


@pytest.mark.parametrize("duration", ["600 s", pytest.param("4000 s", marks=pytest.mark.study)])
def test_mmc_within_its_interval(duration):
    expected = erlang_rate(4, 0.3)
    found = sim.size(mmc(4, 0.3, duration), "rate", jobs=1, reliefs=False, most_replications=4)
    assert found.low <= expected <= (found.high or math.inf)
    assert found.answer == pytest.approx(expected, rel=0.15 if duration == "600 s" else 0.05)
    assert len(found.candidates) <= 12
    again = sim.size(mmc(4, 0.3, duration), "rate", jobs=1, reliefs=False, most_replications=4)
    assert again.data() == found.data()


def test_fewest_replicas():
    found = sim.size(mmc(1, 0.5, "300 s", poisson={"rate": 1.5}), "replicas", jobs=1, reliefs=False,
                     most_replications=2)
    assert found.answer in (3, 4)  # one server each: two are at 75 %, where M/M/1 waits for 3 s
    assert found.low <= found.answer
    assert found.find == "replicas"


def test_the_command(tmp_path, capsys):
    from sim.cli import main
    from sim.scenario import dump

    path = tmp_path / "cap.yaml"
    path.write_text(dump(capacity(False)))
    with pytest.raises(SystemExit) as left:
        main(["size", str(path), "--no-relief", "--jobs", "1"])
    assert left.value.code == 0
    said = capsys.readouterr().out
    assert "41 trajectories alive meet the objectives" in said
    assert "42 surely miss them" in said
    with pytest.raises(SystemExit):
        main(["size", str(path), "--no-relief", "--jobs", "1", "--json"])
    assert json.loads(capsys.readouterr().out)["answer"] == 41


@pytest.mark.parametrize(("find", "changes", "said"), [
    ("concurrency", {"slo": {}}, "needs objectives"), ("rate", {}, "use --find concurrency"),
    ("speed", {}, "choose from concurrency"),
])
def test_what_cannot_be_sized(find, changes, said):
    with pytest.raises(InputError, match=said):
        sim.size(capacity(False).model_copy(update=changes), find)
    with pytest.raises(InputError, match="use --find rate"):
        sim.size(mmc(1, 0.5), "concurrency")


class Judged:
    """Verdicts without simulation: at a limit or below a load surely meets, up to another it may, then it misses."""

    def __init__(self, surely: float, likely: float, *, up: bool = False) -> None:
        self.surely, self.likely, self.up = surely, likely, up

    def __call__(self, trials, value, resource):
        good = (value >= self.surely, value >= self.likely) if self.up else (value <= self.surely, value <= self.likely)
        answer = "meets" if good[0] else "unsure" if good[1] else "misses"
        told = {"binds": {"resource": None, "why": ""}, "cost": {"usd_per_trajectory": None}, "checks": {}}
        return sizing.Candidate(value, Verdict(answer, good[1], [], "" if good[1] else "late"), [told])


@pytest.mark.parametrize(("surely", "likely", "low"), [
    (9, 16, 9), (1, 16, 1), (0, 16, 0), (14, 16, 14), (9, 9, 9), (64, 100, 64)])
def test_a_search_goes_on_until_a_load_surely_meets(surely, likely, low, monkeypatch):
    monkeypatch.setattr(sizing, "_guess", lambda scenario, load: 64.0)
    judged = Judged(surely, likely)
    monkeypatch.setattr(sizing.Trials, "_try", lambda trials, value, resource: judged(trials, value, resource))
    found = sim.size(capacity(False), reliefs=False)
    assert (found.answer, found.high) == (likely, likely + 1)
    assert found.low == low
    assert len(found.candidates) <= sizing.BUDGET + sizing.SURE_BUDGET
    assert low or min(row["value"] for row in found.candidates) == 1


def test_so_does_one_for_replicas(monkeypatch):
    monkeypatch.setattr(sizing, "_guess", lambda scenario, load: 2.0)
    judged = Judged(7, 3, up=True)
    monkeypatch.setattr(sizing.Trials, "_try", lambda trials, value, resource: judged(trials, value, resource))
    scenario = capacity(False)
    roomy = scenario.hardware.model_copy(update={"gpus": 64})
    found = sim.size(scenario.model_copy(update={"hardware": roomy}), "replicas", reliefs=False)
    assert (found.answer, found.low, found.high) == (3, 3, 7)


@given(limit=st.integers(0, 5000), guess=st.floats(0.5, 20000), tolerance=st.sampled_from([0.0, 0.01]))
@settings(max_examples=200)
def test_the_search_ends_at_the_limit(limit, guess, tolerance):
    found = search.largest(lambda load: load <= limit, guess, least=1, most=1e6, whole=True, tolerance=tolerance,
                           budget=60)
    if found.bad is None:
        assert limit >= 16 * max(round(guess), 1) * 0.99
    elif limit == 0:
        assert found.fine is None
    else:
        assert found.fine <= limit < found.bad
        assert found.bad - found.fine <= max(1, tolerance * found.fine)
    assert len(set(found.trials)) == len(found.trials)


@given(limit=st.floats(0.01, 100), miss=st.floats(0.5, 2))
@settings(max_examples=100)
def test_a_guess_within_a_factor_of_two_takes_few_trials(limit, miss):
    found = search.largest(lambda load: load <= limit, limit * miss, least=1e-9, most=1e9, whole=False, tolerance=0.02,
                           budget=12)
    assert found.fine <= limit * (1 + 1e-3)
    assert found.bad <= found.fine * 1.025
    assert len(found.trials) <= 12


def summary(value, *, rejections=0, stable=True, name="ttft.p95", limit=1.0):
    return {"goodput": {"objectives": [{"objective": name, "limit_s": limit, "value_s": value}]}, "turns": 100,
            "counts": {"rejections": rejections}, "checks": {"stable": stable}}


@pytest.mark.parametrize(("values", "options", "answer"), [
    ([0.5, 0.5], {}, "meets"), ([1.5, 1.5], {}, "misses"), ([0.9, 1.1], {}, "unsure"), ([0.5], {}, "unsure"),
    ([0.5, 0.51], {"rejections": 20}, "misses"), ([0.5, 0.51], {"rejections": 1}, "meets"),
    ([0.5, 0.51], {"stable": False}, "misses"), ([None, None], {}, "meets"),
    ([0.5, 0.51], {"rejections": 1, "name": "ttft.mean"}, "misses"),
])
def test_verdicts(values, options, answer):
    found = judge([summary(value, **options) for value in values], is_open=True)
    assert found.answer == answer
    assert bool(found.why) == (not found.likely)


def test_paired_differences_are_sure_where_values_are_not():
    base, other = ([summary(value) for value in values] for values in ([0.5, 2.0, 4.0], [0.4, 1.9, 3.9]))
    found = effect(base, other, "ttft.p95")
    assert found["better"]
    assert found["difference"] == pytest.approx(-0.1)
    assert not effect(other, base, "ttft.p95")["better"]
    assert effect(base[:1], other[:1], "ttft.p95") is None


LINK = {"out_Bps": 2e10, "in_Bps": 4e10, "both_Bps": 5e10}


@pytest.mark.parametrize("dram", [{"capacity": "1 TiB", "evict_to": "nvme"}, {"pool_ratio": 2.0, "evict_to": "nvme"}])
@pytest.mark.parametrize("nvme", [{"capacity": "10 TB"}, {"capacity": "100 TB", "link": LINK, "links": 3}])
def test_every_relief_gives_more_of_one_thing(dram, nvme):
    from sim.scenario.deployment import deploy

    base = sim.load({"model": "llama-3.1-70b", "hardware": "dgx-h100", "parallelism": {"tp": 8}, "retention": "offload",
                     "engine": {"step_overhead": "1 ms"},
                     "tiers": {"dram": dram, "nvme": nvme, "remote": {"capacity": "50 TB"}},
                     "workload": {"agents": "coding-agent"}})
    assert set(relief.resources(base)) == set(relief.WORDS)

    def figures(scenario):
        found = deploy(scenario)
        tiers = {f"{name}.{figure}": getattr(place, figure) for name, place in found.tiers.items()
                 for figure in ("capacity_bytes", "out_Bps", "in_Bps")}
        direct = ("pool_bytes", "hbm_Bps", "host_link_Bps_out", "host_link_Bps_in", "nvlink_Bps")
        return {name: getattr(found, name) for name in direct} | tiers | {
            "compute": found.gpu.peak_flops.bf16, "step": scenario.engine.step_overhead,
            "slots": scenario.engine.schedule.max_seqs}

    before = figures(base)
    expected = {"memory": {"pool_bytes"}, "compute": {"compute"}, "hbm_bandwidth": {"hbm_Bps"},
                "host_link": {"host_link_Bps_out", "host_link_Bps_in"}, "interconnect": {"nvlink_Bps"},
                "dram": {"dram.capacity_bytes"}, "nvme": {"nvme.capacity_bytes"},
                "nvme_link": {"nvme.out_Bps", "nvme.in_Bps"}, "remote": {"remote.capacity_bytes"},
                "remote_link": {"remote.out_Bps", "remote.in_Bps"}, "step_overhead": {"step"}, "batch_slots": {"slots"}}
    if "pool_ratio" in dram:  # a tier sized by the pool grows with it
        expected["memory"] |= {"dram.capacity_bytes"}
    assert set(expected) == set(relief.WORDS)
    for resource, names in expected.items():
        after = figures(relief.relieve(base, resource))
        assert {name for name in before if after[name] != before[name]} == names, resource
        for name in names:
            assert after[name] / before[name] == pytest.approx(0.8 if name == "step" else 1.25, rel=1e-6), resource


def test_only_what_a_scenario_has_is_relieved():
    def of(**more):
        return set(relief.resources(sim.load({"model": "llama-3.1-8b", "hardware": "dgx-h100",
                                              "workload": {"agents": "chat"}, **more})))

    alone = {"memory", "compute", "hbm_bandwidth", "step_overhead", "batch_slots"}
    dram = {"tiers": {"dram": {"capacity": "1 TiB"}}}
    through = {"tiers": {"dram": {"capacity": "1 TiB", "write": "on_compute"}}}
    assert of() - {"step_overhead"} == of(retention="keep", **dram) - {"step_overhead"} == alone - {"step_overhead"}
    assert of(retention="offload", **dram) - of() == {"host_link", "dram"}
    assert of(**through) - of() == {"host_link", "dram"}  # written through, whatever becomes of a pause
    assert of(parallelism={"tp": 2}) - of() == {"interconnect"}
    assert not {"compute", "hbm_bandwidth", "interconnect"} & of(timing={"measured": "h100_sxm/vllm-0.24"})
    for timing in ("roofline", {"measured": "h100_sxm/vllm-0.24"}):
        assert of(timing=timing, engine={"step_overhead": "1 ms"}) - of(timing=timing) == {"step_overhead"}


def test_an_envelope_and_its_front():
    import pandas as pd

    base = sim.load({"model": "llama-3.1-8b", "hardware": "dgx-h100", "retention": "keep", "duration": "60 s",
                     "workload": {"agents": "coding-agent"}, "slo": {"ttft_resumed": {"p95": "2 s"}}})
    frame = sim.envelope(base, contexts=[8192, 32768], sharing=[0, 0.75], waits=["5 s", "1 min"], simulate=False,
                         jobs=1, hardware=["dgx-h100", "gh200-nvl2"])
    assert len(frame) == 16
    ceiling = frame.set_index(["hardware", "context_tokens", "sharing", "wait_s"])["ceiling"]
    assert ceiling["dgx-h100", 8192, 0.75, 5.0] > 2 * ceiling["dgx-h100", 8192, 0.0, 5.0]
    assert ceiling["dgx-h100", 8192, 0.0, 5.0] > 3 * ceiling["dgx-h100", 32768, 0.0, 5.0]
    small = base.model_copy(update={"engine": base.engine.model_copy(update={"pool": 20e9})})
    one = sim.envelope(small, contexts=[8192], sharing=[0], waits=[2], hardware=["gh200-nvl2"], jobs=1, turns=2,
                       settings={"replicas": [1], "engine.schedule.reserve": ["prompt_and_output"]},
                       most_replications=2)
    assert 1 <= one["concurrency"].iloc[0] <= 3 * one["ceiling"].iloc[0]
    assert one["usd_per_trajectory"].iloc[0] > 0
    table = pd.DataFrame({"context_tokens": 1, "sharing": 0.0, "wait_s": 1.0, "hardware": list("abcd"),
                          "trajectories_per_h": [10, 20, 15, 30], "usd_per_trajectory": [1.0, 2.0, 2.5, 4.0]})
    front = sim.pareto(table)
    assert front["hardware"].tolist() == ["a", "b", "d"]
    assert front["cheapest"].tolist() == [True, False, False]
    with pytest.raises(InputError, match="needs objectives"):
        sim.envelope(base.model_copy(update={"slo": {}}))


AGENTS_H100 = Path(__file__).parents[2] / "scenarios" / "coding_agents_h100.yaml"
#: resource -> what the scenario is given so that it binds: agents of one turn, and one objective.
BOUND = {
    "memory": ["engine.pool=30 GB", "engine.headroom=0", "engine.prefix_cache=false",
               "engine.schedule.reserve=prompt_and_output", "slo={ttft_first: {p95: 3 s}, itl: {p99: 100 s}}",
               "workload.agents={prompt: [{name: p, tokens: 1500}], turns: 1, "
               "output: {uniform: {low: 1900, high: 2100}}}"],
    "compute": ["slo={ttft_first: {p95: 2 s}, itl: {p99: 100 s}}",
                "workload.agents={prompt: [{name: p, tokens: {uniform: {low: 1900, high: 2100}}}], turns: 1, "
                "output: 2}"],
    "hbm_bandwidth": ["slo={itl: {p50: 15 ms}}",
                      "workload.agents={prompt: [{name: p, tokens: 16000, shared: all}, {name: q, tokens: 100}], "
                      "turns: 1, output: {uniform: {low: 400, high: 600}}}"],
}


@pytest.mark.parametrize("resource", BOUND)
def test_the_command_names_what_binds_and_only_that_moves_the_answer(resource, capsys):
    from sim.cli import main

    sets = ["duration=100 s", "warmup=30 s", "replications=2", "workload.arrivals.closed.ramp=0", *BOUND[resource]]
    with pytest.raises(SystemExit) as left:
        main(["size", str(AGENTS_H100), "--find", "concurrency", "--json",
              *(part for text in sets for part in ("--set", text))])
    assert left.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["binds"], found["binds_by"]) == (resource, "relief")
    assert len(found["candidates"]) <= 12
    gains = {row["resource"]: row for row in found["reliefs"]}
    assert {"memory", "compute", "hbm_bandwidth", "host_link", "dram", "interconnect"} <= set(gains)
    assert gains[resource]["clear"]
    assert gains[resource]["answer"] >= 1.1 * found["answer"]
    for name, row in gains.items():
        if name != resource:
            assert (row["answer"], row["clear"]) == (found["answer"], False), name
