"""A stand-in for the engine: one server, closed loop, records that agree with each other to the last second."""

from __future__ import annotations

import heapq
import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from sim.records import (
    BUCKET_BASE,
    GPU_USES,
    LINK_USES,
    POOL_USES,
    TIER_USES,
    TIERS,
    TIMELINE_COLUMNS,
    TURN_CAUSES,
    RunTotals,
)

#: Ledgers of links and tiers: all idle, and tiers of one byte all free.
_BELOW = list(TIMELINE_COLUMNS)[-(2 * len(LINK_USES) * len(TIERS) + len(TIER_USES) * len(TIERS)) - 3:-3]
_UNUSED = ("_idle_cum_s", "_free_byte_s")
POOL = 1_000_000
KV = 10_000
PREFILL_S, TOKEN_S, OUTPUT, PROMPT = 0.4, 0.02, 20, 1_000


def fake_simulate(scenario: Any, workload: Any, sink: Any, replication: int = 0, progress: Any = None, *,
                  trajectories: int = 8, turns: int = 5, wait_s: float = 3.0, replicas: int = 1) -> RunTotals:
    """Serve `trajectories` at a time, each of `turns` turns, until `scenario.duration` (default 600 s)."""
    end = float(getattr(scenario, "duration", None) or 600.0)
    rng = np.random.default_rng([scenario.seed, replication])
    ready = [(float(rng.uniform(0, 1)), k, 0) for k in range(trajectories)]
    heapq.heapify(ready)
    alive = dict.fromkeys(range(trajectories), 0.0)
    begun = {k: at for at, k, _ in ready}
    number, free = trajectories, 0.0
    serving: list[tuple[float, float, float]] = []
    kept: list[tuple[float, float]] = []
    queued: list[tuple[float, float]] = []
    while ready:
        at, k, index = heapq.heappop(ready)
        start = max(at, free)
        token = start + PREFILL_S + TOKEN_S
        done = start + PREFILL_S + TOKEN_S * OUTPUT
        queued.append((at, min(start, end)))
        if done > end:
            sink.turn(_turn(k, index, "unfinished", at, math.nan, math.nan, math.nan))
            if start < end:
                free = end
                serving.append((start, min(start + PREFILL_S, end), end))
            continue
        free = done
        serving.append((start, start + PREFILL_S, done))
        sink.turn(_turn(k, index, "finished", at, start, token, done))
        if index + 1 < turns:
            back = done + wait_s * float(rng.uniform(0.5, 1.5))
            kept.append((done, min(back, end)))
            sink.pause((k, index, 0, "tool", done, back, math.nan, "keep", PROMPT, KV, KV * (back - done),
                        *[0.0] * len(TIERS), False))
            if back < end:
                heapq.heappush(ready, (back, k, index + 1))
        else:
            sink.trajectory((k, "g", "", "finished", begun[k], done, turns, PROMPT * turns, OUTPUT * turns,
                             500 * (turns - 1), wait_s * (turns - 1)))
            alive.pop(k)
            alive[number] = begun[number] = done
            heapq.heappush(ready, (done, number, 0))
            number += 1
    for k in alive:
        sink.trajectory((k, "g", "", "unfinished", begun[k], math.nan, 0, 0, 0, 0, 0.0))
    _sample(sink, end, serving, kept, queued, trajectories)
    if progress is not None:
        progress(end, number)
    tokens = float(len(serving) * (OUTPUT - 1))
    bucket = math.floor(math.log(TOKEN_S) / math.log(BUCKET_BASE))
    return RunTotals(
        end_s=end, replicas=replicas, pool_bytes=POOL, counts={"evictions": 3}, events=number, steps=len(serving),
        itl_windows=[(end * i / 10, {bucket: (tokens / 10, tokens / 10 * TOKEN_S)}) for i in range(1, 11)],
        step_windows=[(end, {bucket: (100.0, 100 * TOKEN_S)})], bound_s={"weights": 1.0, "compute": 2.0},
        breakers={"clock": 7, "tools": 9}, alive_integral_s=trajectories * end, alive_max=trajectories)


def _turn(k: int, index: int, status: str, at: float, start: float, token: float, done: float) -> tuple[Any, ...]:
    causes = dict.fromkeys(TURN_CAUSES, 0.0)
    if status == "finished":
        causes |= {"queue_budget": start - at, "prefill": token - start, "decode": done - token}
    return (k, index, 0, 0, index == 0, "tool" if index else "", status, at, start, token, done, PROMPT, OUTPUT,
            500 if index else 0, *[0] * len(TIERS), 600 if index else 0, 10, 0, *causes.values())


def _sample(sink: Any, end: float, serving: list[Any], kept: list[Any], queued: list[Any], alive: int) -> None:
    times = np.linspace(0.0, end, 301)
    zero = np.zeros_like(times)
    prefill = _cumulative([(a, b) for a, b, _ in serving], times)
    decode = _cumulative([(b, c) for _, b, c in serving], times)
    pool = dict.fromkeys(POOL_USES, zero) | {"decoding": decode * KV, "prefilling": prefill * KV,
                                             "kept": _cumulative(kept, times) * KV}
    pool["free"] = POOL * times - sum(pool.values())
    gpu = dict.fromkeys(GPU_USES, zero) | {"prefill": prefill, "decode": decode, "idle": times - prefill - decode}
    state = [_at(spans, times) for spans in ([(b, c) for _, b, c in serving], [(a, b) for a, b, _ in serving], queued)]
    for i, time in enumerate(times):
        sink.sample((float(time), 0, *(float(pool[u][i]) for u in POOL_USES), *(float(gpu[u][i]) for u in GPU_USES),
                     1, 0, 0, *(int(values[i]) for values in state), alive, *[0] * len(TIERS), 0.0, 0.0,
                     *(float(time) * column.endswith(_UNUSED) for column in _BELOW), 0, 0, 0))


def _cumulative(spans: list[tuple[float, float]], times: Any) -> Any:
    if not spans:
        return np.zeros_like(times)
    begin, stop = np.array(spans).T
    return np.array([np.clip(np.minimum(stop, t) - begin, 0, None).sum() for t in times])


def _at(spans: list[tuple[float, float]], times: Any) -> Any:
    begin, stop = np.array(spans).reshape(-1, 2).T
    return np.array([int(((begin <= t) & (t < stop)).sum()) for t in times])


def fake_scenario(**changes: Any) -> Any:
    """Return an object with the fields that running and summarising read."""
    fields: dict[str, Any] = {
        "name": "fake", "seed": 3, "replications": 1, "duration": None, "warmup": 0.0, "slo": {}, "nodes": 1,
        "model": "m", "hardware": "h", "tiers": SimpleNamespace(dram=None), "retention": SimpleNamespace(policy="keep"),
        "workload": SimpleNamespace(agents="coding-agent", arrivals=None)}
    made = SimpleNamespace(**(fields | changes))
    made.model_copy = lambda update: fake_scenario(**(fields | changes | update))
    return made
