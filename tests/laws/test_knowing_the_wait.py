"""Is a policy that is told the true wait ever worse off, by its own measure, than with any guess? One pause at a time.

Each policy states what it makes small. Whatever a predictor says of a wait, the decision taken on the truth costs no
more of it: the pause, the queues and the room being the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sim.policies.prediction import Point, Wait
from sim.policies.prediction.learned import LearnedWait
from sim.policies.retention import BreakEven, Decision, MinWaste, Oracle, PauseView, Tiered, TierView, Ttl

Costs = Callable[[PauseView, Decision, float], float]
TIERS = ("dram", "nvme", "remote")
SECONDS = st.floats(0.01, 1e5, allow_nan=False)


@st.composite
def guesses(draw: st.DrawFn) -> Wait:
    """Return what a predictor may say: one length, or a log-normal learned from some waits."""
    if draw(st.booleans()):
        return Point(draw(SECONDS))
    wait = LearnedWait(draw(SECONDS), 1.0)
    for seconds in draw(st.lists(SECONDS, max_size=5)):
        wait.add(seconds)
    return wait


@st.composite
def pauses(draw: st.DrawFn, *, room: bool = False) -> PauseView:
    """Return a pause of some context with some of the tiers; with `room`, all of them take it."""
    held = draw(st.floats(1e6, 5e10))
    tiers = {name: TierView(1e12 if room or draw(st.booleans()) else 0.0, draw(st.floats(1e-3, 50.0)),
                            draw(st.floats(1e-3, 50.0))) for name in TIERS if room or draw(st.booleans())}
    return PauseView("tool", Point(0.0), 1000, held, held, 1000, held, draw(st.floats(0.0, 1e11)),
                     draw(st.floats(1e-3, 100.0)), draw(st.floats(5e10, 1e12)), 0.5, draw(st.integers(0, 50)),
                     draw(st.floats(0.0, 1.0)), tiers)


def no_worse(policy: Any, pause: PauseView, true_s: float, guess: Wait, cost: Costs) -> None:
    paid = {}
    for name, wait in (("told", Point(true_s)), ("guessed", guess)):
        pause.wait = wait
        paid[name] = cost(pause, policy.decide(pause), true_s)
    assert paid["told"] <= paid["guessed"] + 1e-9 * max(1.0, abs(paid["guessed"]))


def priced(mu_hbm: float, mu_dram: float, stall_s: float) -> Costs:
    """Return the break-even rule's measure: priced seconds a byte is held, the stall counting as HBM saved."""
    def cost(pause: PauseView, decision: Decision, true_s: float) -> float:
        if decision.action == "keep":
            return mu_hbm * true_s
        if decision.action == "drop":
            return mu_hbm * (pause.recompute_s + stall_s)
        tier = pause.tiers["dram"]
        return mu_hbm * (tier.out_s + tier.back_s) + mu_dram * true_s + (mu_hbm - mu_dram) * stall_s
    return cost


@given(pauses(), SECONDS, guesses(), st.floats(0.0, 0.9), st.floats(0.0, 10.0))
def test_break_even(pause: PauseView, true_s: float, guess: Wait, mu_dram: float, stall_s: float) -> None:
    policy = BreakEven(mu_dram=mu_dram, stall_allowance=stall_s)
    no_worse(policy, pause, true_s, guess, priced(1.0, mu_dram, stall_s))


@given(pauses(), SECONDS, guesses())
def test_the_oracle_is_break_even_told_the_wait(pause: PauseView, true_s: float, guess: Wait) -> None:
    no_worse(Oracle(), pause, true_s, guess, priced(1.0, 0.05, 0.0))


@given(pauses(), SECONDS, guesses())
def test_break_even_at_estimated_prices(pause: PauseView, true_s: float, guess: Wait) -> None:
    price = pause.blocked_share
    if 0.0 < price <= 0.05:  # DRAM is the dearer one: nothing is gained by moving a context there
        pause.wait = guess
        assert pause.room_in("dram") is False or BreakEven(prices="estimated").decide(pause).action != "offload"
    no_worse(BreakEven(prices="estimated"), pause, true_s, guess, priced(price, 0.05, 0.0))


@given(pauses(), SECONDS, guesses())
def test_min_waste(pause: PauseView, true_s: float, guess: Wait) -> None:
    def waste_byte_s(pause: PauseView, decision: Decision, true_s: float) -> float:
        if decision.action == "keep":
            return true_s * pause.private_bytes
        if decision.action == "drop":
            return pause.recompute_s * (pause.private_bytes + pause.batch_bytes)
        return (pause.tiers["dram"].out_s + pause.tiers["dram"].back_s) * pause.private_bytes
    no_worse(MinWaste(), pause, true_s, guess, waste_byte_s)


@given(pauses(), SECONDS, guesses())
def test_ttl(pause: PauseView, true_s: float, guess: Wait) -> None:
    """What a pin saves if the trajectory returns within it, less the turns that waited for its share of the pool."""
    policy = Ttl()

    def loss_s(pause: PauseView, decision: Decision, true_s: float) -> float:
        ttl_s = decision.ttl_s if decision.action == "keep" else 0.0
        price = max(float(pause.waiting), policy.idle_price) * pause.private_bytes / pause.pool_bytes
        return price * min(true_s, ttl_s) - (pause.back_s() if true_s <= ttl_s else 0.0)
    no_worse(policy, pause, true_s, guess, loss_s)


@given(pauses(room=True), SECONDS, guesses(), st.lists(st.floats(0.1, 1e4), min_size=4, max_size=4))
def test_tiered(pause: PauseView, true_s: float, guess: Wait, limits: list[float]) -> None:
    """Its thresholds are where the costs of neighbouring places cross, each place being cheaper by the second."""
    hbm, dram, nvme, remote = sorted(limits)
    policy = Tiered(hbm_below=hbm, dram_below=dram, nvme_below=nvme, remote_below=remote)
    by_second = {"keep": 1.0, "dram": 0.3, "nvme": 0.1, "remote": 0.03, "drop": 0.0}

    def cost(pause: PauseView, decision: Decision, true_s: float) -> float:
        place = decision.tier if decision.action == "offload" else decision.action
        entry, price = 0.0, 1.0
        for below, limit in zip(("dram", "nvme", "remote", "drop"), (hbm, dram, nvme, remote), strict=True):
            if place == "keep" or price == by_second[place]:
                break
            entry += (price - by_second[below]) * limit
            price = by_second[below]
        return entry + price * true_s
    no_worse(policy, pause, true_s, guess, cost)


def test_the_law_can_be_broken() -> None:
    """A policy that is led by the wrong wait pays more: the law is not empty."""
    pause = PauseView("tool", Point(0.0), 1, 1e9, 1e9, 1, 1e9, 0.0, 10.0, 1e11, 0.5, 0, 0.5,
                      {"dram": TierView(1e12, 1.0, 1.0)})
    cost, policy = priced(1.0, 0.05, 0.0), BreakEven()
    paid = []
    for guess in (100.0, 0.5):
        pause.wait = Point(guess)
        paid.append(cost(pause, policy.decide(pause), 100.0))
    assert paid[0] < paid[1]
    assert math.isfinite(paid[1])
