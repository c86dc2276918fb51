"""What a workload looks like: counts, quantiles, hit rates of a cache of infinite size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from workloads.trajectory import Stream, Trajectory, Turn

_QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


class InfiniteCache:
    """Everything ever computed: the most a prefix cache can find.

    It walks streams as the engine does, but keeps its own record, so the turns it is shown can still be simulated.
    """

    def __init__(self) -> None:
        self._seen: dict[Stream, int] = {}

    def match(self, stream: Stream, tokens: int) -> int:
        """Return how many of the first `tokens` tokens of `stream` have been computed before."""
        at: Stream | None = stream
        while at is not None:
            seen = self._seen.get(at, 0)
            if seen > at.attach:
                return min(tokens, seen)
            tokens, at = min(tokens, at.attach), at.parent
        return 0

    def add(self, stream: Stream, tokens: int) -> None:
        """Note that the first `tokens` tokens of `stream` have been computed."""
        at: Stream | None = stream
        while at is not None and self._seen.get(at, 0) < tokens:
            self._seen[at] = tokens
            tokens, at = min(tokens, at.attach), at.parent


def shared_tokens(a: Turn, b: Turn) -> int:
    """Return how many tokens the prompts of two turns have in common from the start."""
    lengths: dict[Stream, int] = {}
    stream, tokens = a.stream, a.prompt_tokens
    while True:
        lengths[stream] = tokens
        if stream.parent is None:
            break
        stream, tokens = stream.parent, min(tokens, stream.attach)
    other: Stream | None = b.stream
    tokens = b.prompt_tokens
    while other is not None:
        if other in lengths:
            return min(tokens, lengths[other])
        tokens, other = min(tokens, other.attach), other.parent
    return 0


def stats(trajectories: Iterable[Trajectory]) -> dict[str, Any]:
    """Summarise trajectories, in the order they come.

    Returns
    -------
    dict
        `trajectories`, `turns`, `branches`, `human_waits`; summaries (`n`, `mean`, `p5` ... `p99`, `max`) of
        `turns_per_trajectory`, `prompt_tokens`, `output_tokens`, `new_tokens` (prompt tokens no earlier prompt of the
        workload has), `added_tokens` (prompt tokens beyond what the turn before had in common, per line of turns),
        `wait_s` and, by tool, `waits_by_tool`; `hit_rate` of an infinite cache in which outputs stay too, and
        `prompt_hit_rate` of one that knows prompts only (what traces can tell); `break_rate`, the share of turns
        that keep under half of the prompt before.
    """
    prompts, everything = InfiniteCache(), InfiniteCache()
    columns: dict[str, list[float]] = {name: [] for name in ("turns", "prompt", "output", "new", "added", "wait")}
    waits: dict[str, list[float]] = {}
    found = known = broken = branches = human = 0
    for trajectory in trajectories:
        last: dict[int, Turn] = {}
        columns["turns"].append(trajectory.turns)
        for turn in in_order(trajectory):
            hit = prompts.match(turn.stream, turn.prompt_tokens)
            found += everything.match(turn.stream, turn.prompt_tokens)
            known += hit
            prompts.add(turn.stream, turn.prompt_tokens)
            everything.add(turn.stream, turn.prompt_tokens + turn.kept_output)
            columns["prompt"].append(turn.prompt_tokens)
            columns["output"].append(turn.output_tokens)
            columns["new"].append(turn.prompt_tokens - hit)
            if turn.tool:
                columns["wait"].append(turn.wait_s)
                waits.setdefault(turn.tool, []).append(turn.wait_s)
                human += turn.human
            before = last.get(turn.branch)
            if before is not None:
                shared = shared_tokens(before, turn)
                columns["added"].append(turn.prompt_tokens - shared)
                broken += 2 * shared < before.prompt_tokens
            else:
                branches += turn.branch > 0
            last[turn.branch] = turn
    total = sum(columns["prompt"])
    return {
        "trajectories": len(columns["turns"]), "turns": len(columns["prompt"]), "branches": branches,
        "human_waits": human, "hit_rate": found / total if total else None,
        "prompt_hit_rate": known / total if total else None,
        "break_rate": broken / len(columns["added"]) if columns["added"] else None,
        "turns_per_trajectory": summary(columns["turns"]), "prompt_tokens": summary(columns["prompt"]),
        "output_tokens": summary(columns["output"]), "new_tokens": summary(columns["new"]),
        "added_tokens": summary(columns["added"]), "wait_s": summary(columns["wait"]),
        "waits_by_tool": {tool: summary(values) for tool, values in sorted(waits.items())},
    }


def in_order(trajectory: Trajectory) -> list[Turn]:
    """Return the turns of a trajectory by index; every turn comes after those it waits for."""
    seen: dict[int, Turn] = {}
    waiting = list(trajectory.roots)
    while waiting:
        turn = waiting.pop()
        if turn.index not in seen:
            seen[turn.index] = turn
            waiting.extend(turn.next)
    return [seen[index] for index in sorted(seen)]


def summary(values: list[float]) -> dict[str, float]:
    """Return count, mean, quantiles and maximum of some numbers (the count alone if there are none)."""
    if not values:
        return {"n": 0}
    array = np.asarray(values, dtype=float)
    quantiles = {f"p{q * 100:g}": float(value) for q, value in
                 zip(_QUANTILES, np.quantile(array, _QUANTILES), strict=True)}
    return {"n": array.size, "mean": float(array.mean()), **quantiles, "max": float(array.max())}
