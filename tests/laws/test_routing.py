"""Do the laws hold wherever a router sends turns, and does it see the same state whether steps are run one by one?"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import RETENTIONS, ROUTINGS, Agents, Run, Setup, replace, run
from test_buffers import some_setup as some_setup_of_buffers
from test_engine_laws import LAWS, assert_same, some_agents, some_below, some_case, without

from sim.engine.cluster import Cluster
from sim.policies.routing import Weighted

SEEDS = st.integers(0, 1 << 32)
ALL_ROUTERS = pytest.mark.parametrize("router", ROUTINGS, ids=lambda router: router.__name__)


def some_router(kind: Any, rng: random.Random) -> Any:
    if kind is not Weighted:
        return kind()
    weights = {name: rng.choice((0.0, 1.0, 3.0)) for name in ("waiting", "turns", "kv_use", "prefix", "host_prefix")}
    return Weighted(**weights, knows=rng.choice(("sent", "held")), remembers=rng.choice((50, 500)), head=64)


def shares_lie_within_the_pool(cluster: Cluster) -> None:
    for replica in cluster.replicas:
        assert 0 <= replica.used_blocks(replica.env.now) <= replica.kv.pool.total
        assert len(replica.admission.running) <= replica.load


def some_places(kind: Any, seed: int) -> tuple[Setup, Agents]:
    """Three replicas with tiers below, on one node or on one each."""
    rng = random.Random(f"routing {seed}")
    setup, agents = some_case(rng.choice(RETENTIONS), seed)
    setup = some_below(setup, seed) if rng.random() < 0.5 else setup
    return replace(setup, routing=some_router(kind, rng), replicas=3, per_node=rng.choice((1, 99))), agents


def obey(result: Run) -> None:
    for law in LAWS:
        law(result)


@ALL_ROUTERS
@settings(max_examples=60)
@given(SEEDS)
def test_every_router_obeys_the_laws(router: Any, seed: int) -> None:
    setup, agents = some_places(router, seed)
    obey(run(replace(setup, watch=shares_lie_within_the_pool), agents))


@ALL_ROUTERS
@settings(max_examples=20)
@given(SEEDS)
def test_every_router_obeys_the_laws_with_buffers(router: Any, seed: int) -> None:
    rng = random.Random(f"routing {seed}")
    setup = some_setup_of_buffers(rng.choice(("static", "growth", "buddy")), rng.choice(RETENTIONS), rng)
    setup = replace(setup, routing=some_router(router, rng), replicas=3, watch=shares_lie_within_the_pool)
    obey(run(setup, some_agents(rng)))


@ALL_ROUTERS
@settings(max_examples=40)
@given(SEEDS)
def test_a_router_sends_turns_to_the_same_places_when_steps_are_run_one_by_one(router: Any, seed: int) -> None:
    setup, agents = some_places(router, seed)
    setup = replace(setup, step_slowdown=0.0)
    stretches, steps = run(setup, agents), run(replace(setup, stretches=False), agents)
    for result in (stretches, steps):
        without(result, "pauses", "hold_hbm_byte_s")
    assert_same(stretches, steps, 1e-6, ("turns", "trajectories", "pauses"))
    assert stretches.counts() == steps.counts()
