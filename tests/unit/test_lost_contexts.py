"""Is it said when a tier loses contexts that are waited for, beside what nobody will read again, and only then?"""

from __future__ import annotations

import pytest

import sim
from sim.metrics import lost
from sim.metrics.wording import facts
from sim.report.html_findings import binds


def run(capacity: str, *, exclusive: bool = False, arrivals=None) -> sim.Result:
    """Offload agents of which some wait long, more of them than the tier holds."""
    mixed = {"mixture": [{"weight": 0.7, "of": {"exponential": {"mean": 5}}},
                         {"weight": 0.3, "of": {"exponential": {"mean": 240}}}]}
    return sim.run({
        "duration": "20 min", "warmup": "5 min", "model": "llama-3.1-8b", "hardware": "dgx-h100", "replicas": 1,
        "retention": "offload", "engine": {"pool": "4 GB"}, "tiers": {"dram": {"capacity": capacity,
                                                                               "exclusive": exclusive}},
        "workload": {"agents": {"prompt": [{"name": "p", "tokens": 3000}], "turns": 4, "output": 100,
                                "observation": 400, "tools": {"t": {"wait": mixed}}},
                     "arrivals": arrivals or {"poisson": {"rate": 0.2}}}})


@pytest.fixture(scope="module")
def crowded() -> sim.Result:
    return run("20 GB")


def test_what_is_lost_is_said(crowded):
    found = crowded.summary["lost_contexts"]["dram"]
    pauses = crowded.pauses[crowded.pauses["start_s"] >= 300]
    both = pauses.merge(crowded.turns, left_on=["trajectory", "end_s"], right_on=["trajectory", "ready_s"])
    gone = both[both["recomputed_tokens"] > 0]  # a context that no one shares: only the tier could have lost it
    assert found["moved"] == len(pauses)
    assert found["lost"] == len(gone) > 0.05 * len(pauses)
    assert found["tokens"] == gone["recomputed_tokens"].clip(upper=gone["private_tokens"]).sum()
    uses = crowded.summary["ledger"]["tier_byte_s"]["dram"]
    assert 0.1 < found["unread"] < uses["unread"] / (sum(uses.values()) - uses["free"])
    (said,) = [text for label, text in facts(crowded.summary) if label == "LOST"]
    assert f"{len(gone)} of {len(pauses)} contexts moved to host DRAM were evicted there before" in said
    assert "tiers.dram.exclusive: true" in said
    assert sum(item.topic == "Lost contexts" for item in binds(crowded.summary)) == 1


def test_the_advice_helps(crowded):
    better = run("20 GB", exclusive=True)
    assert better.summary["lost_contexts"] == {}
    again = [result.turns["recomputed_tokens"].sum() for result in (crowded, better)]
    assert again[1] < 0.2 * again[0]


def test_nothing_is_said_where_nothing_is_lost():
    assert run("400 GB").summary["lost_contexts"] == {}


@pytest.mark.parametrize(("count", "uses", "said"), [
    ({"lost": 5}, {"reused": 50, "unread": 50}, 0.4), ({"lost": 1}, {"reused": 50, "unread": 50}, None),
    ({"lost": 5}, {"reused": 85, "unread": 15}, None), ({"lost": 5, "byte_s": 60}, {"reused": 50, "unread": 50}, None)])
def test_a_remark_needs_both(count, uses, said):
    whole = [{"dram": {"moved": 100, "lost": 0, "tokens": 7, "byte_s": 10} | count}, {"dram": dict.fromkeys(
        ("moved", "lost", "tokens", "byte_s"), 0)}]
    found = lost.summary(whole, {"dram": {"writing": 0, "free": 900} | uses}, ["dram"])
    assert found == ({} if said is None else {
        "dram": {"moved": 100, "lost": count["lost"], "tokens": 7, "unread": pytest.approx(said)}})
    assert lost.summary(whole, {"dram": uses}, []) == {}
