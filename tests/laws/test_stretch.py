"""Is a stretch of k steps the same as k steps one after another?"""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
import simpy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sim.engine.batch import Batch
from sim.engine.cluster import Cluster
from sim.engine.job import Job
from sim.engine.session import Session
from sim.policies.routing import RoundRobin
from sim.timing.base import Line, at, steps_until, stretch_s
from sim.timing.roofline import Replica, RooflineCost
from workloads.trajectory import Stream, Trajectory, Turn

LINE = st.builds(Line, st.floats(1e-4, 0.1), st.floats(0.0, 1e-5))
LINES = st.one_of(st.tuples(LINE), st.tuples(LINE, LINE))
CONTEXT, DECODING, STEPS = st.integers(0, 100_000), st.integers(0, 300), st.integers(1, 400)


class Counter:
    """A decoding batch, step by step: positions, remaining steps, blocks."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.turns: dict[Any, list[int]] = {}

    def step(self) -> int:
        """Every turn writes one token; return the blocks this takes."""
        taken = 0
        for state in self.turns.values():
            taken += state[0] % self.size == 0
            state[0] += 1
            state[1] -= 1
        return taken

    def copy(self) -> Counter:
        other = Counter(self.size)
        other.turns = {turn: list(state) for turn, state in self.turns.items()}
        return other


def a_turn(rng: random.Random) -> Job:
    """Some turn about to decode."""
    position, generated = rng.randint(1, 100), rng.randint(1, 5)
    turn = Turn(Stream(), position, generated + rng.randint(1, 60))
    cluster = Cluster(simpy.Environment(), cast(Any, None), RoundRobin())
    job = Job(Session(cluster, Trajectory(0, 0.0, [turn], 1), 0.0), turn, "", 0.0, None)
    job.position, job.generated = position, generated
    return job


@settings(max_examples=300)
@given(st.integers(0, 1 << 32), st.sampled_from((1, 2, 3, 5, 16)))
def test_batch_equals_counting_step_by_step(seed: int, size: int) -> None:
    rng = random.Random(seed)
    batch, slow = Batch(size), Counter(size)
    for _ in range(rng.randint(1, 25)):
        if not batch.size or rng.random() < 0.5:
            job = a_turn(rng)
            batch.join(job)
            slow.turns[job] = [job.position, job.turn.output_tokens - job.generated]
        elif rng.random() < 0.2:
            job = rng.choice(list(slow.turns))
            generated = job.turn.output_tokens - slow.turns[job][1]
            batch.leave(job)
            assert (job.position, job.generated) == (slow.turns.pop(job)[0], generated)
        check_batch(batch, slow, rng)
        if batch.size:
            most = batch.next_step - batch.step
            assert most == min(left for _, left in slow.turns.values())
            steps = rng.randint(1, most)
            assert batch.advance(steps) == sum(slow.step() for _ in range(steps))
            check_batch(batch, slow, rng)
            done = set()
            while batch.next_step <= batch.step:
                job = batch.pop_finished()
                done.add(job)
                assert job.generated == job.turn.output_tokens
            assert done == {job for job, (_, left) in slow.turns.items() if left == 0}
            for job in done:
                assert job.position == slow.turns.pop(job)[0]


def check_batch(batch: Batch, slow: Counter, rng: random.Random) -> None:
    assert batch.size == len(slow.turns)
    assert batch.context == sum(position for position, _ in slow.turns.values())
    assert batch.slots == sum(-position % slow.size for position, _ in slow.turns.values())
    ahead, taken = slow.copy(), [0]
    for _ in range(3 * slow.size + 2):
        taken.append(taken[-1] + ahead.step())
    assert [batch.blocks_for(steps) for steps in range(len(taken))] == taken
    room, most = rng.randint(taken[1], taken[-1] + 1), rng.randint(1, len(taken) - 1)
    assert batch.steps_within(room, most) == max(k for k in range(1, most + 1) if taken[k] <= room)


@settings(max_examples=300)
@given(LINES, CONTEXT, DECODING, STEPS)
def test_a_stretch_is_the_sum_of_its_steps(lines: tuple[Line, ...], context: int, decoding: int, steps: int) -> None:
    alone = sum(at(lines, context + decoding * index) for index in range(steps))
    assert stretch_s(lines, context, decoding, steps) == pytest.approx(alone, rel=1e-9)


@settings(max_examples=300)
@given(LINES, CONTEXT, DECODING, STEPS, st.floats(0.0, 1.2))
def test_steps_begun_are_the_first_whose_end_is_not_past(lines: tuple[Line, ...], context: int, decoding: int,
                                                         steps: int, share: float) -> None:
    elapsed_s = share * stretch_s(lines, context, decoding, steps)
    ends = [stretch_s(lines, context, decoding, k) for k in range(1, steps + 1)]
    assume(all(abs(end - elapsed_s) > 1e-9 for end in ends))
    begun = steps_until(lines, context, decoding, steps, elapsed_s)
    assert begun == next((k for k, end in enumerate(ends, 1) if end >= elapsed_s), steps)


@settings(max_examples=100)
@given(LINES, CONTEXT, DECODING, STEPS)
def test_in_the_middle_of_each_step_so_many_have_begun(lines: tuple[Line, ...], context: int, decoding: int,
                                                       steps: int) -> None:
    for k in range(1, steps + 1, 1 + steps // 20):
        middle_s = stretch_s(lines, context, decoding, k) - 0.5 * at(lines, context + decoding * (k - 1))
        assert steps_until(lines, context, decoding, steps, middle_s) == k


SHAPES = st.builds(
    Replica, active_params=st.floats(1e8, 1e11), weight_read_bytes=st.sampled_from(
        (lambda tokens: 2e9, lambda tokens: 1e9 + 3e6 * min(tokens, 500))), full_layers=st.integers(0, 60),
    window_layers=st.integers(0, 30), window=st.sampled_from((0, 128)), d_attn=st.just(1024), d_model=st.just(4096),
    n_layers=st.just(60), kv_bytes_per_token=st.floats(1e3, 1e6), state_bytes=st.sampled_from((0.0, 1e6)),
    peak_flops=st.floats(1e13, 1e16), hbm_Bps=st.floats(1e12, 3e13), nvlink_Bps=st.just(4.5e11),
    tp=st.sampled_from((1, 8)), pp=st.sampled_from((1, 4)))
COSTS = st.builds(RooflineCost, SHAPES, st.sampled_from(("sum", "max")), st.floats(0.1, 1.0), st.floats(0.1, 1.0),
                  st.sampled_from((0.0, 2e-3)))
CHUNKS = st.lists(st.tuples(st.integers(1, 8192), st.integers(0, 100_000)), max_size=3)


@settings(max_examples=200)
@given(COSTS, st.integers(1, 256), CONTEXT)
def test_a_step_without_chunks_is_the_highest_of_its_lines(cost: RooflineCost, decoding: int, context: int) -> None:
    seconds = cost.step(decoding, context)
    assert seconds == at(cost.decode_lines(decoding), context)
    assert seconds == max(line.base_s + line.slope_s * context for line in cost.decode_lines(decoding))
    # By the way that steps with chunks go: a chunk of nothing changes nothing.
    assert cost.step(decoding, context, [(0, 0)]) == pytest.approx(seconds, rel=1e-9)


@settings(max_examples=300)
@given(COSTS, st.integers(0, 256), CONTEXT, CHUNKS, st.data())
def test_more_work_never_takes_less_time(cost: RooflineCost, decoding: int, context: int,
                                         chunks: list[tuple[int, int]], data: st.DataObject) -> None:
    seconds = cost.step(decoding, context, chunks)
    assert seconds > 0 or not (decoding or chunks)
    assert cost.bound(decoding, context, chunks) in ("compute", "weights", "kv", "communication", "overhead")
    more, least = data.draw(st.integers(1, 5000)), seconds * (1 - 1e-12)
    assert cost.step(decoding + more, context, chunks) >= least
    assert cost.step(decoding, context + more, chunks) >= least
    assert cost.step(decoding, context, [*chunks, (more, 0)]) >= least
    for index, (new, past) in enumerate(chunks):
        rest = chunks[:index] + chunks[index + 1:]
        assert cost.step(decoding, context, [*rest, (new + more, past)]) >= least
        assert cost.step(decoding, context, [*rest, (new, past + more)]) >= least


@settings(max_examples=100)
@given(COSTS, st.integers(2, 8192), st.integers(0, 10_000), st.integers(1, 8191))
def test_chunks_add_up_to_the_arithmetic_of_the_whole(cost: RooflineCost, new: int, past: int, cut: int) -> None:
    """The causal attention of a prompt is the same in one piece and in two, without windows."""
    assume(cut < new)
    assume(cost.replica.window_layers == 0 or cost.replica.window == 0)
    whole = cost._chunk_flop(new, past)
    assert cost._chunk_flop(cut, past) + cost._chunk_flop(new - cut, past + cut) == pytest.approx(whole)
