"""A link is a server too: M/D/1 within a priority, and preemptive-resume priorities between them."""

from __future__ import annotations

import random

import numpy as np
import pytest
import simpy

from sim.memory.links import OFFLOAD, PREFETCH, RELOAD, Link

MOVES = 60_000
GB = 1e9


def drive(jobs: list[tuple[float, float, int]], **link: float) -> np.ndarray:
    """Submit moves (time, bytes, priority) in one direction; return their times from asking to end, in that order."""
    env = simpy.Environment()
    into = Link(env, GB, GB, **link).into
    times = np.zeros(len(jobs))

    def done(move) -> None:
        times[move.info] = env.now - move.asked_s

    def feed():
        for index, (at_s, size, priority) in enumerate(jobs):
            yield env.timeout(max(0.0, at_s - env.now))
            into.submit(size, priority, done, index)

    env.process(feed())
    env.run()
    busy_s = sum(size for _, size, _ in jobs) / GB + len(jobs) * link.get("latency_s", 0.0)
    into.settle()
    assert into.busy_s == pytest.approx(busy_s, rel=1e-9)  # nothing is lost or copied twice by preemption
    return times


def arrivals(rng: random.Random, rate: float, horizon_s: float, size, priority: int) -> list[tuple[float, float, int]]:
    out, now_s = [], rng.expovariate(rate)
    while now_s < horizon_s:
        out.append((now_s, size(rng), priority))
        now_s += rng.expovariate(rate)
    return out


@pytest.mark.parametrize("latency_s", [0.0, 0.4])
def test_moves_of_one_size_are_md1(lab, latency_s: float) -> None:
    """The service time is latency + bytes / bandwidth, the wait is rho S / (2 (1 - rho))."""
    rng, load = random.Random(21), 0.8
    size = (1.0 - latency_s) * GB
    times = drive(arrivals(rng, load, MOVES / load, lambda _: size, RELOAD), latency_s=latency_s)
    assert times.min() == pytest.approx(1.0)
    lab.assert_mean(times - 1.0, load / (2 * (1 - load)), within=0.15)


def test_reloads_preempt_prefetches_preempt_offloads(lab) -> None:
    """M/G/1 with three preemptive-resume classes.

    ``T_k = E[S_k] / (1 - s_{k-1}) + sum_{i<=k} lambda_i E[S_i^2] / 2 / ((1 - s_{k-1}) (1 - s_k))`` with s the load of
    the classes up to k.
    """
    rng, horizon_s = random.Random(22), 60_000.0
    classes = {  # rate, size, mean, second moment, in seconds at 1 GB/s
        RELOAD: (0.3, lambda r: r.expovariate(1.0) * GB, 1.0, 2.0),
        PREFETCH: (0.5, lambda r: 0.4 * GB, 0.4, 0.16),
        OFFLOAD: (0.2, lambda r: (0.5 if r.random() < 0.8 else 3.0) * GB, 1.0, 0.8 * 0.25 + 0.2 * 9.0),
    }
    jobs = sorted(job for priority, (rate, size, _, _) in classes.items()
                  for job in arrivals(rng, rate, horizon_s, size, priority))
    times = drive(jobs)
    priorities = np.array([priority for _, _, priority in jobs])
    above = residual = 0.0
    for priority, (rate, _, mean, moment) in sorted(classes.items()):
        residual += rate * moment / 2.0
        upto = above + rate * mean
        expected = mean / (1.0 - above) + residual / ((1.0 - above) * (1.0 - upto))
        lab.assert_mean(times[priorities == priority], expected, within=0.15)
        above = upto


def test_the_cap_on_both_ways_slows_each_in_proportion() -> None:
    env = simpy.Environment()
    link = Link(env, 50 * GB, 50 * GB, both_Bps=80 * GB)
    ends = {}
    link.out.submit(40 * GB, OFFLOAD, lambda move: ends.setdefault("out", env.now))
    link.into.submit(60 * GB, RELOAD, lambda move: ends.setdefault("in", env.now))
    env.run()
    assert ends == {"out": pytest.approx(1.0), "in": pytest.approx(1.4)}
