"""Are step times and token gaps counted alike however windows are joined and rows folded on the way?"""

from __future__ import annotations

import random

import pytest

import sim.engine.latencies
from sim.engine.latencies import Latencies
from sim.timing.base import Line


def filled(seed: int, windows: int, halvings: set[int]) -> Latencies:
    """Latencies of a run with so many windows, of which neighbours are joined after some."""
    rng, latencies = random.Random(seed), Latencies()
    for window in range(windows):
        for _ in range(rng.randint(0, 5)):
            latencies.stretch((Line(0.02, 1e-7),), rng.randint(0, 100_000), rng.randint(1, 9), rng.randint(1, 500))
            latencies.prompts(rng.uniform(0.1, 2.0), rng.randint(0, 9), decoding=True)
        latencies.close_window(float(window + 1))
        if window in halvings:
            latencies.halve()
    return latencies


@pytest.mark.parametrize("most_rows", [0, 7, 1 << 15])
@pytest.mark.parametrize("windows", [8, 9, 13])
def test_joining_windows_loses_nothing(windows: int, most_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim.engine.latencies, "_MOST_ROWS", most_rows)
    whole = filled(3, windows, set())
    joined = filled(3, windows, {4, 6, windows - 1})
    for apart, together in ((whole.token_gaps(), joined.token_gaps()), (whole.step_times(), joined.step_times())):
        ends = [end for end, _ in together]
        assert ends[-1] == windows
        assert len(ends) < len(apart)
        begin = 0.0
        for end, buckets in together:
            inside = [one for at, one in apart if begin < at <= end]
            assert buckets.keys() == set().union(*inside)
            for bucket, (weight, seconds) in buckets.items():
                assert weight == sum(one.get(bucket, (0.0, 0.0))[0] for one in inside)
                assert seconds == pytest.approx(sum(one.get(bucket, (0.0, 0.0))[1] for one in inside))
            begin = end
