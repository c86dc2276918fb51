"""How fast is it? Costs are in SimPy timeouts measured in the same process, so that a number means the same anywhere.

Not part of `make test`; `make bench` runs it and prints the table. Run it on a machine that does nothing else: other
processes slow a large working set down more than they slow the small loop that the unit is measured with.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from agentic import Cost, main, measure

#: SimPy timeouts a turn of the agentic benchmark cost when this was last measured; 20 % more is a regression.
STORED_TIMEOUTS = 92.0
#: What a turn should cost.
GOAL_TIMEOUTS = 50.0


def best(sessions: int, runs: int = 3) -> Cost:
    """Return the cheapest of some runs: the one that was disturbed least."""
    return min((measure(sessions) for _ in range(runs)), key=lambda cost: cost.timeouts_per_turn)


def test_a_turn_costs_no_more_than_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    cost = best(1000)
    with capsys.disabled():
        print(f"\n{cost.turns_per_s:,.0f} turns/s, {cost.timeouts_per_turn:.1f} timeouts a turn "
              f"(one timeout {cost.timeout_s * 1e6:.2f} us; the goal is {GOAL_TIMEOUTS:.0f})")
    assert cost.timeouts_per_turn <= 1.2 * STORED_TIMEOUTS


def test_cost_grows_linearly_with_turns(capsys: pytest.CaptureFixture[str]) -> None:
    small, large = best(500, 2), best(5000, 1)
    exponent = math.log(large.cpu_s / large.timeout_s / (small.cpu_s / small.timeout_s)) / math.log(
        large.turns / small.turns)
    with capsys.disabled():
        print(f"\n{small.turns} to {large.turns} turns: time grows with exponent {exponent:.3f}")
    assert exponent <= 1.05


@pytest.mark.study
def test_a_million_turns_stay_under_a_gibibyte(capsys: pytest.CaptureFixture[str]) -> None:
    cost = measure(50_000)
    with capsys.disabled():
        print(f"\n{cost.turns:,} turns in {cost.cpu_s:.0f} s CPU, peak {cost.peak_bytes / 2**20:.0f} MiB")
    assert cost.turns == 1_000_000
    assert cost.peak_bytes < 2**30


def test_table_of_policies(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print()
        main()
