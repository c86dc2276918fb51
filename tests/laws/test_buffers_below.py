"""Contexts in contiguous buffers that leave HBM: is every token carried once, kept once and found again by its own?

Every contiguous allocator, retention policy and tier layout in combination: the laws of any run, those of buffers after
each event, and those of what lies below HBM.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import EVICTIONS, RETENTIONS, Agents, Run, Setup, replace, run
from test_below_hbm import BELOW
from test_buffers import (
    ALL_POLICIES,
    ALLOCATORS,
    SEEDS,
    accounts_agree,
    blocks,
    buffers,
    everything_is_given_back,
    roomy,
    samples_say_what_is_taken,
    some_setup,
)
from test_engine_laws import LAWS, assert_same, hits, some_agents, some_schedule, without

from sim.engine.cluster import Cluster
from sim.engine.write_backs import Writes
from sim.memory.allocators.contiguous import ContiguousAllocator
from sim.memory.allocators.growth import GrowthAllocator
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
        options: dict[str, Any] = {"to": rng.choice(("dram", "dram", "nvme", "remote"))} if retention is Offload else {}
        policy = retention(predictor=Oracle(), reload=rng.choice(("blocking", "pipelined")),
                           prefetch=rng.choice((None, Prefetch(only_above_free=0.0, quantile=0.02))), **options)
        setup = replace(setup, policy=policy, blocks=16 * rng.randint(9, 30), dram_blocks=PLENTY,
                        nvme_blocks=rng.choice((0, PLENTY)), remote_blocks=rng.choice((0, PLENTY)), link_Bps=rng.choice((3e5, 1e6, 4e6)))
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


def watched(cluster: Cluster) -> None:
    accounts_agree(cluster)
    each_finds_its_own(cluster)


@ALLOCATORS
@ALL_POLICIES
@settings(max_examples=60)
@given(SEEDS)
def test_every_run_obeys_the_laws(kind: str, policy: Any, seed: int) -> None:
    result = some_run(kind, policy, seed, watch=watched)
    for law in (*LAWS, *BELOW, everything_is_given_back, samples_say_what_is_taken):
        law(result)


@ALLOCATORS
@ALL_POLICIES
@settings(max_examples=25)
@given(SEEDS)
def test_stretches_equal_single_steps(kind: str, policy: Any, seed: int) -> None:
    stretches, steps = some_run(kind, policy, seed), some_run(kind, policy, seed, stretches=False)
    assert_same(stretches, steps, 1e-6, ("turns", "trajectories", "pauses"))
    assert stretches.counts() == steps.counts()
    for left, right in zip(stretches.cluster.replicas, steps.cluster.replicas, strict=True):
        for name in ("growths", "forks", "copied", "calls"):
            assert getattr(left.kv, name) == getattr(right.kv, name)
        assert left.accounts.copy_s == pytest.approx(right.accounts.copy_s)
