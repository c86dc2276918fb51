"""Small scenarios on inline hardware, tiny workloads, and what the simulator makes of them.

All arithmetic and bandwidth is reached in full (MFU = MBU = 1) and links have no latency, so that the chapter's
figures, which leave both out, must come out of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sim.engine.simulation import simulate
from sim.records import MOVE_COLUMNS, PAUSE_COLUMNS, TIMELINE_COLUMNS, TURN_COLUMNS, RunTotals
from sim.scenario import Scenario, load
from workloads.trajectory import Closed, Stream, Trajectory, Turn

GB, MiB, GiB, TFLOP = 1e9, 2**20, 2**30, 1e12
TOKEN = 327_680

#: The chapter's 70B model.
LLAMA = {"n_params": 70_600_000_000, "n_layers": 80, "n_heads": 64, "n_kv_heads": 8, "head_dim": 128, "d_model": 8192}
#: The same KV bytes a token, but attention costs next to no FLOP: for entries that count the linear term only.
LINEAR = {**LLAMA, "n_heads": 1, "n_kv_heads": 1024, "head_dim": 1}
#: Attention costs neither FLOP nor KV traffic worth mentioning: for entries that count weights and linear layers only.
WEIGHTS = {**LLAMA, "n_layers": 1, "n_heads": 1, "n_kv_heads": 1, "head_dim": 1}


def scenario(model: dict[str, Any] = LLAMA, *, pool: float = 480 * GiB, n_params: float | None = None,
             tflops: float = 7912.0, hbm_TBps: float = 8 * 3.35, link_GBps: float = 50.0, gpus: int = 1,
             gpu: dict[str, Any] | None = None, engine: dict[str, Any] | None = None,
             **fields: Any) -> Scenario:
    """Return a scenario; `tflops` and `hbm_TBps` are totals over `gpus` GPUs, `link_GBps` is one GPU's."""
    inline = {**model, "n_params": int(n_params)} if n_params else model
    given = {
        "model": inline,
        "hardware": {
            "gpu": {"hbm_bytes": 1e15, "hbm_Bps": hbm_TBps * 1e12 / gpus, "peak_flops": {"bf16": tflops * TFLOP / gpus},
                    **(gpu or {})},
            "gpus": gpus,
            "host_link": {"out_Bps": link_GBps * GB, "in_Bps": link_GBps * GB, "latency_s": 0},
        },
        "parallelism": {"tp": gpus},
        "timing": {"roofline": {"mode": "max", "mfu": 1.0, "mbu": 1.0}},
        "engine": {"pool": pool, **(engine or {})},
        "workload": {"agents": {"trace": "in-memory", "format": "kvplan"}},
        **fields,
    }
    if given["engine"]["pool"] is None:
        del given["engine"]["pool"]
    return load(given)


#: A schedule that admits everything at once if there is memory for it, and promises it all its blocks.
WHOLE = {"policy": "chunked", "token_budget": 1 << 30, "max_seqs": 1 << 20, "reserve": "prompt_and_output"}


@dataclass
class Run:
    """A workload of given trajectories, a sink for their records, and the run's totals."""

    roots: list[tuple[float, list[Turn]]]
    closed: Closed | None = None
    records: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: {
        "turns": [], "trajectories": [], "pauses": [], "moves": [], "timeline": []})
    totals: RunTotals = field(default_factory=RunTotals)

    def trajectories(self, seed: int, replication: int) -> Iterator[Trajectory]:
        for number, (at_s, roots) in enumerate(self.roots):
            yield Trajectory(number, at_s, roots, len(roots))

    def turn(self, record: tuple[Any, ...]) -> None:
        self.records["turns"].append(record)

    def trajectory(self, record: tuple[Any, ...]) -> None:
        self.records["trajectories"].append(record)

    def pause(self, record: tuple[Any, ...]) -> None:
        self.records["pauses"].append(record)

    def move(self, record: tuple[Any, ...]) -> None:
        self.records["moves"].append(record)

    def sample(self, record: tuple[Any, ...]) -> None:
        self.records["timeline"].append(record)

    @property
    def turns(self) -> list[dict[str, Any]]:
        """The turns in order of their end."""
        return [dict(zip(TURN_COLUMNS, record, strict=True)) for record in self.records["turns"]]

    @property
    def pauses(self) -> list[dict[str, Any]]:
        return [dict(zip(PAUSE_COLUMNS, record, strict=True)) for record in self.records["pauses"]]

    @property
    def moves(self) -> list[dict[str, Any]]:
        return [dict(zip(MOVE_COLUMNS, record, strict=True)) for record in self.records["moves"]]

    @property
    def samples(self) -> list[dict[str, Any]]:
        return [dict(zip(TIMELINE_COLUMNS, record, strict=True)) for record in self.records["timeline"]]

    @property
    def last(self) -> dict[str, Any]:
        """The ledgers at the end of the run."""
        return self.samples[-1]

    def most_at_once(self) -> int:
        """Return the largest number of turns between first prompt token and last output token at one time."""
        edges = sorted([(turn["end_s"], -1) for turn in self.turns] + [(turn["start_s"], 1) for turn in self.turns])
        alive = most = 0
        for _, step in edges:
            alive += step
            most = max(most, alive)
        return most


def run(on: Scenario, *roots: Turn | list[Turn], at_s: Iterable[float] | None = None) -> Run:
    """Run one trajectory for each of `roots` (arriving at `at_s`, else all at once) to the end."""
    times = list(at_s) if at_s is not None else [0.0] * len(roots)
    out = Run([(when, root if isinstance(root, list) else [root]) for when, root in zip(times, roots, strict=True)])
    out.totals = simulate(on, out, out)
    return out


def fresh(prompt: int, output: int = 1) -> Turn:
    """Return a turn that shares nothing."""
    return Turn(Stream(), prompt, output)


def paused(context: int, wait_s: float, *, more: int = 16, output: int = 1) -> Turn:
    """Return a turn that leaves `context` tokens of KV, waits, and comes back with `more` new tokens."""
    stream = Stream()
    first = Turn(stream, context - output + 1, output, kept_output=output)
    first.then(Turn(stream, context + more, 1, wait_s=wait_s, tool="shell", index=1))
    return first
