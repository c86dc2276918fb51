"""Does a link carry every byte once, in order of priority and arrival, at its rate, and no faster than its cap?"""

from __future__ import annotations

import random
from typing import Any

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from models import LinkModel

from sim.memory.links import Link, Move

LINKS = st.fixed_dictionaries({
    "out_Bps": st.sampled_from((10.0, 50.0)), "in_Bps": st.sampled_from((10.0, 40.0)),
    "latency_s": st.sampled_from((0.0, 0.125, 1.0)), "both_Bps": st.sampled_from((None, 12.0, 1000.0)),
})


class Pair:
    """A link and its model under the same moves, asked for and given up at the same times."""

    def __init__(self, seed: int, out_Bps: float, in_Bps: float, latency_s: float, both_Bps: float | None) -> None:
        self.rng = random.Random(seed)
        self.env = simpy.Environment()
        self.link = Link(self.env, out_Bps, in_Bps, latency_s, both_Bps)
        self.ways = (self.link.out, self.link.into)
        self.model = LinkModel((out_Bps, in_Bps), latency_s, both_Bps)
        self.moves: dict[int, tuple[int, Move]] = {}
        self.ended: dict[int, float] = {}
        self.asked = [0.0, 0.0]
        self.dropped = [0.0, 0.0]

    def go(self, steps: int) -> None:
        for _ in range(steps):
            self.env.run(until=self.env.now + self.rng.uniform(0.001, 6.0))
            self.model.run(self.env.now)
            self.check()
            if self.moves and self.rng.random() < 0.15:
                self.cancel()
            else:
                self.submit()
        self.env.run()
        self.model.run(self.env.now + 1e-9)
        self.check()

    def submit(self) -> None:
        name, way, priority = len(self.ended) + len(self.moves) + 1000 * self.env.now, self.rng.randrange(2), \
            self.rng.randrange(3)
        size = self.rng.choice((0.0, 1.0, self.rng.uniform(1.0, 200.0)))
        move = self.ways[way].submit(size, priority, self.done, name)
        self.moves[name] = (way, move)
        self.asked[way] += size
        self.model.submit(name, way, priority, size)

    def cancel(self) -> None:
        name = self.rng.choice(sorted(self.moves))
        way, move = self.moves.pop(name)
        self.ways[way].cancel(move)
        left = self.model.cancel(name)
        assert move.bytes_left == pytest.approx(left, abs=1e-6)
        self.dropped[way] += left

    def done(self, move: Move) -> None:
        assert not move.cancelled
        assert move.bytes_left == 0.0
        self.ended[move.info] = self.env.now
        del self.moves[move.info]

    def check(self) -> None:
        assert self.ended.keys() == self.model.ended.keys()
        for name, end_s in self.ended.items():
            assert end_s == pytest.approx(self.model.ended[name], abs=1e-6)
        for way in (0, 1):
            direction = self.ways[way]
            direction.settle()
            assert direction.busy_s == pytest.approx(self.model.busy_s[way], abs=1e-6)
            left = sum(move.bytes_left for at, move in self.moves.values() if at == way)
            assert self.asked[way] == pytest.approx(self.model.moved[way] + left + self.dropped[way], abs=1e-6)
            waiting = left - (direction.current.bytes_left if direction.current else 0.0)
            assert direction.queued_bytes == pytest.approx(waiting, abs=1e-6)
            serving = self.model.serving(way)
            assert (direction.current.info if direction.current else None) == (serving[0] if serving else None)


@settings(max_examples=300)
@given(st.integers(0, 1 << 32), st.sampled_from((2, 5, 15, 40)), LINKS)
def test_link_equals_a_model_moved_from_event_to_event(seed: int, steps: int, link: dict[str, Any]) -> None:
    Pair(seed, **link).go(steps)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.floats(1.0, 100.0), st.integers(0, 2)), min_size=1, max_size=8))
def test_asked_together_they_end_by_priority_then_in_order_of_arrival(moves: list[tuple[float, int]]) -> None:
    """All at time 0: each ends when everything before it and its own bytes have passed."""
    env = simpy.Environment()
    link = Link(env, 10.0, 10.0)
    ended: dict[int, float] = {}
    for name, (size, priority) in enumerate(moves):
        link.out.submit(size, priority, lambda move: ended.__setitem__(move.info, env.now), name)
    env.run()
    clock = 0.0
    for name in sorted(range(len(moves)), key=lambda name: (moves[name][1], name)):
        clock += moves[name][0] / 10.0
        assert ended[name] == pytest.approx(clock)
    assert link.out.busy_s == pytest.approx(clock)
    assert link.into.busy_s == 0.0


@settings(max_examples=100)
@given(st.integers(0, 1 << 32), st.integers(0, 2), st.floats(1.0, 100.0))
def test_an_estimate_comes_true_when_nobody_else_asks(seed: int, priority: int, size: float) -> None:
    """Without a latency and a cap, `wait_s` is the time a move takes."""
    rng = random.Random(seed)
    env = simpy.Environment()
    link = Link(env, 10.0, 10.0)
    for _ in range(rng.randrange(6)):
        link.out.submit(rng.uniform(1.0, 50.0), rng.randrange(3), lambda move: None)
    env.run(until=rng.uniform(0.001, 8.0))
    started_s, expected_s = env.now, link.out.wait_s(size, priority)
    ended: list[float] = []
    link.out.submit(size, priority, lambda move: ended.append(env.now))
    env.run()
    assert ended[0] - started_s == pytest.approx(expected_s)


def test_both_ways_share_the_cap_only_while_both_are_busy() -> None:
    """50 each way, 83 both (H100 over PCIe 5): 41.5 each while both run."""
    env = simpy.Environment()
    link = Link(env, 50.0, 50.0, 0.0, 83.0)
    ended: dict[str, float] = {}
    link.out.submit(41.5, 2, lambda move: ended.__setitem__("out", env.now))
    link.into.submit(91.5, 0, lambda move: ended.__setitem__("in", env.now))
    env.run()
    assert ended == {"out": pytest.approx(1.0), "in": pytest.approx(2.0)}
