"""Is a missed objective put down to what its slowest turns wait for, not to what most turns spend their time on?"""

from __future__ import annotations

import pytest

import sim
from sim.metrics import binds
from sim.metrics.tails import Tail, worst
from sim.records import POOL_USES, TURN_CAUSES


def bound_by(cause_s, bound=None, counts=None, gpu=None):
    """What binds when nearly all time of all turns is decode, bound by HBM, and the slowest wait for `cause_s`."""
    turn = dict.fromkeys(TURN_CAUSES, 0.0) | {"decode": 96.0, "prefill": 2.0, "recompute": 1.0, "queue_blocks": 1.0}
    ledger = {"turn_s": turn, "pool_byte_s": dict.fromkeys(POOL_USES, 0.0) | {"free": 1.0},
              "gpu_s": gpu or {"prefill": 0.1, "recompute": 0.05, "decode": 0.85}}
    tail = Tail("ttft_resumed.p95", 20.0, 2.0, 7, cause_s)
    return binds.binds(ledger=ledger, bound_s=bound or {"weights": 0.5, "kv": 0.4, "compute": 0.1},
                       counts=counts if counts is not None else {"evictions": 9}, tail=tail)


@pytest.mark.parametrize(("cause_s", "counts", "resource", "first"), [
    ({"recompute": 8, "queue_budget": 1, "prefill": 1}, None, "memory", "80% recomputation"),
    ({"queue_blocks": 7, "prefill": 3}, None, "memory", "70% waiting for KV blocks"),
    ({"preemption": 7, "prefill": 3}, None, "memory", "70% preempted"),
    ({"reload": 6, "prefill": 4}, None, "host_link", "60% waiting for a reload"),
    ({"prefill": 10}, None, "compute", "100% prefill"),
    ({"recompute": 10}, {}, "compute", "100% recomputation"),  # dropped on purpose: memory is not short
])
def test_the_tail_decides(cause_s, counts, resource, first):
    found = bound_by(cause_s, counts=counts)
    assert found["resource"] == resource
    assert found["why"].startswith("ttft_resumed.p95 is 20 s, 2 s are allowed, and the time that the slowest 7 turns ")
    assert f"spend is {first}" in found["why"]
    assert sum(found["scores"].values()) == pytest.approx(1.0)


def test_prefill_that_reads_weights_is_not_put_down_to_arithmetic():
    found = bound_by({"prefill": 10}, bound={"weights": 0.99, "compute": 0.01})
    assert found["resource"] == "hbm_bandwidth"
    assert bound_by({"prefill": 10}, bound={"compute": 1.0}, counts={})["scores"]["compute"] == pytest.approx(1.0)
    idle = bound_by({"prefill": 10}, bound={"compute": 0.2, "kv": 0.8}, gpu={"prefill": 0.02, "decode": 0.08,
                                                                            "idle": 0.9})
    assert idle["resource"] == "compute"  # 'nothing binds' does not go with an objective that is missed


def test_the_objective_missed_by_most_counts():
    tails = [{"ttft.p95": {"turns": 2, "cause_s": {"prefill": 1.0}}, "turn.p50": {"turns": 9, "cause_s": {}}},
             {"ttft.p95": {"turns": 3, "cause_s": {"prefill": 2.0}}}]
    rows = [{"objective": "ttft.p95", "value_s": 9.0, "limit_s": 3.0, "met": False},
            {"objective": "turn.p50", "value_s": 5.0, "limit_s": 4.0, "met": False},
            {"objective": "itl.p99", "value_s": 1.0, "limit_s": 9.0, "met": True},
            {"objective": "goodput.turns", "value_s": None, "limit_s": None, "met": False}]
    assert worst(tails, rows) == ("ttft.p95", 9.0, 3.0, 5, {"prefill": 3.0})
    assert worst(tails, rows[2:]) is None
    assert worst(tails, [{"objective": "itl.p99", "value_s": 99.0, "limit_s": 9.0, "met": False}, *rows]) is None


AGENTS = {"prompt": [{"name": "p", "tokens": 3000}], "turns": 6, "output": 400, "observation": 400,
          "tools": {"tool": {"wait": {"exponential": {"mean": 60}}}}}


def run(pool, agents, concurrency, objective, **engine):
    return sim.run({
        "duration": "600 s", "warmup": 0, "model": "llama-3.1-8b", "hardware": "dgx-h100", "replicas": 1,
        "retention": "release", "engine": {"pool": pool, **engine}, "slo": objective,
        "workload": {"agents": agents, "arrivals": {"closed": {"concurrency": concurrency, "ramp": "60 s"}}}})


@pytest.mark.parametrize(("case", "resource", "cause"), [
    (("4 GB", AGENTS, 10, {"ttft_resumed": {"p95": "80 ms"}}), "memory", "recompute"),
    (("1.4 GB", AGENTS | {"turns": 2}, 12, {"ttft_first": {"p95": "200 ms"}}), "memory", "queue_blocks"),
    (("30 GB", AGENTS | {"prompt": [{"name": "p", "tokens": 60000}], "turns": 1, "output": 2000}, 1,
      {"ttft": {"p95": "500 ms"}}), "compute", "prefill"),
])
def test_runs_say_what_their_slowest_turns_wait_for(case, resource, cause):
    result = run(*case)
    found = result.summary["binds"]
    (row,) = result.summary["goodput"]["objectives"]
    assert row["met"] is False
    decode = result.summary["ledger"]["turn_s"]
    assert decode["decode"] > 0.5 * sum(decode.values())  # most of the time, but not what is waited for
    turns = result.turns[result.turns["status"] == "finished"]
    wait = turns["first_token_s"] - turns["ready_s"]
    some = turns["first"] == ("first" in row["objective"]) if "_" in row["objective"] else wait > 0
    slow = turns[some & (wait >= wait[some].quantile(0.95))]
    means = {name: slow[f"{name}_s"].mean() for name in TURN_CAUSES if name not in ("decode", "interference")}
    assert max(means, key=means.get) == cause
    assert found["resource"] == resource
    assert f"the slowest {len(slow)} turns" in found["why"] or len(slow) == 1
    gpu = result.summary["ledger"]["gpu_s"]
    again = gpu["recompute"] / (sum(gpu.values()) - gpu["idle"])
    assert (f"{again:.0%} of the steps' time" in found["why"]) == (resource == "memory" and again > 0.05)


def test_a_preemption_before_the_first_token_is_part_of_the_wait():
    result = run("1.2 GB", AGENTS | {"output": 1500}, 8, {"ttft": {"mean": "1 ms"}, "turn": {"mean": "1 ms"},
                                                         "tpot": {"mean": "1 us"}})
    from sim.metrics import tails
    from sim.metrics.collect import Columns
    from sim.metrics.measure import Facts, measure
    from sim.records import RunTotals

    assert result._tables is not None
    part = measure(Columns(result._tables, 0), RunTotals(end_s=600.0, replicas=1, pool_bytes=1), Facts(
        warmup_s=0.0, slo={"ttft": {"mean": 1e-3}, "turn": {"mean": 1e-3}, "tpot": {"mean": 1e-6}}))
    for name in ("ttft", "turn"):
        found = part.tails[f"{name}.mean"]
        assert sum(found["cause_s"].values()) == pytest.approx(part.turn[tails.FIGURES[name]].sum())
    after = part.turn["turn_s"] - part.turn["ttft_s"]
    assert sum(part.tails["tpot.mean"]["cause_s"].values()) == pytest.approx(after.sum())
