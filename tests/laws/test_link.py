"""Does a link carry every byte once, in order of priority and arrival, at its rate, and no faster than its cap?"""

from __future__ import annotations

import random
from typing import Any

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from models import LinkModel

from sim.memory.links import Bus, Link, Move

LINKS = st.fixed_dictionaries({
    "bandwidths": st.lists(st.tuples(st.sampled_from((10.0, 50.0)), st.sampled_from((10.0, 40.0))), min_size=1,
                           max_size=2),
    "latency_s": st.sampled_from((0.0, 0.125, 1.0)), "both": st.sampled_from((None, 12.0, 1000.0)),
    "bus": st.sampled_from((None, 15.0, 60.0)),
})


class Pair:
    """Links and their model under the same moves, asked for, promoted and given up at the same times."""

    def __init__(self, seed: int, bandwidths: list[tuple[float, float]], latency_s: float, both: float | None,
                 bus: float | None) -> None:
        self.rng = random.Random(seed)
        self.env = simpy.Environment()
        shared = Bus(bus) if bus is not None else None
        links = [Link(self.env, out, into, latency_s, both, shared) for out, into in bandwidths]
        self.model = LinkModel(bandwidths, latency_s, both, bus)
        self.ways = {(number, way): direction for number, link in enumerate(links)
                     for way, direction in enumerate((link.out, link.into))}
        self.moves: dict[int, tuple[tuple[int, int], Move]] = {}
        self.ended: dict[int, float] = {}
        self.asked = dict.fromkeys(self.ways, 0.0)
        self.dropped = dict.fromkeys(self.ways, 0.0)
        self.count = 0

    def go(self, steps: int) -> None:
        for _ in range(steps):
            self.env.run(until=self.env.now + self.rng.uniform(0.001, 6.0))
            self.model.run(self.env.now)
            self.check()
            what = self.rng.random()
            if self.moves and what < 0.15:
                self.cancel()
            elif self.moves and what < 0.3:
                self.promote()
            else:
                self.submit()
        self.env.run()
        self.model.run(self.env.now + 1e-9)
        self.check()
        assert not self.moves

    def submit(self) -> None:
        self.count += 1
        way, priority = self.rng.choice(list(self.ways)), self.rng.randrange(3)
        size = self.rng.choice((0.0, 1.0, self.rng.uniform(1.0, 200.0)))
        move = self.ways[way].submit(size, priority, self.done, self.count)
        self.moves[self.count] = (way, move)
        self.asked[way] += size
        self.model.submit(self.count, way, priority, size)

    def cancel(self) -> None:
        name = self.rng.choice(list(self.moves))
        way, move = self.moves.pop(name)
        self.ways[way].cancel(move)
        gone = self.model.find(name)
        self.model.moves.remove(gone)
        self.model.serving(way)
        assert move.bytes_left == pytest.approx(gone.bytes_left, abs=1e-6)
        self.dropped[way] += gone.bytes_left

    def promote(self) -> None:
        name = self.rng.choice(list(self.moves))
        way, move = self.moves[name]
        priority = self.rng.randrange(3)
        self.ways[way].promote(move, priority)
        found = self.model.find(name)
        found.priority = min(found.priority, priority)
        self.model.serving(way)

    def done(self, move: Move) -> None:
        assert not move.cancelled
        assert move.bytes_left == 0.0
        self.ended[move.info] = self.env.now
        del self.moves[move.info]

    def check(self) -> None:
        assert self.ended.keys() == self.model.ended.keys()
        for name, end_s in self.ended.items():
            assert end_s == pytest.approx(self.model.ended[name], abs=1e-6)
        for way, direction in self.ways.items():
            direction.settle()
            assert direction.busy_s == pytest.approx(self.model.busy_s[way], abs=1e-6)
            left = sum(move.bytes_left for at, move in self.moves.values() if at == way)
            assert self.asked[way] == pytest.approx(self.model.moved[way] + left + self.dropped[way], abs=1e-6)
            waiting = left - (direction.current.bytes_left if direction.current else 0.0)
            assert direction.queued_bytes == pytest.approx(waiting, abs=1e-6)
            serving = self.model.serving(way)
            assert (direction.current.info if direction.current else None) == (serving.name if serving else None)


@settings(max_examples=400)
@given(st.integers(0, 1 << 32), st.sampled_from((2, 5, 15, 40)), LINKS)
def test_links_equal_a_model_moved_from_event_to_event(seed: int, steps: int, links: dict[str, Any]) -> None:
    Pair(seed, **links).go(steps)


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
