"""Contexts in contiguous buffers that leave HBM: is every token carried once, kept once and found again by its own?

Every contiguous allocator, retention policy and tier layout in combination: the laws of any run, those of buffers after
each event, and those of what lies below HBM.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from models import EVICTIONS, RETENTIONS, Agents, Run, Setup, replace, run
from test_below_hbm import BELOW, books_are_closed
from test_buffers import (
    ALL_POLICIES,
    ALLOCATORS,
    OF_BUFFERS,
    SEEDS,
    accounts_agree,
    blocks,
    buffers,
    roomy,
    same_but_for_stretches,
    some_setup,
)
from test_engine_laws import LAWS, assert_same, hits, some_agents, without

import sim
from sim.engine.cluster import Cluster
from sim.policies.prediction import Constant, Oracle
from sim.policies.retention import Drop, Keep, Offload, Prefetch
from sim.policies.schedule import Chunked
from sim.records import TIERS

PLACES = pytest.mark.parametrize("to", TIERS)
#: More than any of these runs stores.
PLENTY = 1_000_000


def some_case(kind: str, retention: Any, seed: int) -> tuple[Setup, Agents]:
    """Buffers and agents with tiers below; in half of the cases little HBM and copies that take as long as a pause."""
    rng = random.Random(seed)
    setup = some_setup(kind, retention, rng)
    agents = some_agents(rng)
    setup = replace(
        setup, dram_blocks=rng.choice((0, 200, 1000, PLENTY)), nvme_blocks=rng.choice((0, 0, 600)),
        remote_blocks=rng.choice((0, 500, PLENTY)), spills=rng.random() < 0.6, per_node=rng.choice((1, 99)),
        direct=rng.random() < 0.3, exclusive=rng.random() < 0.3, bus_Bps=rng.choice((0.0, 3e8)),
        link_Bps=rng.choice((1e6, 1e8, 1e12)), both=rng.random() < 0.5, tier_eviction=rng.choice(EVICTIONS)(),
        least_tokens=rng.choice((0, 0, 40)), step_slowdown=rng.choice((0.0, 0.0, 0.3)))
    if seed % 2 == 0:
        options: dict[str, Any] = {}
        if retention is Offload:
            options["to"] = rng.choice(("dram", "dram", "nvme", "remote"))
        policy = retention(predictor=rng.choice((Oracle(), Constant(wait=0.02))),
                           reload=rng.choice(("blocking", "pipelined")),
                           prefetch=rng.choice((None, Prefetch(only_above_free=0.0, quantile=0.02))), **options)
        setup = replace(setup, policy=policy, blocks=16 * rng.randint(9, 30),
                        dram_blocks=rng.choice((150, 300, PLENTY)), nvme_blocks=rng.choice((0, PLENTY)),
                        remote_blocks=rng.choice((0, PLENTY)), link_Bps=rng.choice((3e5, 1e6, 4e6)))
        agents = replace(agents, gap_s=rng.choice((0.001, 0.05)), wait_s=rng.choice((0.02, 0.1)))
    return setup, agents


def some_run(kind: str, retention: Any, seed: int, **changes: Any) -> Run:
    setup, agents = some_case(kind, retention, seed)
    return run(replace(setup, **changes), agents)


def each_finds_its_own(cluster: Cluster) -> None:
    """Every entry below HBM is a trajectory's own, and a pinned one is being copied."""
    for replica in cluster.replicas:
        for tier in replica.pauses.host.tiers:
            for (number, stream), entry in tier.entries.items():
                assert number == entry.owner
                assert stream.attach == entry.first <= entry.ready <= entry.end


def what_is_read_stays(cluster: Cluster) -> None:
    """Until a copy back has ended, what it reads is where it was found."""
    for replica in cluster.replicas:
        host = replica.pauses.host
        copies = [(job.turn.stream, job.sequence, *held[:2]) for job, held in replica.admission.reloads._held.items()]
        copies += [(sequence.stream, sequence, reach, reach)
                   for sequence, reach, *_ in replica.pauses.prefetches._open.values()]
        for stream, sequence, reach, count in copies:
            assert sum(host.cover(stream, reach, sequence.base, sequence.owner)) == count


def watched(cluster: Cluster) -> None:
    accounts_agree(cluster)
    each_finds_its_own(cluster)
    what_is_read_stays(cluster)


@ALLOCATORS
@ALL_POLICIES
@settings(max_examples=60)
@given(SEEDS)
@example(60150)  # nothing runs, and a copy ahead of time holds what the first in the queue needs
@example(60162)
@example(63610)  # the same, and a turn waits for that copy
@example(64476)
@example(60048)  # a tier makes room while it is read
@example(60218)
def test_every_run_obeys_the_laws(kind: str, policy: Any, seed: int) -> None:
    result = some_run(kind, policy, seed, watch=watched)
    for law in (*LAWS, *BELOW, *OF_BUFFERS):
        law(result)


@ALLOCATORS
@ALL_POLICIES
@settings(max_examples=25)
@given(SEEDS)
@example(121514)  # a copy ahead of time takes a buffer in the middle of a stretch: the next step waits for the driver
@example(123950)
def test_stretches_equal_single_steps(kind: str, policy: Any, seed: int) -> None:
    same_but_for_stretches(some_run(kind, policy, seed), some_run(kind, policy, seed, stretches=False))


@ALLOCATORS
@settings(max_examples=15)
@given(SEEDS)
def test_the_same_seed_gives_the_same_records(kind: str, seed: int) -> None:
    left, right = some_run(kind, Offload, seed), some_run(kind, Offload, seed)
    assert_same(left, right, 0.0)
    assert left.recorder.samples == right.recorder.samples


@ALLOCATORS
@settings(max_examples=40)
@given(SEEDS)
def test_no_trajectory_finds_what_another_has_stored(kind: str, seed: int) -> None:
    """Not even where two say the same word for word."""
    setup, agents = some_case(kind, Offload, seed)
    result = run(setup, replace(agents, repeat=0.9, zones=2))
    for record in result.finished:
        assert not record["first"] or hits(record) == 0


# ----------------------------------------------------------------------------------- against blocks, keep and drop


def below(setup: Setup, **changes: Any) -> Setup:
    return replace(setup, dram_blocks=PLENTY, nvme_blocks=PLENTY, remote_blocks=PLENTY, **changes)


@ALLOCATORS
@ALL_POLICIES
@settings(max_examples=15)
@given(SEEDS)
def test_the_same_tokens_are_produced_as_with_blocks(kind: str, policy: Any, seed: int) -> None:
    result, paged = roomy(below(buffers(kind, policy())), seed), roomy(below(blocks(policy())), seed)
    for name in ("prompt_tokens", "output_tokens"):
        both = result.by_turn.keys() & paged.by_turn.keys()
        assert {key: result.by_turn[key][name] for key in both} == {key: paged.by_turn[key][name] for key in both}
    if not any(turn.prunes for turn in result.graph.values()):
        assert len(result.finished) == len(paged.finished) == len(result.graph)


@ALLOCATORS
@PLACES
@settings(max_examples=20)
@given(SEEDS)
def test_chains_that_share_nothing_move_as_with_blocks(kind: str, to: Any, seed: int) -> None:
    """With room and free copies within HBM, a context comes back as soon from a buffer as from blocks."""
    alone = {"fan": 0.0, "zones": 0, "repeat": 0.0}
    setups = (buffers(kind, Offload(to=to)), blocks(Offload(to=to)))
    result, paged = (roomy(below(setup, latency_s=0.0), seed, **alone) for setup in setups)
    assert_same(result, paged, 1e-9, ("turns", "trajectories"))
    for one in (result, paged):
        without(one, "moves", "replica")
    assert_same(result, paged, 1e-9, ("moves",))


@ALLOCATORS
@settings(max_examples=40)
@given(SEEDS)
def test_offload_into_a_tier_of_size_zero_is_drop(kind: str, seed: int) -> None:
    nothing: dict[str, Any] = {f"{tier}_blocks": 0 for tier in TIERS}
    moved, dropped = (some_run(kind, Drop, seed, policy=policy, **nothing) for policy in (Offload(), Drop()))
    assert not moved.recorder.moves
    for result in (moved, dropped):
        without(result, "pauses", "predicted_s")
    assert_same(moved, dropped, 0.0)
    assert moved.counts() == dropped.counts()


@ALLOCATORS
@PLACES
@settings(max_examples=40)
@given(SEEDS, st.booleans())
def test_an_infinite_link_gives_keeps_latencies(kind: str, to: Any, seed: int, direct: bool) -> None:
    """One chain at a time, with room for everything, where copies within HBM and driver calls cost nothing.

    Not so branches: of a context that several go on with, DRAM has a copy for each, and HBM a buffer for the first.
    """
    agents: dict[str, Any] = {"count": 3, "gap_s": 1e4, "fan": 0.0}
    changes: dict[str, Any] = {"link_Bps": 1e30, "latency_s": 0.0, "direct": direct}
    kept, moved = (roomy(below(buffers(kind, policy), **changes), seed, **agents)
                   for policy in (Keep(), Offload(to=to)))
    for left, right in zip(kept.finished, moved.finished, strict=True):
        assert hits(left) == hits(right)
        for name in ("ready_s", "first_token_s", "end_s"):
            assert left[name] == pytest.approx(right[name], rel=1e-9)


@ALLOCATORS
@settings(max_examples=30)
@given(SEEDS)
def test_a_buffer_leaves_with_what_is_in_it_and_lives_until_it_has_left(kind: str, seed: int) -> None:
    """One chain over a slow link: each copy is of the tokens that DRAM lacks, and frees the whole buffer at its end."""
    setup = below(buffers(kind, Offload()), link_Bps=1e6, latency_s=0.0)
    agents = Agents(seed=seed, count=1, turns=6, wait_s=3.0)
    result = run(replace(setup, schedule=Chunked()), agents)
    moves = {row["queued_s"]: row for row in result.recorder.moves if row["kind"] == "offload"}
    there = 0
    for pause in result.recorder.pauses:
        move = moves.get(pause["start_s"])
        turn = result.graph[0, pause["turn"]]
        tokens = turn.prompt_tokens + min(turn.kept_output, turn.output_tokens - 1)
        if move is None:
            continue
        until_s = min(move["end_s"], pause["end_s"])
        assert pause["hold_hbm_byte_s"] == pytest.approx(pause["private_bytes"] * (until_s - pause["start_s"]))
        assert pause["private_bytes"] >= 1000 * tokens
        assert move["bytes"] <= 1000 * (tokens - there)
        if not move["cancelled"]:
            there = tokens
            assert move["end_s"] - move["start_s"] == pytest.approx(move["bytes"] / 1e6)


def joins(result: Run) -> int:
    """Turns that were ready while their context was on its way back."""
    begins = [(record["trajectory"], record["ready_s"]) for record in result.finished]
    return sum(number == row["trajectory"] and row["queued_s"] < ready_s < row["end_s"]
               for row in result.recorder.moves if row["kind"] == "prefetch" for number, ready_s in begins)


@ALLOCATORS
def test_the_runs_above_meet_what_the_laws_are_about(kind: str) -> None:
    results = [some_run(kind, Offload, seed) for seed in range(200)]
    moves = [row for result in results for row in result.recorder.moves]
    seen = {name: sum(row["kind"] == name for row in moves) for name in ("offload", "prefetch", "reload", "demote")}
    seen["cancelled"] = sum(row["cancelled"] for row in moves)
    seen["joined"] = sum(map(joins, results))
    finished = [record for result in results for record in result.finished]
    for tier in TIERS:
        seen[tier] = sum(record[f"hit_{tier}_tokens"] for record in finished)
    seen["branch's copy and a reload"] = sum(record["hit_hbm_tokens"] > 0 and record["hit_dram_tokens"] > 0
                                             for record in finished)
    assert min(seen.values()) > 0, (kind, seen)


# ------------------------------------------------------------------------------------------------ whole scenarios


LAYOUTS: dict[str, dict[str, Any]] = {
    "dram": {"dram": {"capacity": "2 GB", "write": "on_pause"}},
    "dram and nvme": {"dram": {"capacity": "1 GB", "write": "on_pause", "evict_to": "nvme", "eviction": "arc",
                               "exclusive": True},
                      "nvme": {"capacity": "20 GB", "link": "nvme-gen5-x4"}},
    "all the way down": {"dram": {"capacity": "0.5 GB", "write": "on_pause", "evict_to": "nvme"},
                         "nvme": {"capacity": "1 GB", "evict_to": "remote"}, "remote": {"capacity": "20 GB"}},
}
PRESETS = ("vllm", "sglang", "trtllm", "lmcache", "hicache")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_with_every_layout_closes_its_books(preset: str, layout: str) -> None:
    """Allocators and retention go round with the number of the pair, so that all of them meet."""
    turn = sorted(LAYOUTS).index(layout) + 3 * PRESETS.index(preset)
    for step, allocator in enumerate(("growth", "buddy", {"kind": "static", "s_max": 4096})):
        policy = RETENTIONS[(turn + 2 * step) % len(RETENTIONS)].model_fields["policy"].default
        result = small(preset, policy, LAYOUTS[layout], allocator)
        books_are_closed(result)
        assert result.summary["hit_rate"]["total"] > 0 or policy not in ("keep", "offload", "tiered")


def small(preset: str, policy: str, tiers: dict[str, Any], allocator: Any) -> sim.Result:
    return sim.run({
        "model": "llama-3.1-8b", "hardware": "dgx-h100", "replicas": 2, "duration": "120 s", "warmup": "10 s",
        "engine": {"preset": preset, "pool": "3 GB", "allocator": allocator, "prefix_cache": {"enabled": False}},
        "tiers": tiers, "retention": policy,
        "workload": {"arrivals": {"closed": {"concurrency": 12}}, "agents": {
            "prompt": [{"name": "system", "tokens": 1000, "shared": "all"}], "turns": 4, "output": 60,
            "observation": 500, "tools": {"shell": {"wait": "4 s"}}}}})
