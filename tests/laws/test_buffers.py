"""Is a run over contiguous buffers lawful: nothing lost, nothing counted twice, the same tokens as with blocks?

The laws of any run (`test_engine_laws`), for every contiguous allocator, retention policy and schedule, over random
workloads; and after each event the engine's own account against the allocator's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from models import RETENTIONS, Run, Setup, replace, run
from test_engine_laws import LAWS, assert_same, hits, some_agents, some_policy, some_schedule, without

from sim.engine.buffer_batch import BufferBatch
from sim.engine.cluster import Cluster
from sim.engine.job import Job
from sim.memory.allocators.buddy import BuddyAllocator
from sim.memory.allocators.contiguous import ContiguousAllocator
from sim.memory.allocators.growth import GrowthAllocator
from sim.memory.allocators.static import StaticAllocator
from sim.memory.contexts import common_tokens
from sim.policies.retention import Drop, Keep, Release
from workloads.trajectory import Stream

SEEDS = st.integers(0, 1 << 32)
ALLOCATORS = pytest.mark.parametrize("kind", ["static", "growth", "buddy"])
ALL_POLICIES = pytest.mark.parametrize("policy", RETENTIONS, ids=lambda policy: policy.__name__)
ROOM = 1 << 20


def some_allocator(kind: str, rng: random.Random) -> Callable[[int], ContiguousAllocator]:
    if kind == "static":
        s_max = rng.choice((100, 250, 400))
        return lambda slots: StaticAllocator(slots, min(s_max, slots))
    if kind == "growth":
        factor, fit = rng.choice((1.5, 2.0, 3.0)), rng.choice(("first", "best"))
        initial = rng.choice((None, 1, 16))
        return lambda slots: GrowthAllocator(slots, factor, initial, fit)
    smallest = rng.choice((1, 16))
    return lambda slots: BuddyAllocator(slots, smallest)


def some_setup(kind: str, policy: Any, rng: random.Random) -> Setup:
    blocks = 16 * rng.choice((9, 20, 30, 45, 60, 100, 10_000))  # a multiple of the smallest block
    return Setup(
        policy=some_policy(policy, rng), schedule=some_schedule(rng), blocks=blocks, size=1,
        buffers=some_allocator(kind, rng), stall_s=rng.choice((0.0, 1e-3)),
        block_copy_s=rng.choice((0.0, 1e-5, 1e-3)), state_blocks=rng.choice((0, 0, 5)),
        headroom=rng.choice((0, 0, 30)), replicas=rng.choice((1, 1, 2)), mode=rng.choice(("sum", "max")),
        most_alive=rng.choice((None, None, 2)))


def some_run(kind: str, retention: Any, seed: int, **changes: Any) -> Run:
    rng = random.Random(seed)
    setup = some_setup(kind, retention, rng)
    return run(replace(setup, **changes), some_agents(rng))


# --------------------------------------------------------------------------------------- the account, event by event


def accounts_agree(cluster: Cluster) -> None:
    """What the engine believes of its turns and pauses is what the allocator holds, slot by slot."""
    for replica in cluster.replicas:
        kv, batch, admission = replica.kv, replica.batch, replica.admission
        replica.bring_up_to_date()
        stats = kv.allocator.stats()
        jobs = {*admission.running, *(job for job in admission.reloads._held)}
        running = {job.sequence.context: tokens_there(batch, job) for job in jobs}
        pauses = replica.pauses
        coming = {sequence.context for sequence, *_ in pauses.prefetches._open.values()}
        contexts = {context for mine in kv._by_owner.values() for context in mine}
        leaving = {context for context in contexts if context.pause is not None and context.pause.transfer is not None}
        kept = {pause.node for pause in pauses.kept} | leaving
        assert not leaving & {pause.node for pause in pauses.kept}
        assert contexts == set(running) | kept | coming
        assert len(contexts) == len(running) + len(kept) + len(coming)
        assert all(context.in_use for context in (*running, *coming))
        assert not any(context.in_use for context in kept)
        tokens = sum(running.values()) + sum(context.tokens for context in kept)
        assert stats.useful == tokens + kv.state_slots * len(contexts)
        assert stats.free == replica.kv.pool.free == kv.pool.total - sum(context.end for context in contexts)
        assert kv.tree.kept == sum(context.end for context in kept)
        assert replica.accounts.leaving == sum(context.end for context in leaving)
        assert replica.accounts.loading == sum(context.end for context in coming) + sum(
            blocks for _, blocks, _ in admission.reloads._held.values())
        empty = sum(job.sequence.context.end - kv.state_slots - max(job.target, running[job.sequence.context])
                    for job in jobs)
        assert batch.slots == empty
        assert batch.context == sum(batch.position(job) for job in admission.running if job.state == Job.DECODE)
        parts = kv.segments()
        assert [part.start for part in parts] + [kv.pool.total] == [0] + [part.end for part in parts]


def tokens_there(batch: BufferBatch, job: Job) -> int:
    """The tokens of a turn's buffer that are computed or loaded; what is being loaded is not there yet."""
    if job.transfer is not None:
        return job.sequence.base
    return batch.position(job) if job.state == Job.DECODE else job.position


def everything_is_given_back(result: Run) -> None:
    for replica in result.cluster.replicas:
        kv = replica.kv
        assert kv.allocator.stats().useful == kv.allocator.stats().allocated == 0
        assert not kv._by_owner
        assert not kv._by_stream
        assert kv.allocator.space.room(kv.allocator.space.largest)
        assert (replica.batch.next_growth, replica.batch._steps) == (1 << 62, {})


def only_what_no_buffer_holds_is_refused(result: Run) -> None:
    """Whatever is kept, on its way or in the way: a turn that would fit in an empty pool is served."""
    kv = result.cluster.replicas[0].kv
    for record in result.recorder.turns:
        if record["status"] == "rejected":
            assert not kv.fits(record["prompt_tokens"] + record["output_tokens"])


def samples_say_what_is_taken(result: Run) -> None:
    for sample in result.recorder.samples:
        allocated = sample["allocated_tokens"]
        assert allocated == sample["used_blocks"]
        assert 0 <= sample["useful_tokens"] <= allocated
        assert 0 <= sample["largest_hole_tokens"] <= result.setup.blocks - allocated


OF_BUFFERS = (everything_is_given_back, only_what_no_buffer_holds_is_refused, samples_say_what_is_taken)


def same_but_for_stretches(stretches: Run, steps: Run) -> None:
    """A run in stretches and one in single steps give the same records, copies and allocator calls."""
    assert_same(stretches, steps, 1e-6, ("turns", "trajectories", "pauses"))
    assert stretches.counts() == steps.counts()
    for left, right in zip(stretches.cluster.replicas, steps.cluster.replicas, strict=True):
        for name in ("growths", "forks", "copied", "calls"):
            assert getattr(left.kv, name) == getattr(right.kv, name)
        assert left.accounts.copy_s == pytest.approx(right.accounts.copy_s)


@ALLOCATORS
@ALL_POLICIES
@settings(max_examples=60)
@given(SEEDS)
def test_every_run_obeys_the_laws(kind: str, policy: Any, seed: int) -> None:
    result = some_run(kind, policy, seed, watch=accounts_agree)
    for law in (*LAWS, *OF_BUFFERS):
        law(result)


@ALLOCATORS
@ALL_POLICIES
@settings(max_examples=20)
@given(SEEDS)
@example(5000031)  # a buffer freed by a pause in the middle of a stretch: the next step waits for the driver
@example(5000037)
@example(5000112)
@example(5000135)
def test_stretches_equal_single_steps(kind: str, policy: Any, seed: int) -> None:
    same_but_for_stretches(some_run(kind, policy, seed), some_run(kind, policy, seed, stretches=False))


@ALLOCATORS
@settings(max_examples=15)
@given(SEEDS)
def test_the_same_seed_gives_the_same_records(kind: str, seed: int) -> None:
    left, right = some_run(kind, Keep, seed), some_run(kind, Keep, seed)
    assert_same(left, right, 0.0)
    assert left.recorder.samples == right.recorder.samples


# -------------------------------------------------------------------------------------------- against blocks


def roomy(setup: Setup, seed: int, **changes: Any) -> Run:
    rng = random.Random(seed)
    setup = replace(setup, schedule=some_schedule(rng), mode=rng.choice(("sum", "max")))
    return run(setup, replace(some_agents(rng), **changes))


def blocks(policy: Any) -> Setup:
    return Setup(policy=policy, blocks=ROOM, size=1)


def buffers(kind: str, policy: Any, *, block_copy_s: float = 0.0) -> Setup:
    makers = {"static": lambda slots: StaticAllocator(slots, 4096), "growth": lambda slots: GrowthAllocator(slots),
              "buddy": lambda slots: BuddyAllocator(slots)}
    return Setup(policy=policy, blocks=ROOM, size=1, buffers=makers[kind], block_copy_s=block_copy_s)


@ALLOCATORS
@settings(max_examples=60)
@given(SEEDS)
def test_chains_that_share_nothing_run_as_with_blocks(kind: str, seed: int) -> None:
    """With room, free copies, and contexts kept, where a context lies makes no difference."""
    alone = {"fan": 0.0, "zones": 0, "repeat": 0.0}
    assert_same(roomy(buffers(kind, Keep()), seed, **alone), roomy(blocks(Keep()), seed, **alone), 1e-9,
                ("turns", "trajectories"))


@ALLOCATORS
@settings(max_examples=60)
@given(SEEDS)
def test_the_same_tokens_are_produced_as_with_blocks(kind: str, seed: int) -> None:
    result, paged = roomy(buffers(kind, Keep()), seed), roomy(blocks(Keep()), seed)
    for name in ("prompt_tokens", "output_tokens"):
        both = result.by_turn.keys() & paged.by_turn.keys()
        assert {key: result.by_turn[key][name] for key in both} == {key: paged.by_turn[key][name] for key in both}
    if not any(turn.prunes for turn in result.graph.values()):
        assert len(result.finished) == len(paged.finished) == len(result.graph)
    assert sum(map(hits, result.finished)) <= sum(record["ceiling_tokens"] for record in result.finished)


@ALLOCATORS
@settings(max_examples=30)
@given(SEEDS)
def test_without_a_cache_to_rest_in_release_is_drop(kind: str, seed: int) -> None:
    released, dropped = (some_run(kind, Drop, seed, policy=policy()) for policy in (Release, Drop))
    for result in (released, dropped):
        without(result, "pauses", "action", "predicted_s")
    assert_same(released, dropped, 0.0)


@settings(max_examples=40)
@given(SEEDS)
def test_static_buffers_never_copy_in_a_chain(seed: int) -> None:
    result = some_run("static", Keep, seed)
    if not any(turn.branch for turn in result.graph.values()):
        assert all(replica.kv.copied == replica.kv.growths == replica.kv.calls == 0
                   for replica in result.cluster.replicas)


@settings(max_examples=40)
@given(SEEDS)
def test_copies_and_stalls_are_on_the_gpus_clock(seed: int) -> None:
    """Every copy and every call that a step waited for is in the ledger, and no others."""
    result = some_run("growth", Keep, seed, replicas=1)
    (replica,) = result.cluster.replicas
    kv = replica.kv
    whole = kv.copied * kv.slot_copy_s + kv.calls * kv.stall_s
    assert replica.accounts.copy_s <= whole + 1e-9
    assert replica.accounts.copy_s >= whole - kv.calls * kv.stall_s - 1e-9  # a free may come when nothing waits


@settings(max_examples=300)
@given(st.data())
def test_common_tokens_are_those_before_the_streams_part(data: st.DataObject) -> None:
    streams = [Stream()]
    for _ in range(data.draw(st.integers(0, 6))):
        parent = data.draw(st.sampled_from(streams))
        streams.append(Stream(parent, data.draw(st.integers(parent.attach, 12))))

    def spelled(stream: Stream, tokens: int) -> list[tuple[Stream, int]]:
        if stream.parent is None:
            return [(stream, index) for index in range(tokens)]
        return (spelled(stream.parent, min(tokens, stream.attach))
                + [(stream, index) for index in range(stream.attach, tokens)])

    left, right = data.draw(st.sampled_from(streams)), data.draw(st.sampled_from(streams))
    ours, theirs = data.draw(st.integers(0, 15)), data.draw(st.integers(0, 15))
    same = 0
    for one, other in zip(spelled(left, ours), spelled(right, theirs), strict=False):
        if one != other:
            break
        same += 1
    assert common_tokens(left, ours, right, theirs) == same


@ALLOCATORS
def test_the_runs_above_meet_what_the_laws_are_about(kind: str) -> None:
    results = [some_run(kind, Keep, seed) for seed in range(150)]
    seen = {name: sum(result.counts()[name] for result in results) for name in ("rejections", "deadlocks", "forced")}
    replicas = [replica for result in results for replica in result.cluster.replicas]
    seen["forks"] = sum(replica.kv.forks for replica in replicas)
    if kind != "static":
        seen["growths"] = sum(replica.kv.growths for replica in replicas)
        seen["preemptions"] = sum(result.counts()["preemptions"] for result in results)
    assert min(seen.values()) > 0, seen
