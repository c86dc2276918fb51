"""The agentic benchmark: what a simulated turn costs, with every mechanism on.

Sessions of 20 turns arrive at random, share a system prompt and one of 20 repositories, pause for tools with log-normal
waits, and meet on one 8 x H100 replica serving a 70B model: prefix cache with leaf LRU and watermarks, chunked prefill,
DRAM tier over PCIe, records into Parquet-ready tables. Time is CPU time of this process, and the unit is one SimPy
timeout (a process that yields `env.timeout`), measured in the same process right before and after, so that figures from
different machines can be compared.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import simpy

import workloads
from sim.engine.simulation import simulate
from sim.metrics.collect import Tables
from sim.scenario import load

TURNS = 20
#: This interpreter, whose kvplan is the checkout, and that of `make fast`, whose kvplan is compiled.
PLAIN, COMPILED = Path(sys.executable), Path(__file__).parents[2] / ".venv-fast" / "bin" / "python"

SCENARIO = """
name: agentic-bench
seed: 1
duration: 10 d
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

    `timeout_s` is the CPU time of one SimPy timeout, measured around the run; `grown_bytes` what the process's largest
    resident size grew by, which is the run's own only in a process that has run nothing larger before.
    """

    turns: int
    cpu_s: float
    timeout_s: float
    peak_bytes: int
    grown_bytes: int

    @property
    def turns_per_s(self) -> float:
        return self.turns / self.cpu_s

    @property
    def timeouts_per_turn(self) -> float:
        return self.cpu_s / self.turns / self.timeout_s

    @property
    def bytes_per_turn(self) -> float:
        return self.grown_bytes / self.turns


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


def measure(sessions: int, overrides: Sequence[str] = ()) -> Cost:
    """Simulate so many sessions of 20 turns and return what that cost."""
    import pandas  # noqa: F401  (pyarrow imports it at its first conversion, which is not the simulator's time)

    scenario = load(SCENARIO, list(overrides))
    workload = Limited(workloads.build(scenario.workload, Path()), sessions)
    tables = Tables()
    tables.begin(0)
    unit = timeout_s()
    resident = peak_bytes()
    begin = time.process_time()
    simulate(scenario, workload, tables)
    cpu_s = time.process_time() - begin
    unit = (unit + timeout_s()) / 2
    tables.close()
    turns = sum(1 for status in tables.column("turns", "status") if status == "finished")
    return Cost(turns, cpu_s, unit, peak_bytes(), peak_bytes() - resident)


def peak_bytes() -> int:
    """Return the largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_own_process(sessions: int, overrides: Sequence[str] = (), python: Path = PLAIN) -> Cost:
    """Measure in a process of its own, so that memory is this run's alone, with the kvplan of that interpreter."""
    made = subprocess.run([python, "-P", __file__, "--one", str(sessions), *overrides], check=True,
                          stdout=subprocess.PIPE, text=True)
    return Cost(**json.loads(made.stdout))


FULL = "retention={policy: tiered, predictor: learned, prefetch: true}"


def alive(agents: int) -> str:
    """Return the override that keeps so many agents alive instead of letting them arrive at random."""
    return f"workload.arrivals={{closed: {{concurrency: {agents}}}}}"


#: A session's own prompt of some 30,000 tokens instead of 1,000.
LONG = ("workload.agents.prompt=[{name: system, tokens: 6000, shared: all}, "
        "{name: task, tokens: {lognormal: {median: 30000, p90: 60000, max: 100000}}, shared: trajectory}]")

#: What is measured: label, sessions, overrides.
ROWS: list[tuple[str, int, list[str]]] = [
    ("0.08 sessions/s, release", 1000, []),
    *((f"0.08 sessions/s, {policy}", 1000, [f"retention={policy}"])
      for policy in ("keep", "drop", "offload", "break_even", "min_waste", "ttl")),
    ("0.08 sessions/s, tiered + learned + prefetch", 1000, [FULL]),
    ("16 agents, release", 1000, [alive(16)]),
    ("64 agents, release", 1000, [alive(64)]),
    ("256 agents, release", 1000, [alive(256)]),
    ("64 agents, tiered + learned + prefetch", 1000, [alive(64), FULL]),
    ("64 agents, task of 30k tokens, release", 1000, [alive(64), LONG]),
    ("64 agents, task of 30k tokens, offload", 1000, [alive(64), LONG, "retention=offload"]),
]
#: One replica with 156 agents, and 64 of them with 10,000.
SCALE: list[tuple[str, int, list[str]]] = [
    ("1 replica, 156 agents", 500, [alive(156)]),
    ("64 replicas, 10,000 agents", 30_000, [alive(10_000), "nodes=64", "routing=sticky"]),
]
MILLION: list[tuple[str, int, list[str]]] = [("1,000,000 turns, 0.08 sessions/s, release", 50_000, [])]


def table(rows: Sequence[tuple[str, int, list[str]]]) -> None:
    """Print what each row costs, as it is and compiled."""
    print(f"{'':<46} {'turns':>9} {'turns/s':>8} {'timeouts/turn':>14} {'compiled':>9} {'bytes/turn':>11} "
          f"{'peak MiB':>9}")
    for label, sessions, overrides in rows:
        plain, fast = (in_own_process(sessions, overrides, python) for python in (PLAIN, COMPILED))
        print(f"{label:<46} {plain.turns:>9,} {plain.turns_per_s:>8,.0f} {plain.timeouts_per_turn:>14.1f} "
              f"{fast.timeouts_per_turn:>9.1f} {plain.bytes_per_turn:>11,.0f} {plain.peak_bytes / 2**20:>9,.0f}",
              flush=True)


def main() -> None:
    """Print the table; ``--scale`` adds many replicas, ``--million`` a long run; ``--one N`` gives one row as JSON."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(asdict(measure(int(sys.argv[2]), sys.argv[3:]))))
        return
    table([*ROWS, *(SCALE if "--scale" in sys.argv else ()), *(MILLION if "--million" in sys.argv else ())])


if __name__ == "__main__":
    main()
