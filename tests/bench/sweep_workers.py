"""How much faster is a sweep with two workers than with one? A ratio, to be read on a quiet machine.

Run as ``python tests/bench/sweep_workers.py``. The points take about a second each, so that starting workers (which is
left out: a first small sweep starts them) does not count.
"""

from __future__ import annotations

import os
import time

import sim

SCENARIO = {
    "seed": 7, "duration": "10 min", "warmup": 0, "model": "llama-3.1-8b", "hardware": "dgx-h100",
    "workload": {"agents": "coding-agent", "arrivals": {"closed": {"concurrency": 64}}},
}


def timed(jobs: int, points: int) -> float:
    """Return the wall-clock seconds of a sweep in memory."""
    begun = time.perf_counter()
    sim.sweep(SCENARIO, axes={"grid": {"seed": list(range(points))}}, jobs=jobs)
    return time.perf_counter() - begun


if __name__ == "__main__":
    for jobs in (1, 2):
        timed(jobs, 2)
    one, two = timed(1, 24), timed(2, 24)
    print(f"one worker {one:.1f} s, two {two:.1f} s: {one / two:.2f} x (load average {os.getloadavg()[0]:.1f})")
