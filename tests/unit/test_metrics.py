"""Are the numbers of a summary right?"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.metrics import binds, checks, cost, intervals, ledgers, percentiles, slo, warmup
from sim.metrics.collect import Columns, Tables
from sim.metrics.measure import Facts, measure
from sim.metrics.summary import summarise
from sim.records import BUCKET_BASE, GPU_USES, POOL_USES, TURN_CAUSES
from sim.report.reference import SUMMARY
from sim.sweep.store import plain

KEYS = {"turns", "trajectories", "ttft_s", "itl_s", "tpot_s", "turn_s", "trajectory_s", "throughput", "goodput",
        "hit_rate", "counts", "ledger", "hold_GB_s", "concurrency", "binds", "cost", "checks", "intervals", "wall_s",
        "events", "band", "allocation", "blocks", "breakers", "prediction_error", "unused_tiers", "routing",
        "lost_contexts", "over_hbm_bytes"}


def summary_of(engine, facts=None, replications=1, **options):
    tables, totals = Tables(), []
    for number in range(replications):
        tables.begin(number)
        totals.append(engine.fake_simulate(engine.fake_scenario(), None, tables, number, **options))
    tables.close()
    facts = facts or Facts(warmup_s=0.0)
    parts = [measure(Columns(tables, number), total, facts) for number, total in enumerate(totals)]
    return summarise(parts, facts, 1.0), parts, tables


def test_the_keys_are_the_contract_and_the_documentation(engine):
    summary, _, _ = summary_of(engine)
    assert set(summary) == KEYS == {key.split(".")[0] for key in SUMMARY}
    assert set(summary["ttft_s"]) == {"first", "resumed", "all"}
    for stats in (summary["ttft_s"]["all"], summary["itl_s"], summary["tpot_s"], summary["turn_s"]):
        assert list(stats) == ["mean", "p50", "p90", "p95", "p99", "p999"]
    assert set(summary["hit_rate"]) == {"total", "hbm", "dram", "nvme", "remote", "ceiling"}
    assert set(summary["throughput"]) == {"turns_per_s", "trajectories_per_s", "output_tokens_per_s",
                                          "prompt_tokens_per_s"}
    assert {"evictions", "forced_evictions", "preemptions", "rejections", "deadlocks_broken",
            "cow_copies"} <= set(summary["counts"])
    assert set(summary["trajectories"]) == {"started", "finished", "rejected"}
    assert set(summary["ledger"]["turn_s"]) == set(TURN_CAUSES)
    json.dumps(plain(summary), allow_nan=False)


@pytest.mark.parametrize("begin", [0.0, 100.0, 137.3])
@pytest.mark.parametrize("replications", [1, 3])
def test_ledgers_sum_to_the_whole(engine, begin, replications):
    summary, parts, _ = summary_of(engine, Facts(warmup_s=begin), replications)
    span = 600.0 - begin
    times = np.concatenate([part.turn["turn_s"] for part in parts])
    assert sum(summary["ledger"]["turn_s"].values()) == pytest.approx(times.sum(), rel=1e-9)
    assert sum(summary["ledger"]["pool_byte_s"].values()) == pytest.approx(engine.POOL * span * replications, rel=1e-9)
    assert sum(summary["ledger"]["gpu_s"].values()) == pytest.approx(span * replications, rel=1e-9)
    assert set(summary["ledger"]["pool_byte_s"]) == set(POOL_USES)
    assert set(summary["ledger"]["gpu_s"]) == set(GPU_USES)
    assert max(summary["checks"]["ledger_residual"].values()) < 1e-9
    assert summary["checks"]["alive_residual"] < 0.01


def test_figures_of_the_fake_engine(engine):
    summary, _, _ = summary_of(engine, Facts(warmup_s=0.0, gpus=8, price_usd_per_gpu_hour=3.0, tiers=("dram",)))
    assert summary["tpot_s"]["p50"] == pytest.approx(engine.TOKEN_S)
    assert summary["itl_s"]["mean"] == pytest.approx(engine.TOKEN_S)
    assert summary["itl_s"]["p99"] == pytest.approx(engine.TOKEN_S)
    assert summary["hit_rate"]["total"] == summary["hit_rate"]["hbm"] == pytest.approx(0.4, abs=0.02)
    assert summary["hit_rate"]["dram"] == 0.0
    assert summary["hit_rate"]["nvme"] is None
    assert summary["hit_rate"]["ceiling"] > summary["hit_rate"]["total"]
    assert summary["concurrency"]["max"] == 8
    assert summary["concurrency"]["mean"] == pytest.approx(8, rel=0.01)
    assert summary["trajectories"]["started"] == summary["trajectories"]["finished"] + 8
    assert summary["cost"]["usd"] == pytest.approx(8 * 3.0 / 6)
    assert summary["breakers"][0] == {"span": "tools", "recomputed_tokens": 9}
    assert summary["checks"]["stable"] is True
    assert summary["checks"]["little_residual"] < 0.05
    assert summary["goodput"] is None
    assert summary["binds"]["resource"] == "compute"
    assert sum(summary["binds"]["scores"].values()) == pytest.approx(1.0)
    assert set(summary["intervals"]) >= {"ttft_s.resumed.p95", "throughput.turns_per_s", "hit_rate.total"}
    for path, interval in summary["intervals"].items():
        assert interval["low"] <= interval["value"] <= interval["high"], path
        assert interval["value"] == pytest.approx(intervals.at(summary, path), rel=0.02), path


def test_a_warm_up_cuts_turns_and_beyond_the_end_is_refused(engine):
    whole, _, _ = summary_of(engine)
    cut, parts, _ = summary_of(engine, Facts(warmup_s=300.0))
    assert cut["turns"] == whole["turns"]
    assert cut["checks"]["turns_measured"] < whole["checks"]["turns_measured"]
    assert parts[0].turn["ready_s"].min() >= 300.0
    with pytest.raises(InputError, match=r"warmup: .*got 600"):
        summary_of(engine, Facts(warmup_s=600.0))


def test_replications_have_student_intervals_with_their_values(engine):
    summary, _, _ = summary_of(engine, replications=3)
    interval = summary["intervals"]["turn_s.mean"]
    assert interval["method"] == "replications"
    assert len(interval["values"]) == 3
    assert interval["low"] < interval["value"] < interval["high"]
    assert summary["checks"]["replications"] == 3


def test_no_interval_reaches_below_what_a_figure_can_be():
    wild = intervals.student([0.0, 0.01, 3.0])
    assert wild["low"] < 0
    assert intervals.within(wild) == wild | {"low": 0.0}
    assert intervals.within(wild, 1.0)["high"] == 1.0


@pytest.mark.parametrize("replications", [1, 3])
def test_intervals_of_a_summary_are_within_bounds(engine, replications):
    summary, _, _ = summary_of(engine, Facts(warmup_s=580.0), replications=replications)
    assert summary["intervals"] or replications == 1
    assert all(found["low"] >= 0 for found in summary["intervals"].values())
    assert all(found["high"] <= 1 for path, found in summary["intervals"].items() if path.startswith("hit_rate"))


def test_a_run_without_a_finished_turn_has_a_summary(engine):
    tables = Tables()
    tables.begin(0)
    scenario = engine.fake_scenario(duration=0.1)
    total = engine.fake_simulate(scenario, None, tables)
    tables.close()
    facts = Facts(slo={"ttft": {"p95": 1.0}})
    summary = summarise([measure(Columns(tables, 0), total, facts)], facts, 0.0)
    assert summary["ttft_s"]["all"]["p50"] is None
    assert summary["hit_rate"]["total"] is None
    assert summary["goodput"]["turns"] is None
    assert summary["goodput"]["met"] is None
    json.dumps(plain(summary), allow_nan=False)


def test_goodput_counts_turns_and_whole_trajectories(engine):
    loose, _, _ = summary_of(engine, Facts(warmup_s=0.0, slo={"ttft": {"p95": 1e6}, "itl": {"p99": 1.0}}))
    assert loose["goodput"]["turns"] == 1.0
    assert loose["goodput"]["trajectories"] == 1.0
    assert loose["goodput"]["met"] is True
    tight, _, _ = summary_of(engine, Facts(warmup_s=0.0, slo={"ttft_resumed": {"p50": 2.0, "p95": 4.0}}))
    assert 0 < tight["goodput"]["trajectories"] < tight["goodput"]["turns"] < 1
    assert [row["objective"] for row in tight["goodput"]["objectives"]] == ["ttft_resumed.p50", "ttft_resumed.p95"]
    assert slo.limit({"ttft": {"p50": 2.0, "p99": 4.0, "mean": 1.0}}, "ttft") == 4.0
    assert slo.limit({"ttft": {"mean": 1.0}}, "ttft") == math.inf


@given(st.lists(st.floats(1e-4, 1e3), min_size=1, max_size=200))
def test_a_histogram_gives_percentiles_within_a_bucket(values):
    histogram: dict[int, tuple[float, float]] = {}
    for value in values:
        bucket = math.floor(math.log(value) / math.log(BUCKET_BASE))
        weight, seconds = histogram.get(bucket, (0.0, 0.0))
        histogram[bucket] = (weight + 1, seconds + value)
    stats = percentiles.of_histogram(histogram)
    assert stats["mean"] == pytest.approx(np.mean(values))
    for name, q in percentiles.QUANTILES.items():
        exact = np.quantile(values, q, method="inverted_cdf")
        assert stats[name] == pytest.approx(exact, rel=0.011)


def test_windows_before_the_warm_up_do_not_count():
    windows = [(1.0, {1: (1.0, 1.0)}), (2.0, {2: (1.0, 1.0)}), (2.0, {3: (1.0, 1.0)}), (3.0, {4: (1.0, 1.0)})]
    assert set(percentiles.after(windows, 0.0)) == {1, 2, 3, 4}
    assert set(percentiles.after(windows, 1.0)) == {2, 3, 4}
    assert set(percentiles.after(windows, 1.5)) == {4}
    assert set(percentiles.after(windows, 2.5)) == {4}
    assert percentiles.after([], 0.0) == {}


def test_mser_finds_a_transient_and_leaves_a_stationary_run_alone():
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 1, 5000)
    drop, settled = warmup.mser(noise + 20 * np.exp(-np.arange(5000) / 100))
    assert settled
    assert 200 <= drop <= 1200
    drop, settled = warmup.mser(np.full(5000, 2.0))
    assert (drop, settled) == (0, True)
    assert warmup.mser(np.linspace(10, 0, 5000))[1] is False
    assert warmup.mser(np.array([])) == (0, True)


def test_the_warm_up_of_a_trace_or_a_given_one():
    ready, ttft = np.arange(1000.0), np.concatenate([np.full(100, 50.0), np.ones(900)])
    assert warmup.cut(ready, ttft, warmup_s=None, finite=True) == (0.0, True)
    assert warmup.cut(ready, ttft, warmup_s=7.0, finite=False) == (7.0, True)
    assert warmup.cut(ready, ttft, warmup_s=None, finite=False) == (100.0, True)


def test_growth_is_seen_and_noise_is_not():
    rng = np.random.default_rng(0)
    assert checks.grows(np.linspace(0, 50, 20) + rng.normal(0, 1, 20))
    assert not any(checks.grows(40 + rng.normal(0, 3, 20)) for _ in range(50))
    assert not checks.grows(np.full(20, 7.0))
    assert not checks.grows(np.zeros(20))


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_batch_means_and_bootstrap_hold_their_value(seed):
    values = np.random.default_rng(seed).exponential(1.0, 2000)
    mean = intervals.batch_means(values)
    assert mean is not None
    assert mean["low"] < values.mean() < mean["high"]
    tail = intervals.bootstrap(values, {"p95": 0.95}, np.random.default_rng(0))["p95"]
    assert tail["low"] <= np.quantile(values, 0.95) <= tail["high"]
    assert tail["high"] - tail["low"] < 1.5


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        interval = intervals.student(list(rng.normal(3.0, 1.0, 5)))
        covered += interval["low"] <= 3.0 <= interval["high"]
    assert 180 <= covered <= 199
    assert intervals.student([1.0, None]) is None


def ledger(turn, idle=0.0, free=0.5):
    return {"turn_s": dict.fromkeys(TURN_CAUSES, 0.0) | turn, "gpu_s": {"decode": 1 - idle, "idle": idle},
            "pool_byte_s": dict.fromkeys(POOL_USES, 0.0) | {"free": free, "kept": 1 - free}}


@pytest.mark.parametrize(("turn", "bound", "counts", "idle", "expected"), [
    ({"queue_blocks": 6, "decode": 4}, {"weights": 1}, {"forced_evictions": 2}, 0.1, "memory"),
    ({"recompute": 6, "decode": 4}, {"compute": 1}, {"evictions": 2}, 0.1, "memory"),
    ({"recompute": 6, "decode": 4}, {"compute": 1}, {}, 0.1, "compute"),
    ({"reload": 6, "decode": 4}, {"weights": 1}, {}, 0.1, "host_link"),
    ({"queue_budget": 6, "prefill": 4}, {"compute": 8, "kv": 2}, {}, 0.1, "compute"),
    ({"queue_budget": 6, "decode": 4}, {"weights": 5, "kv": 3, "compute": 2}, {}, 0.1, "hbm_bandwidth"),
    ({"decode": 4, "prefill": 1}, {"weights": 1}, {}, 0.9, "none"),
    ({}, {}, {}, 1.0, None),
])
def test_what_binds(turn, bound, counts, idle, expected):
    found = binds.binds(ledger=ledger(turn, idle), bound_s=bound, counts=counts)
    assert found["resource"] == expected
    assert found["why"]


def test_cost_without_a_price_or_without_trajectories():
    none = cost.cost(gpus=8, price_usd_per_gpu_hour=None, span_s=3600, trajectories=1, prompt_tokens=1, output_tokens=1)
    assert set(none.values()) == {None}
    some = cost.cost(gpus=8, price_usd_per_gpu_hour=2.0, span_s=3600, trajectories=0, prompt_tokens=0,
                     output_tokens=2_000_000)
    assert some == {"usd": 16.0, "usd_per_trajectory": None, "usd_per_Mtok_output": 8.0, "usd_per_Mtok_total": 8.0}


def test_held_by_tier_and_tool(engine):
    _, _, tables = summary_of(engine)
    held = ledgers.held(Columns(tables, 0), 0.0)
    pauses = tables.frame("pauses")
    assert held["total"] == pytest.approx(pauses["hold_hbm_byte_s"].sum() / 1e9)
    assert held["by_tool"] == {"tool": pytest.approx(held["total"])}
    assert held["by_tier"]["dram"] == 0.0
