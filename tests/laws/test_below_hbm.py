"""Below HBM: is every byte carried and kept once, is nothing read before it is there, and does no setting lie?

Every eviction policy, above and below, every retention policy, tier layout and way of writing, in combination; and
whole scenarios with the presets of real engines.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from models import EVICTIONS, RETENTIONS, Agents, Run, Setup, differences, replace, run
from test_engine_laws import LAWS, alone, assert_same, hits, some_below, some_case, some_schedule, without

import sim
from sim.engine.write_backs import Writes
from sim.policies.prediction import Constant
from sim.policies.retention import Drop, Keep, Offload, Release, Tiered
from sim.policies.schedule import Chunked
from sim.records import LINK_USES, TIER_USES, TIERS
from sim.scenario.deployment import deploy

SEEDS = st.integers(0, 1 << 32)
ALL_POLICIES = pytest.mark.parametrize("policy", RETENTIONS, ids=lambda policy: policy.__name__)
PLACES = pytest.mark.parametrize("to", TIERS)


def some_layout_run(kind: Any, seed: int, **changes: Any) -> Run:
    """Some run, with memory elsewhere in half of the cases, now and then shared by two nodes."""
    setup, agents = some_case(kind, seed)
    rng = random.Random(f"remote {seed}")
    changes = {"remote_blocks": rng.choice((0, 30, 10_000)), "per_node": rng.choice((1, 99)),
               "spills": rng.random() < 0.6, **changes}
    return run(replace(some_below(setup, seed), **changes), agents)


def carried(result: Run, name: str, *, out: bool) -> tuple[float, float, float]:
    """Return the bytes that crossed one way of a link, and those of the moves that did: ended, and all."""
    replicas = result.cluster.replicas
    hosts = list({id(replica.pauses.host): replica.pauses.host for replica in replicas}.values())
    if name == "host":
        links = [replica.pauses.transfers.link for replica in replicas]
        direct = [tier for tier, config in zip(TIERS, hosts[0].configs, strict=True) if config.direct]
        ends = [("hbm", tier) if out else (tier, "hbm") for tier in TIERS if tier not in direct]
    else:
        links = [link for host in hosts for tier, link in zip(TIERS, host.links, strict=True)
                 if tier == name and link is not None]
        others = ["hbm", *TIERS]
        ends = [(other, name) if out else (name, other) for other in others]
    moved = sum((link.out if out else link.into).moved_bytes for link in links)
    rows = [row for row in result.recorder.moves if (row["source"], row["target"]) in ends]
    return moved, sum(row["bytes"] for row in rows if not row["cancelled"]), sum(row["bytes"] for row in rows)


def bytes_are_carried_once(result: Run) -> None:
    """What crosses a link is what its moves say: all of those that ended, and no more than all."""
    for name in ("host", *TIERS[1:]):
        for out in (True, False):
            moved, ended, asked = carried(result, name, out=out)
            assert ended - 1e-3 <= moved <= asked + 1e-3


def nothing_is_read_before_it_is_there(result: Run) -> None:
    """No copy out of a tier is larger than what had arrived there when it was asked for."""
    for tier in TIERS:
        arrivals = [(row["end_s"], row["bytes"]) for row in result.recorder.moves
                    if row["target"] == tier and not row["cancelled"]]
        for row in result.recorder.moves:
            if row["source"] == tier:
                assert row["bytes"] <= sum(size for end_s, size in arrivals if end_s <= row["queued_s"])


def blocks_are_free_when_their_copy_ends(result: Run) -> None:
    """An offloaded context is held in HBM until its copy has ended, and longer only where others use it by then."""
    if result.setup.policy.prefetch is not None:
        return
    begun = Counter((row["trajectory"], row["queued_s"]) for row in result.recorder.moves if row["kind"] == "offload")
    moves = {(row["trajectory"], row["queued_s"]): row for row in result.recorder.moves if row["kind"] == "offload"}
    for pause in result.recorder.pauses:
        move = moves.get((pause["trajectory"], pause["start_s"]))
        if pause["action"] == "offload" and move is not None and begun[pause["trajectory"], pause["start_s"]] == 1:
            until_s = min(move["end_s"], pause["end_s"])
            held = pause["private_bytes"] * (until_s - pause["start_s"])
            assert pause["hold_hbm_byte_s"] >= held * (1.0 - 1e-6) - 1e-3


def evictions_are_accounted_for(result: Run) -> None:
    counts = result.counts()
    if result.setup.writes.when != "on_pause":
        assert counts["lost"] + counts["saved"] == counts["evicted"]
    else:
        assert counts["written"] == counts["lost"] == counts["saved"] == 0
    for row in result.recorder.moves:
        assert (row["kind"] == "demote") == (row["source"] != "hbm" and row["target"] != "hbm")
        assert row["kind"] != "write_back" or result.setup.writes.when != "on_pause"


def ledgers_of_tiers_and_links_close(result: Run) -> None:
    """At every sample each tier's byte-seconds and each link's seconds sum to the whole, and no use is negative."""
    setup = result.setup
    block_bytes = setup.size * 1000
    samples = result.recorder.samples
    for sample in samples:
        links = [f"host_{way}" for way in ("out", "in")]
        first = sample["replica"] % setup.per_node == 0
        links += [f"{tier}_{way}" for tier in TIERS[1:] for way in ("out", "in")
                  if first and getattr(setup, f"{tier}_blocks")]
        for link in links:
            uses = [sample[f"{link}_{use}_cum_s"] for use in LINK_USES]
            assert sum(uses) == pytest.approx(sample["time_s"], abs=1e-6)
            assert min(uses) >= -1e-9
        for tier in TIERS:
            uses = [sample[f"{tier}_{use}_byte_s"] for use in TIER_USES]
            own = first and (tier != "remote" or sample["replica"] == 0)
            whole = getattr(setup, f"{tier}_blocks") * block_bytes * sample["time_s"] if own else 0.0
            assert sum(uses) == pytest.approx(whole, rel=1e-9, abs=1e-3)
            assert min(uses) >= -1e-6 * max(whole, 1.0)
    last = [sample for sample in samples if sample["time_s"] == result.end_s]
    for name in ("host", *TIERS[1:]):
        for way in ("out", "in"):
            busy = sum(sample[f"{name}_{way}_{use}_cum_s"] for sample in last for use in LINK_USES if use != "idle")
            moved, _, _ = carried(result, name, out=way == "out")
            assert (busy > 0) or moved == 0.0


BELOW = (
    ledgers_of_tiers_and_links_close,
    bytes_are_carried_once,
    nothing_is_read_before_it_is_there,
    blocks_are_free_when_their_copy_ends,
    evictions_are_accounted_for,
)


@ALL_POLICIES
@settings(max_examples=60)
@given(SEEDS)
def test_every_layout_keeps_and_carries_every_byte_once(policy: Any, seed: int) -> None:
    result = some_layout_run(policy, seed)
    for law in BELOW:
        law(result)


def same_step_by_step(policy: Any, seed: int, **changes: Any) -> None:
    """But for when, within a stretch, a paused context lost a block to eviction."""
    stretches, steps = (some_layout_run(policy, seed, stretches=alike, **changes) for alike in (True, False))
    for result in (stretches, steps):
        without(result, "pauses", "hold_hbm_byte_s", *(f"hold_{tier}_byte_s" for tier in TIERS))
    assert_same(stretches, steps, 1e-6, ("turns", "trajectories", "pauses"))
    assert stretches.counts() == steps.counts()


@ALL_POLICIES
@settings(max_examples=25)
@given(SEEDS)
@example(4043716558)  # what comes back of a context ends in front of its own stream's content
@example(1304833555)  # a write-back ends, and the next one depends on how many blocks are free by then
def test_every_layout_gives_the_same_step_by_step(policy: Any, seed: int) -> None:
    same_step_by_step(policy, seed)


@pytest.mark.parametrize("policy", [Keep, Tiered], ids=lambda policy: policy.__name__)
@settings(max_examples=15)
@given(SEEDS)
@example(5000410)  # behind a queue that waits for blocks, a step takes its own as it begins
def test_slowed_by_copies_every_layout_gives_the_same_step_by_step(policy: Any, seed: int) -> None:
    same_step_by_step(policy, seed, step_slowdown=0.3)


@settings(max_examples=60)
@given(SEEDS, st.sampled_from(EVICTIONS), st.sampled_from(("on_pause", "on_compute", "on_evict")))
def test_a_tier_of_size_zero_is_no_tier(seed: int, eviction: Any, when: Any) -> None:
    """Offload behaves as drop, and writing early or late writes nothing."""
    nothing = {f"{tier}_blocks": 0 for tier in TIERS}
    changes: dict[str, Any] = {**nothing, "writes": Writes(when), "eviction": eviction()}
    moved, dropped = (some_layout_run(Drop, seed, policy=policy, **changes) for policy in (Offload(), Drop()))
    assert_same(moved, dropped, 0.0, ("turns", "trajectories", "moves"))
    assert not moved.recorder.moves
    plain = some_layout_run(Drop, seed, policy=Drop(), **{**changes, "writes": Writes()})
    assert not differences(dropped.recorder.turns, plain.recorder.turns)


@PLACES
@settings(max_examples=40)
@given(SEEDS, st.booleans(), st.sampled_from(("on_pause", "on_compute", "on_evict")))
def test_an_infinite_link_gives_keeps_latencies(to: Any, seed: int, direct: bool, when: Any) -> None:
    """With room for everything, wherever contexts go, however they get there and whenever they are written."""
    roomy = {"dram_blocks": 100_000, **{f"{tier}_blocks": 100_000 for tier in TIERS[1:]}}
    changes: dict[str, Any] = {"link_Bps": 1e30, "latency_s": 0.0, "direct": direct, "writes": Writes(when), **roomy}
    kept, moved = alone(Keep(), seed, **changes), alone(Offload(to=to), seed, **changes)
    for left, right in zip(kept.finished, moved.finished, strict=True):
        assert hits(left) == hits(right)
        for name in ("ready_s", "first_token_s", "end_s"):
            assert left[name] == pytest.approx(right[name], rel=1e-9)


# ------------------------------------------------------------------------------------------------------ write-back


def crowded(seed: int, link_Bps: float, **changes: Any) -> Run:
    """More chains than the pool holds, whose contexts go dormant while they wait."""
    rng = random.Random(seed)
    setup = Setup(policy=Release(predictor=Constant(wait=1.0)), schedule=some_schedule(rng), blocks=120, size=4,
                  dram_blocks=10_000, link_Bps=link_Bps, writes=Writes("on_evict", ahead=0.5))
    agents = Agents(seed=seed, count=20, turns=5, zones=1, gap_s=0.3, wait_s=3.0, tokens=40)
    return run(replace(setup, **changes), agents)


@settings(max_examples=30)
@given(SEEDS)
def test_written_back_contexts_come_back_from_dram(seed: int) -> None:
    """Over a fast link eviction loses little; over a slow one it cannot wait; without it everything is lost."""
    fast, slow, none = crowded(seed, 1e9), crowded(seed, 1e3), crowded(seed, 1e9, writes=Writes())
    for result in (fast, slow, none):
        for law in (*LAWS, *BELOW):
            law(result)
    counts = fast.counts()
    if counts["evicted"] > 50:
        assert counts["written"] > 0
        assert counts["saved"] > counts["lost"]
        assert any(turn["hit_dram_tokens"] for turn in fast.finished)
        recomputed = [sum(turn["recomputed_tokens"] for turn in result.finished) for result in (fast, none)]
        assert recomputed[0] < recomputed[1]
    assert slow.counts()["lost"] >= slow.counts()["saved"]
    assert not any(turn["hit_dram_tokens"] for turn in none.finished)


@settings(max_examples=30)
@given(SEEDS)
def test_write_back_moves_less_than_write_through(seed: int) -> None:
    """The link carries what HBM does not keep, not every block."""
    through, back = crowded(seed, 1e9, writes=Writes("on_compute")), crowded(seed, 1e9)
    bytes_out = [sum(row["bytes"] for row in result.recorder.moves if row["source"] == "hbm")
                 for result in (through, back)]
    roomy = crowded(seed, 1e9, blocks=10_000)
    assert not roomy.recorder.moves
    assert back.counts()["evicted"] == 0 or bytes_out[1] <= 2.0 * bytes_out[0]


@settings(max_examples=30)
@given(SEEDS, st.sampled_from(("on_compute", "on_evict")))
def test_what_single_turns_share_is_found_in_dram(seed: int, when: Any) -> None:
    """Contexts that nobody comes back to are written too, the content they share with others among it."""
    agents = Agents(seed=seed, count=40, turns=1, zones=2, gap_s=0.3, wait_s=3.0, tokens=40)
    found = {}
    for name, writes in (("early", Writes(when, ahead=0.9)), ("never", Writes())):
        setup = Setup(policy=Release(predictor=Constant(wait=1.0)), schedule=Chunked(), blocks=40, size=4,
                      dram_blocks=10_000, link_Bps=1e9, writes=writes)
        result = run(setup, agents)
        for law in (*LAWS, *BELOW):
            law(result)
        found[name] = sum(turn["hit_dram_tokens"] for turn in result.finished)
    lost = sum(turn["recomputed_tokens"] for turn in result.finished)
    assert found["never"] == 0
    assert found["early"] > 0 or lost == 0


# --------------------------------------------------------------------------------------------- whole scenarios


TIERED: dict[str, dict[str, Any]] = {
    "dram": {"dram": {"capacity": "2 GB"}},
    "write-back to nvme": {"dram": {"capacity": "1 GB", "write": "on_evict", "evict_to": "nvme", "eviction": "arc"},
                           "nvme": {"capacity": "20 GB", "link": "nvme-gen5-x4"}},
    "all the way down": {"dram": {"capacity": "0.5 GB", "evict_to": "nvme"},
                         "nvme": {"capacity": "1 GB", "evict_to": "remote"}, "remote": {"capacity": "20 GB"}},
    "write-through": {"dram": {"capacity": "2 GB", "write": "on_compute", "exclusive": True, "eviction": "lfu"}},
}


def small(preset: str, policy: str, tiers: dict[str, Any], eviction: str) -> sim.Result:
    return sim.run({
        "model": "llama-3.1-8b", "hardware": "dgx-h100", "replicas": 2, "duration": "120 s", "warmup": "10 s",
        "engine": {"preset": preset, "pool": "3 GB", "prefix_cache": {"eviction": eviction}}, "tiers": tiers,
        "retention": policy, "workload": {"arrivals": {"closed": {"concurrency": 6}}, "agents": {
            "prompt": [{"name": "system", "tokens": 1000, "shared": "all"}], "turns": 4, "output": 60,
            "observation": 500, "tools": {"shell": {"wait": "4 s"}}}}})


def books_are_closed(result: sim.Result) -> None:
    """Hit rates, what pauses hold, tiers and links each sum to the whole."""
    summary = result.summary
    assert max(summary["checks"]["ledger_residual"].values()) < 1e-6
    rates = summary["hit_rate"]
    found = sum(rates[name] or 0.0 for name in ("hbm", *TIERS))
    assert found == pytest.approx(rates["total"])
    assert rates["total"] <= rates["ceiling"] + 1e-12
    held = summary["hold_GB_s"]
    assert sum(held["by_tier"].values()) == pytest.approx(held["total"])
    assert sum(held["by_tool"].values()) == pytest.approx(held["total"])
    for tier, tools in held["by_tool_and_tier"].items():
        assert sum(tools.values()) == pytest.approx(held["by_tier"][tier])
    span = summary["checks"]["span_s"]
    at = deploy(result.scenario)
    for tier, uses in summary["ledger"]["tier_byte_s"].items():
        whole = at.tiers[tier].capacity_bytes // at.block_bytes * at.block_bytes * span
        assert sum(uses.values()) == pytest.approx(whole)
    assert set(summary["ledger"]["tier_byte_s"]) == set(at.tiers)
    for link, uses in summary["ledger"]["link_s"].items():
        assert sum(uses.values()) == pytest.approx(span * (at.replicas if link.startswith("host") else at.nodes))
    frame = result.pauses[result.pauses["start_s"] >= summary["checks"]["warmup_s"]]
    for tier in ("hbm", *TIERS):
        assert frame[f"hold_{tier}_byte_s"].sum() / 1e9 == pytest.approx(held["by_tier"][tier])


@pytest.mark.parametrize("layout", TIERED)
@pytest.mark.parametrize("preset", ["vllm", "sglang", "trtllm", "lmcache", "hicache"])
def test_every_preset_with_every_layout_closes_its_books(preset: str, layout: str) -> None:
    """Retention and eviction go round with the seed of the pair, so that all of them meet."""
    turn = sorted(TIERED).index(layout) + 5 * ["vllm", "sglang", "trtllm", "lmcache", "hicache"].index(preset)
    for step in range(3):
        policy = RETENTIONS[(turn + 3 * step) % len(RETENTIONS)].model_fields["policy"].default
        eviction = EVICTIONS[(turn + step) % len(EVICTIONS)].model_fields["policy"].default
        books_are_closed(small(preset, policy, TIERED[layout], eviction))
