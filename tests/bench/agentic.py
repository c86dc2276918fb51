"""The agentic benchmark: what a simulated turn costs, with every mechanism on.

Sessions of 20 turns arrive at random, share a system prompt and one of 20 repositories, pause for tools with log-normal
waits, and meet on one 8 x H100 replica serving a 70B model: prefix cache with leaf LRU and watermarks, chunked prefill,
DRAM tier over PCIe, records into Parquet-ready tables. Time is CPU time of this process, and the unit is one SimPy
timeout (a process that yields `env.timeout`), measured in the same process right before and after, so that figures from
different machines can be compared.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import simpy

import workloads
from sim.engine.simulation import simulate
from sim.metrics.collect import Tables
from sim.scenario import load

TURNS = 20

SCENARIO = """
name: agentic-bench
seed: 1
duration: 1000 d
model: llama-3.1-70b
hardware: dgx-h100
parallelism: {tp: 8}
engine:
  prefix_cache: {low_watermark: 0.02, high_watermark: 0.04}
tiers: {dram: {capacity: 1 TiB}}
retention: release
workload:
  agents:
    prompt:
      - {name: system, tokens: 6000, shared: all}
      - {name: repository, tokens: 4000, shared: group, groups: {count: 20, zipf: 1.0}}
      - {name: task, tokens: {lognormal: {median: 1000, p90: 3000}}, shared: trajectory}
    turns: 20
    output: {lognormal: {median: 200, p90: 500, max: 2000}}
    tools:
      shell: {weight: 3, wait: {lognormal: {median: 4 s, p90: 40 s, max: 600 s}},
              observation: {lognormal: {median: 600, p90: 3000, max: 8000}}}
      edit: {weight: 2, wait: {lognormal: {median: 0.5 s, p90: 3 s, max: 60 s}}, observation: 150}
  arrivals: {poisson: {rate: 0.08/s}}
"""


@dataclass(frozen=True)
class Cost:
    """What one run cost.

    `timeout_s` is the CPU time of one SimPy timeout, measured around the run; `bytes_per_turn` the growth of the
    process's largest resident size over the run, which is only an upper bound once earlier runs have grown it.
    """

    turns: int
    cpu_s: float
    timeout_s: float
    peak_bytes: int

    @property
    def turns_per_s(self) -> float:
        return self.turns / self.cpu_s

    @property
    def timeouts_per_turn(self) -> float:
        return self.cpu_s / self.turns / self.timeout_s


class Limited:
    """The first so many trajectories of a workload."""

    def __init__(self, workload: Any, sessions: int) -> None:
        self._workload = workload
        self._sessions = sessions
        self.closed = workload.closed

    def trajectories(self, seed: int, replication: int) -> Any:
        for trajectory in self._workload.trajectories(seed, replication):
            if trajectory.number >= self._sessions:
                return
            yield trajectory


def timeout_s(count: int = 100_000) -> float:
    """Return the CPU seconds of one timeout in a SimPy process."""
    env = simpy.Environment()

    def wait() -> Any:
        for _ in range(count):
            yield env.timeout(1.0)

    env.process(wait())
    begin = time.process_time()
    env.run()
    return (time.process_time() - begin) / count


def measure(sessions: int, overrides: list[str] | None = None) -> Cost:
    """Simulate so many sessions of 20 turns and return what that cost."""
    scenario = load(SCENARIO, overrides or [])
    workload = Limited(workloads.build(scenario.workload, Path()), sessions)
    tables = Tables()
    tables.begin(0)
    before = timeout_s()
    begin = time.process_time()
    simulate(scenario, workload, tables)
    cpu_s = time.process_time() - begin
    after = timeout_s()
    tables.close()
    turns = sum(1 for status in tables.column("turns", "status") if status == "finished")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Cost(turns, cpu_s, (before + after) / 2, peak)


def main() -> None:
    """Print the cost of runs of growing size and under each policy."""
    print(f"{'sessions':>9} {'policy':>22} {'turns':>9} {'turns/s':>9} {'timeouts/turn':>14} {'peak MiB':>9}")
    full = ["retention={policy: tiered, predictor: learned, prefetch: true}"]
    rows = [(500, []), (5000, [])] + [(1000, [f"retention={name}"]) for name in (
        "keep", "release", "drop", "offload", "break_even", "min_waste", "ttl")] + [(1000, full)]
    if "--million" in sys.argv:
        rows.append((50_000, []))
    for sessions, overrides in rows:
        cost = measure(sessions, overrides)
        policy = overrides[0].split("=", 1)[1] if overrides else "release"
        policy = "tiered, learned, prefetch" if policy.startswith("{") else policy
        print(f"{sessions:>9} {policy:>22} {cost.turns:>9} {cost.turns_per_s:>9.0f} {cost.timeouts_per_turn:>14.1f} "
              f"{cost.peak_bytes / 2**20:>9.0f}", flush=True)


if __name__ == "__main__":
    main()
