"""Several turns at once, and loops that close: M/M/c, Little's law, the interactive response time law."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from workloads.trajectory import Closed, Trajectory

TURNS = 40_000


def erlang_c(servers: int, offered: float) -> float:
    """Return the probability of waiting in M/M/c with `offered` erlangs."""
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)


@pytest.mark.parametrize(("servers", "load"), [(3, 0.7), (8, 0.7)])
def test_a_batch_of_c_is_mmc(lab, servers: int, load: float) -> None:
    rng, offered = random.Random(11), servers * load
    run = lab.serve(lab.poisson(offered, (lab.turn(lab.geometric(rng)) for _ in range(TURNS)), rng),
                    lab.parallel(servers))
    wait_s = run.column("start_s") - run.column("ready_s")
    waits = erlang_c(servers, offered)
    lab.assert_mean(wait_s, waits / (servers - offered), within=0.5, bias=lab.STEP_S)
    lab.assert_mean(wait_s > 1.5 * lab.STEP_S, waits, within=0.25, bias=0.003)


def test_unlimited_batch_is_an_infinite_server(lab) -> None:
    """With room for all, nobody waits longer than a step, and the number in service is Poisson: mean = variance."""
    rng, offered = random.Random(12), 8.0
    run = lab.serve(lab.poisson(offered, (lab.turn(lab.geometric(rng)) for _ in range(TURNS // 2)), rng),
                    lab.parallel(100_000))
    assert max(run.column("start_s") - run.column("ready_s")) <= lab.STEP_S * (1 + 1e-6)
    busy = run.sampled("decoding") + run.sampled("prefilling")
    busy = busy[len(busy) // 10:-len(busy) // 10]
    lab.assert_mean(busy, offered, within=0.2)
    assert busy.var() == pytest.approx(offered, rel=0.35)


def test_littles_law_for_turns_in_the_system(lab) -> None:
    """L = lambda W: the alive integral equals the turns' times to the last digit; samples agree within their noise."""
    rng, load = random.Random(13), 0.7
    run = lab.serve(lab.poisson(4 * load, (lab.turn(lab.geometric(rng)) for _ in range(TURNS // 2)), rng),
                    lab.parallel(4))
    times = run.column("end_s") - run.column("ready_s")
    assert run.cluster.alive_integral_s(run.end_s) == pytest.approx(times.sum(), rel=1e-9)
    served = run.column("end_s") - run.column("start_s")
    lab.assert_mean(run.sampled("prefilling") + run.sampled("decoding"), served.sum() / run.end_s, within=0.1)


def repairmen(machines: int, think: float) -> float:
    """Return the throughput of M/M/1//N: `machines` customers that think for `think` services on average."""
    weight = [math.factorial(machines) / math.factorial(machines - n) * think**-n for n in range(machines + 1)]
    return 1.0 - weight[0] / sum(weight)


def closed_loop(lab, machines: int, waits, closed: Closed, until_s: float):
    rng = random.Random(14)

    def trajectories():
        number = 0
        while True:
            yield Trajectory(number, 0.0, [lab.turn(lab.geometric(rng), wait_s=waits(rng))], 1)
            number += 1

    return lab.serve(trajectories(), lab.ONE_AT_A_TIME, closed, until_s)


@pytest.mark.parametrize("kind", ["constant think time", "exponential tool time"])
def test_machine_repairman(lab, kind: str) -> None:
    """A closed loop of N agents: X = N / (R + Z), and X is that of M/M/1//N whatever the distribution of Z."""
    machines, think, until_s = 10, 12.0, 25_000.0
    if kind == "constant think time":
        run = closed_loop(lab, machines, lambda rng: 0.0, Closed(machines, think_s=think, ramp_s=think), until_s)
    else:
        run = closed_loop(lab, machines, lambda rng: rng.expovariate(1 / think), Closed(machines), until_s)
    ends = sorted(run.column("end_s"))
    throughput = len(ends) / until_s
    response = (run.column("end_s") - run.column("ready_s")).mean()
    waited = think if kind == "constant think time" else run.trajectory_column("wait_s").mean()
    assert throughput == pytest.approx(machines / (response + waited), rel=0.005)
    expected = repairmen(machines, think)
    gaps = [later - earlier for earlier, later in itertools.pairwise(ends)]
    lab.assert_mean(gaps, 1.0 / expected, within=0.05)


def test_interactive_law_for_trajectories_with_tools(lab) -> None:
    """Chains of turns with a tool between: N alive at all times, and turns/s = N / (R + Z) per turn."""
    rng, alive, length, until_s = random.Random(15), 20, 5, 8_000.0

    def trajectories():
        number = 0
        while True:
            first = last = lab.turn(lab.geometric(rng))
            for _ in range(length - 1):
                last = last.then(lab.turn(lab.geometric(rng), wait_s=rng.lognormvariate(0.5, 1.0)))
            yield Trajectory(number, 0.0, [first], length)
            number += 1

    run = lab.serve(trajectories(), lab.parallel(8), Closed(alive), until_s)
    done = run.column("status") == "finished"
    response = (run.column("end_s") - run.column("ready_s"))[done].mean()
    waited = run.trajectory_column("wait_s").sum() / run.trajectory_column("turns").sum()
    assert done.sum() / until_s == pytest.approx(alive / (response + waited), rel=0.005)
    assert run.cluster.alive_integral_s(run.end_s) == pytest.approx(alive * until_s, rel=1e-9)
