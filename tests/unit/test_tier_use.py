"""Is a tier that nothing is written to said, with what to set; and does a full tier send contexts to the next one?"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sim
from sim.metrics.wording import compared, facts
from sim.policies.prediction import Point
from sim.policies.retention import (
    BreakEven,
    Drop,
    Keep,
    MinWaste,
    Offload,
    Oracle,
    PauseView,
    Release,
    Tiered,
    TierView,
    Ttl,
)
from sim.records import TIERS
from sim.report.html_findings import binds
from sim.scenario.tier_use import if_empty, unwritten

BASE = {"seed": 3, "duration": 200, "warmup": 0, "model": "llama-3.1-8b", "hardware": "dgx-h100", "replicas": 1,
        "engine": {"pool": "12 GiB"},
        "workload": {"agents": "coding-agent", "arrivals": {"closed": {"concurrency": 12}}}}
ALL = {"dram": {"capacity": "8 GiB"}, "nvme": {"capacity": "1 TB"}, "remote": {"capacity": "2 TB"}}


def loaded(tiers, **changes):
    return sim.load(BASE | {"tiers": tiers} | changes)


@pytest.mark.parametrize(("names", "chain"), [
    (("dram", "nvme", "remote"), ("nvme", "remote", "nowhere")), (("dram", "remote"), ("remote", None, "nowhere")),
    (("dram",), ("nowhere", None, None)), (("nvme", "remote"), (None, "remote", "nowhere")),
])
def test_a_full_tier_sends_contexts_to_the_next_one_below(names, chain):
    tiers = loaded({name: ALL[name] for name in names}).tiers
    found = tuple(getattr(getattr(tiers, name), "evict_to", None) for name in TIERS)
    assert found == chain
    again = sim.scenario.load(sim.scenario.dump(loaded({name: ALL[name] for name in names}))).tiers
    assert again == tiers


def test_what_is_said_stays():
    tiers = loaded({**ALL, "dram": {"capacity": "8 GiB", "evict_to": "remote"}}).tiers
    assert (tiers.dram.evict_to, tiers.nvme.evict_to) == ("remote", "remote")
    assert loaded({**ALL, "dram": {"capacity": "8 GiB", "evict_to": "nowhere"}}).tiers.dram.evict_to == "nowhere"


@pytest.mark.parametrize(("changes", "tiers", "expected"), [
    ({"retention": "release"}, ALL, {"dram": "tiers.dram.write to on_evict", "nvme": "host DRAM never fills up",
                                     "remote": "NVMe never fills up"}),
    ({"retention": "offload"}, ALL, {}),
    ({"retention": "keep"}, {"dram": {**ALL["dram"], "write": "on_evict"}}, {}),
    ({"retention": "keep"}, {**ALL, "dram": {**ALL["dram"], "write": "on_compute"}}, {}),
    ({"retention": "offload"}, {**ALL, "dram": {**ALL["dram"], "evict_to": "nowhere"}},
     {"nvme": "set tiers.dram.evict_to: nvme", "remote": "tiers.dram.evict_to: remote"}),
    ({"retention": {"policy": "offload", "to": "remote"}}, ALL,
     {"dram": "moves contexts only to remote memory", "nvme": "host DRAM never fills up"}),
    ({"retention": "break_even"}, {"remote": ALL["remote"]}, {"remote": "offload, to: remote"}),
    ({"retention": "keep"}, {"dram": {"capacity": 0}}, {"dram": "its capacity is 0"}),
    ({"retention": {"policy": "offload", "to": "nvme"}}, {"nvme": {"capacity": 0}},
     {"nvme": "set tiers.nvme.capacity"}),
])
def test_tiers_that_nothing_writes_to(changes, tiers, expected):
    scenario = loaded(tiers, **changes)
    found = unwritten(scenario)
    assert set(found) == set(expected)
    assert all(part in found[name] for name, part in expected.items())
    assert set(if_empty(scenario)) == set(tiers)


def test_following_the_advice_feeds_the_tier():
    dry = loaded({**ALL, "dram": {**ALL["dram"], "evict_to": "nowhere"}}, retention="offload")
    assert set(unwritten(dry)) == {"nvme", "remote"}
    fed = sim.scenario.load(sim.scenario.dump(dry), ["tiers.dram.evict_to=nvme"])
    assert not unwritten(fed)


def test_a_tier_of_size_zero_is_named_where_contexts_were_to_go_there():
    made = sim.run(BASE | {"tiers": {"nvme": {"capacity": 0}}, "retention": {"policy": "offload", "to": "nvme"}})
    (said,) = [text for label, text in facts(made.summary) if label == "UNUSED"]
    assert said.startswith("NVMe stayed empty: its capacity is 0, so it is as if it were not there")


def test_a_run_says_which_tier_stayed_empty(tmp_path):
    dry = sim.run(BASE | {"tiers": ALL, "retention": "release"}, tmp_path / "dry").summary
    assert set(dry["unused_tiers"]) == {"dram", "nvme", "remote"}
    said = [text for label, text in facts(dry) if label == "UNUSED"]
    assert len(said) == 3
    assert "host DRAM stayed empty: retention 'release' moves no context out of HBM" in said[0]
    assert sum(item.topic == "Unused tier" for item in binds(dry)) == 3
    assert dict(compared(dry))["tiers that stayed empty"].splitlines() == ["host DRAM", "NVMe", "remote memory"]
    assert "unused_tiers" in json.loads((tmp_path / "dry" / "summary.json").read_text())
    fed = sim.run(BASE | {"tiers": ALL, "retention": "offload"})
    assert set(fed.summary["unused_tiers"]) == {"remote"}
    assert "NVMe never filled up" in fed.summary["unused_tiers"]["remote"]
    written = set(fed.moves["target"]) - {"hbm"}
    assert written == {"dram", "nvme"}


def test_the_chain_is_what_its_words_are():
    said = {**ALL, "dram": {**ALL["dram"], "evict_to": "nvme"}, "nvme": {**ALL["nvme"], "evict_to": "remote"}}
    runs = [sim.run(BASE | {"tiers": tiers, "retention": "offload", "duration": 100}) for tiers in (ALL, said)]
    assert runs[0].turns.equals(runs[1].turns)


@given(st.floats(0, 1e6), st.floats(0, 1e3), st.floats(0, 1e3), st.floats(0, 1), st.sampled_from([(), *[
    TIERS[:n] for n in (1, 2, 3)], ("remote",)]), st.integers(0, 10**6))
@settings(max_examples=60)
def test_no_policy_sends_a_context_elsewhere_than_it_says(wait_s, move_s, recompute_s, share, there, tokens):
    tiers = {name: TierView(1e12, move_s, move_s) for name in there}
    pause = PauseView("t", Point(wait_s), tokens, tokens * 1e5, tokens * 1e5, tokens, tokens * 1e5, 1e9,
                      recompute_s, 1e11, share, 3, share, tiers)
    for policy in (Keep(), Release(), Drop(), Offload(), Offload(to="nvme"), Tiered(), BreakEven(), Ttl(), MinWaste(),
                   Oracle()):
        decision = policy.decide(pause)
        assert decision.action != "offload" or decision.tier in policy.targets(), policy
