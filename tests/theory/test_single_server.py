"""One turn at a time: M/M/1, M/D/1, M/G/1 and its priorities, against Pollaczek-Khinchine and Cobham.

Time is counted in mean service times.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from workloads.trajectory import Trajectory

TURNS = 40_000


def waiting(rate: float, second_moment: float, load: float) -> float:
    """Return the mean wait in an M/G/1 queue (Pollaczek-Khinchine): ``lambda E[S^2] / (2 (1 - rho))``."""
    return rate * second_moment / (2.0 * (1.0 - load))


def mixed(rng: random.Random) -> int:
    """Nine short turns and a long one: mean 1 service time, second moment 0.9 * 0.5^2 + 0.1 * 5.5^2."""
    return 500 if rng.random() < 0.9 else 5500


@pytest.mark.parametrize(("name", "draw", "second_moment", "load"), [
    ("M/M/1", None, 2.0, 0.6),
    ("M/D/1", lambda rng: 1000, 1.0, 0.8),
    ("M/G/1", mixed, 0.9 * 0.5**2 + 0.1 * 5.5**2, 0.5),
])
def test_mean_wait_is_pollaczek_khinchines(lab, name: str, draw: Callable[[random.Random], int] | None,
                                           second_moment: float, load: float) -> None:
    rng = random.Random(1)
    draw = draw or lab.geometric
    run = lab.serve(lab.poisson(load, (lab.turn(draw(rng)) for _ in range(TURNS)), rng), lab.ONE_AT_A_TIME)
    wait_s = run.column("start_s") - run.column("ready_s")
    lab.assert_mean(wait_s, waiting(load, second_moment, load), within=0.15)


def test_mm1_time_in_system_is_exponential(lab) -> None:
    """In M/M/1 the time in the system has rate mu - lambda: its tail is known, not only its mean."""
    rng, load = random.Random(2), 0.5
    run = lab.serve(lab.poisson(load, (lab.turn(lab.geometric(rng)) for _ in range(TURNS)), rng), lab.ONE_AT_A_TIME)
    time_s = run.column("end_s") - run.column("ready_s")
    lab.assert_mean(time_s, 1.0 / (1.0 - load), within=0.1)
    for share in (0.5, 0.1, 0.02):
        longer_than_s = -np.log(share) / (1.0 - load)
        lab.assert_mean(time_s > longer_than_s, share, within=0.5)


def test_a_turn_alone_is_served_for_exactly_its_tokens(lab) -> None:
    rng = random.Random(3)
    run = lab.serve(lab.poisson(0.3, (lab.turn(mixed(rng)) for _ in range(500)), rng), lab.ONE_AT_A_TIME)
    service_s = run.column("end_s") - run.column("start_s")
    assert service_s == pytest.approx(run.column("output_tokens") * lab.STEP_S)


def cobham(rates: tuple[float, float], means: tuple[float, float], moments: tuple[float, float]) -> tuple[float, float]:
    """Return the mean waits of two classes, the first ahead of the second, without preemption (Cobham)."""
    residual = sum(rate * moment for rate, moment in zip(rates, moments, strict=True)) / 2.0
    first = rates[0] * means[0]
    both = first + rates[1] * means[1]
    return residual / (1.0 - first), residual / ((1.0 - first) * (1.0 - both))


def test_shortest_first_is_a_priority_queue(lab) -> None:
    """Two prompt lengths under `shortest_first` are two classes of M/G/1, served without preemption."""
    rng = random.Random(4)
    rates, means = (0.5, 0.2), (0.6, 2.0)

    def turns():
        for _ in range(TURNS):
            long = rng.random() < rates[1] / sum(rates)
            tokens = 2000 if long else lab.geometric(rng, 600)
            yield lab.turn(tokens, prompt_tokens=2 if long else 1)

    schedule = lab.ONE_AT_A_TIME.model_copy(update={"order": "shortest_first"})
    run = lab.serve(lab.poisson(sum(rates), turns(), rng), schedule)
    wait_s, long = run.column("start_s") - run.column("ready_s"), run.column("prompt_tokens") == 2
    short_s, long_s = cobham(rates, means, (2 * 0.6**2, 2.0**2))
    lab.assert_mean(wait_s[~long], short_s, within=0.1)
    lab.assert_mean(wait_s[long], long_s, within=0.2)


def test_program_fcfs_puts_older_trajectories_first(lab) -> None:
    """Turns of trajectories that began at time 0 are ahead of all others, whenever they come back."""
    rng = random.Random(5)
    rates, count = (0.3, 0.4), 15_000
    old = []
    now_s = 0.0
    for number in range(count // 100):
        roots = []
        for _ in range(100):
            now_s += rng.expovariate(rates[0])
            roots.append(lab.turn(lab.geometric(rng), wait_s=now_s))
        old.append(Trajectory(number, 0.0, roots, len(roots)))
    young = []
    at_s = 0.0
    while at_s < now_s:
        at_s += rng.expovariate(rates[1])
        young.append(Trajectory(len(old) + len(young), at_s, [lab.turn(lab.geometric(rng))], 1))

    schedule = lab.ONE_AT_A_TIME.model_copy(update={"order": "program_fcfs"})
    run = lab.serve([*old, *young], schedule)
    wait_s, is_old = run.column("start_s") - run.column("ready_s"), run.column("trajectory") < len(old)
    old_s, young_s = cobham(rates, (1.0, 1.0), (2.0, 2.0))
    lab.assert_mean(wait_s[is_old], old_s, within=0.15)
    lab.assert_mean(wait_s[~is_old], young_s, within=0.25)
