"""How much faster is a sweep with two workers than with one? A ratio, to be read on a quiet machine.

Run as ``python tests/bench/sweep_workers.py``; two minutes on two cores. Points take a second or two each, so that
handing them over does not count; BLAS, OpenMP and Arrow are held to one thread, so that one worker is one core; workers
have been started and have run a point before the clock starts. One worker and two take turns, so that a machine that
gets busier or warmer over the minutes hurts both alike, and the ratio is that of the quickest round of each. Beside it
stands what two processes that do nothing but count reach: no sweep scales better than the machine does.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
os.environ.update(dict.fromkeys(ONE_THREAD, "1"))  # before NumPy and Arrow; workers inherit them

import sim  # noqa: E402

ROUNDS, POINTS, POINT_S = 3, 12, 1.5
SCENARIO: dict[str, Any] = {
    "seed": 7, "duration": 1_200, "warmup": 0, "model": "llama-3.1-8b", "hardware": "dgx-h100",
    "workload": {"agents": "coding-agent", "arrivals": {"closed": {"concurrency": 64}}},
}


def swept(scenario: dict[str, Any], jobs: int, points: int) -> float:
    """Return the seconds a sweep in memory takes."""
    begun = time.perf_counter()
    assert not sim.sweep(scenario, axes={"grid": {"seed": list(range(points))}}, jobs=jobs).failed
    return time.perf_counter() - begun


def count_up(_task: int) -> int:
    """Keep a core busy for about a third of a second."""
    return sum(range(20_000_000))


def counted(jobs: int, tasks: int) -> float:
    """Return the seconds that `tasks` counts take over so many processes."""
    from sim.sweep.pool import each

    begun = time.perf_counter()
    list(each(count_up, range(tasks), jobs))
    return time.perf_counter() - begun


def main() -> None:
    """Measure, and print every round."""
    swept(SCENARIO, 1, 1)  # imports
    scenario = SCENARIO | {"duration": SCENARIO["duration"] * max(1.0, POINT_S / (swept(SCENARIO, 1, 3) / 3))}
    swept(SCENARIO, 2, 8)  # starts the workers, each of which runs a point
    took: dict[int, list[float]] = {1: [], 2: []}
    plain: dict[int, list[float]] = {1: [], 2: []}
    for number in range(ROUNDS):
        for jobs, measured in took.items():
            measured.append(swept(scenario, jobs, POINTS))
            plain[jobs].append(counted(jobs, 12))
            print(f"round {number + 1}, jobs={jobs}: {measured[-1]:.1f} s; counting {plain[jobs][-1]:.2f} s",
                  file=sys.stderr)
    one, two = min(took[1]), min(took[2])
    print(f"one worker {one:.1f} s, two {two:.1f} s: {one / two:.2f} x; counting {min(plain[1]) / min(plain[2]):.2f} x "
          f"(load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores)")


if __name__ == "__main__":
    main()
