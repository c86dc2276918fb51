"""Chunking bounds the worst inter-token latency; a monolithic prefill stalls every stream for its whole length.

Streams of chat-like turns decode while long prompts arrive; step times are a roofline's, whose ceiling for a step of
`token_budget` tokens is the bound (Sarathi-Serve, OSDI 2024).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from sim.engine.simulation import simulate
from sim.records import TIMELINE_COLUMNS, TURN_COLUMNS, RunTotals
from sim.scenario import load
from workloads.trajectory import Stream, Trajectory, Turn

PARAMS, FLOPS, HBM_BPS = 70e9, 480e12, 3.0e12
BASE_S = 2 * PARAMS / HBM_BPS
LONG = 8192
STREAMS = 24


class Load:
    """`STREAMS` long decodes, staggered, and prompts of `LONG` tokens that arrive among them."""

    closed = None

    def __init__(self) -> None:
        self.turns: list[dict[str, Any]] = []
        self.samples: list[tuple[Any, ...]] = []

    def trajectories(self, seed: int, replication: int) -> Iterator[Trajectory]:
        rng = random.Random(seed)
        streams = [(0.3 * i, 32, 900) for i in range(STREAMS)]
        prompts = [(10.0 + 4.0 * i + rng.uniform(0.0, 0.5), LONG, 5) for i in range(8)]
        for number, (at_s, prompt, output) in enumerate(sorted(streams + prompts)):
            yield Trajectory(number, at_s, [Turn(Stream(), prompt, output)], 1)

    def turn(self, record: tuple[Any, ...]) -> None:
        self.turns.append(dict(zip(TURN_COLUMNS, record, strict=True)))

    def sample(self, record: tuple[Any, ...]) -> None:
        self.samples.append(record)

    def ledger(self) -> dict[str, Any]:
        return dict(zip(TIMELINE_COLUMNS, self.samples[-1], strict=True))

    def ignore(self, record: tuple[Any, ...]) -> None: ...

    trajectory = pause = move = ignore


def serve(schedule: dict[str, Any], *, pool: float = 1e9,
          workload: Load | None = None) -> tuple[RunTotals, list[dict[str, Any]]]:
    workload = workload or Load()
    scenario = load({
        "model": {"n_params": int(PARAMS), "n_layers": 1, "n_heads": 1, "n_kv_heads": 1, "head_dim": 1},
        "hardware": {"gpu": {"hbm_bytes": 1e15, "hbm_Bps": HBM_BPS, "peak_flops": {"bf16": FLOPS}}, "gpus": 1,
                     "host_link": {"out_Bps": 1e9, "in_Bps": 1e9}},
        "timing": {"roofline": {"mode": "max", "mfu": 1.0, "mbu": 1.0}},
        "engine": {"pool": pool, "schedule": schedule},
        "workload": {"agents": {"trace": "in-memory", "format": "kvplan"}},
    })
    return simulate(scenario, workload, workload), workload.turns


def gaps(totals: RunTotals) -> list[tuple[float, float]]:
    """Return the gaps between tokens as (mean of a bucket in seconds, count), shortest first."""
    return sorted((seconds / count, count) for _, window in totals.itl_windows for count, seconds in window.values())


def step_ceiling(tokens: int) -> float:
    return max(BASE_S, 2 * PARAMS * tokens / FLOPS)


@pytest.mark.parametrize("budget", [256, 512, 1024, 2048])
def test_chunking_bounds_every_gap_by_a_step_of_the_budget(budget: int) -> None:
    totals, turns = serve({"policy": "chunked", "token_budget": budget})
    worst_s, _ = gaps(totals)[-1]
    assert worst_s == pytest.approx(step_ceiling(budget), rel=1e-3)
    assert {turn["status"] for turn in turns} == {"finished"}


def test_monolithic_prefill_stalls_every_stream_for_the_whole_prompt() -> None:
    totals, turns = serve({"policy": "monolithic"})
    stall_s = step_ceiling(LONG)
    long_gaps = [(seconds, count) for seconds, count in gaps(totals) if seconds > stall_s]
    prompts = [turn for turn in turns if turn["prompt_tokens"] == LONG]
    stalled = sum(sum(turn["first_token_s"] <= prompt["start_s"] and turn["end_s"] > prompt["first_token_s"]
                      for turn in turns) for prompt in prompts)
    assert sum(count for _, count in long_gaps) == stalled
    assert all(seconds == pytest.approx(stall_s + BASE_S, rel=1e-3) for seconds, _ in long_gaps)


def test_smaller_chunks_trade_time_to_first_token_for_smooth_streams() -> None:
    worst, first = [], []
    for schedule in ({"policy": "chunked", "token_budget": 256}, {"policy": "chunked", "token_budget": 1024},
                     {"policy": "monolithic"}):
        totals, turns = serve(schedule)
        worst.append(gaps(totals)[-1][0])
        prompts = [turn for turn in turns if turn["prompt_tokens"] == LONG]
        first.append(sum(turn["first_token_s"] - turn["ready_s"] for turn in prompts) / len(prompts))
    assert worst == sorted(worst)
    assert worst[2] > 8 * worst[1]
    assert first == sorted(first, reverse=True)


@pytest.mark.parametrize("schedule", [{"policy": "chunked", "token_budget": 512}, {"policy": "monolithic"},
                                      {"policy": "unbatched"}], ids=lambda schedule: schedule["policy"])
def test_gaps_add_up_to_the_streams(schedule: dict[str, Any]) -> None:
    """Every output token but the first ends one gap, and a turn's gaps last from its first token to its last."""
    totals, turns = serve(schedule)
    cells = gaps(totals)
    assert sum(count for _, count in cells) == sum(turn["output_tokens"] - 1 for turn in turns)
    assert sum(seconds * count for seconds, count in cells) == pytest.approx(
        sum(turn["end_s"] - turn["first_token_s"] for turn in turns), rel=1e-9)


def test_steps_add_up_to_the_busy_time() -> None:
    totals, _ = serve({"policy": "chunked", "token_budget": 512})
    steps = [cell for _, window in totals.step_windows for cell in window.values()]
    assert sum(count for count, _ in steps) == totals.steps
    assert sum(seconds for _, seconds in steps) == pytest.approx(totals.end_s, rel=1e-9)


@pytest.mark.parametrize("schedule", [{"policy": "chunked", "token_budget": 512}, {"policy": "monolithic"}],
                         ids=lambda schedule: schedule["policy"])
def test_gaps_add_up_when_turns_are_preempted(schedule: dict[str, Any]) -> None:
    """A preempted stream's gap lasts until it has computed everything again."""
    totals, turns = serve(schedule, pool=4.0 * 15_000)  # 4 bytes a token: streams and two long prompts do not fit
    assert totals.counts["preemptions"] > 0
    assert {turn["status"] for turn in turns} == {"finished"}
    cells = gaps(totals)
    assert sum(count for _, count in cells) == sum(turn["output_tokens"] - 1 for turn in turns)
    assert sum(seconds * count for seconds, count in cells) == pytest.approx(
        sum(turn["end_s"] - turn["first_token_s"] for turn in turns), rel=1e-9)


@pytest.mark.parametrize("policy", ["chunked", "monolithic", "unbatched"])
def test_blocks_of_a_prompt_under_way_are_booked_as_prefilling(policy: str) -> None:
    """One prompt alone: each of its steps holds the blocks of all chunks up to its own, and nothing decodes."""
    workload = Load()
    workload.trajectories = lambda seed, replication: iter([Trajectory(0, 0.0, [Turn(Stream(), LONG, 1)], 1)])
    serve({"policy": policy, "token_budget": 1024}, workload=workload)
    chunks = LONG // 1024 if policy == "chunked" else 1
    chunk = LONG // chunks
    held = sum(4.0 * chunk * (index + 1) * step_ceiling(chunk) for index in range(chunks))
    ledger = workload.ledger()
    assert ledger["decoding_byte_s"] == pytest.approx(0.0, abs=1e-6 * held)
    assert ledger["prefilling_byte_s"] == pytest.approx(held, rel=1e-3)
