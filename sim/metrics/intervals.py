"""How sure a number is: intervals from replications, batch means, or the bootstrap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics.measure import Part
from sim.metrics.percentiles import of_histogram

LEVEL = 0.95
#: Batches of one run for batch means; blocks of consecutive turns for the bootstrap.
BATCHES, BLOCKS = 20, 50
RESAMPLES = 400
#: Steps of the grid on which bootstrap percentiles are read.
GRID = 4000

Interval = dict[str, Any]
Array = NDArray[Any]


def _ratio(top: float, bottom: float) -> float | None:
    return float(top) / float(bottom) if bottom else None


def _percentile(values: Array, q: float) -> float | None:
    return float(np.quantile(values, q)) if values.size else None


def _mean(values: Array) -> float | None:
    return float(values.mean()) if values.size else None


def headline(part: Part) -> dict[str, float | None]:
    """Return the figures that get an interval, of one replication: path in the summary -> value."""
    turn, done, span = part.turn, part.done, part.span_s
    first = turn["first"]
    figures: dict[str, float | None] = {}
    for name, rows in (("first", first), ("resumed", ~first), ("all", slice(None))):
        values = turn["ttft_s"][rows]
        figures[f"ttft_s.{name}.mean"] = _mean(values)
        figures[f"ttft_s.{name}.p50"] = _percentile(values, 0.5)
        figures[f"ttft_s.{name}.p95"] = _percentile(values, 0.95)
    itl = of_histogram(part.itl)
    figures |= {f"itl_s.{stat}": itl[stat] for stat in ("mean", "p50", "p99")}
    figures["tpot_s.mean"] = _mean(turn["tpot_s"][~np.isnan(turn["tpot_s"])])
    figures["turn_s.mean"] = _mean(turn["turn_s"])
    figures["turn_s.p95"] = _percentile(turn["turn_s"], 0.95)
    figures["trajectory_s.mean"] = _mean(part.trajectory_s)
    figures["throughput.turns_per_s"] = _ratio(done["end_s"].size, span)
    figures["throughput.trajectories_per_s"] = _ratio(part.trajectory_s.size, span)
    figures["throughput.output_tokens_per_s"] = _ratio(done["output_tokens"].sum(), span)
    figures["hit_rate.total"] = _ratio(turn["hit_tokens"].sum(), turn["prompt_tokens"].sum())
    figures["concurrency.mean"] = part.concurrency
    return figures


def intervals(parts: Sequence[Part], seed: int) -> dict[str, Interval]:
    """Return 95 % intervals for the headline figures: path in the summary -> interval.

    Several replications: Student t over their values (which stand in `values`). One: means and rates by batch means,
    percentiles by a bootstrap of blocks of consecutive turns. Figures with too little behind them are left out.
    """
    if len(parts) > 1:
        figures = [headline(part) for part in parts]
        found = {path: student([row[path] for row in figures]) for path in figures[0]}
    else:
        found = _single(parts[0], np.random.default_rng([seed, 0x6B76]))
    return {path: within(interval, 1.0 if path.startswith("hit_rate") else np.inf)
            for path, interval in found.items() if interval is not None}


def within(interval: Interval, most: float = np.inf) -> Interval:
    """Return an interval cut to what its figure can be: not below 0, and not above `most`.

    Student's t knows no such bounds; what it puts beyond them holds no possible value, so cutting loses nothing.
    """
    return interval | {"low": max(interval["low"], 0.0), "high": min(interval["high"], most)}


def student(values: Sequence[float | None]) -> Interval | None:
    """Return the t interval of a mean over independent values; None with fewer than two."""
    from scipy.special import stdtrit

    given = np.array([value for value in values if value is not None], dtype=float)
    if given.size < 2:
        return None
    half = float(stdtrit(given.size - 1, 0.5 + LEVEL / 2)) * float(given.std(ddof=1)) / given.size**0.5
    mean = float(given.mean())
    return {"value": mean, "low": mean - half, "high": mean + half, "level": LEVEL, "method": "replications",
            "n": int(given.size), "values": [None if v is None else float(v) for v in values]}


def _single(part: Part, rng: np.random.Generator) -> dict[str, Interval | None]:
    turn, done = part.turn, part.done
    first = turn["first"]
    found: dict[str, Interval | None] = {}
    for name, rows in (("first", first), ("resumed", ~first), ("all", np.ones(first.size, dtype=bool))):
        values = turn["ttft_s"][rows]
        found[f"ttft_s.{name}.mean"] = batch_means(values)
        found |= {f"ttft_s.{name}.{stat}": it for stat, it in bootstrap(values, {"p50": 0.5, "p95": 0.95}, rng).items()}
    paced = turn["tpot_s"]
    found["tpot_s.mean"] = batch_means(paced[~np.isnan(paced)])
    found["turn_s.mean"] = batch_means(turn["turn_s"])
    found["turn_s.p95"] = bootstrap(turn["turn_s"], {"p95": 0.95}, rng).get("p95")
    order = np.argsort(part.trajectory_end_s, kind="stable")
    found["trajectory_s.mean"] = batch_means(part.trajectory_s[order])
    edges = np.linspace(part.warmup_s, part.warmup_s + part.span_s, BATCHES + 1)
    found["throughput.turns_per_s"] = _rate(done["end_s"], None, edges)
    found["throughput.output_tokens_per_s"] = _rate(done["end_s"], done["output_tokens"], edges)
    found["throughput.trajectories_per_s"] = _rate(part.trajectory_end_s, None, edges)
    found["hit_rate.total"] = batch_means(turn["hit_tokens"], turn["prompt_tokens"])
    return found


def _named(values: Array, method: str, centre: float) -> Interval | None:
    interval = student(list(values))
    if interval is None:
        return None
    shift = centre - interval["value"]
    del interval["values"]
    return interval | {"value": centre, "low": interval["low"] + shift, "high": interval["high"] + shift,
                       "method": method}


def batch_means(values: Array, weights: Array | None = None) -> Interval | None:
    """Return the t interval of a mean (or of the ratio of two sums) over batches of consecutive values.

    None with fewer than two values a batch.
    """
    if values.size < 2 * BATCHES:
        return None
    pieces = np.array_split(values, BATCHES)
    if weights is None:
        return _named(np.array([piece.mean() for piece in pieces]), "batch means", float(values.mean()))
    below = np.array([piece.sum() for piece in np.array_split(weights, BATCHES)])
    if not below.all():
        return None
    ratios = np.array([piece.sum() for piece in pieces]) / below
    return _named(ratios, "batch means", float(values.sum() / weights.sum()))


def _rate(when_s: Array, amounts: Array | None, edges: Array) -> Interval | None:
    """Return the t interval of a rate over equal slices of time; None with fewer than two events a slice."""
    if when_s.size < 2 * BATCHES:
        return None
    rates = np.histogram(when_s, edges, weights=amounts)[0] / np.diff(edges)
    return _named(rates, "batch means", float(rates.mean()))


def bootstrap(values: Array, quantiles: Mapping[str, float], rng: np.random.Generator) -> dict[str, Interval]:
    """Return percentile intervals from resampled blocks of consecutive values: name -> interval.

    Blocks keep the correlation between neighbours that single resampled values would lose. Empty with fewer than
    four values a block.
    """
    if values.size < 4 * BLOCKS:
        return {}
    grid = np.unique(np.quantile(values, np.linspace(0.0, 1.0, min(GRID, values.size))))
    blocks = np.array_split(values, BLOCKS)
    counts = np.stack([np.bincount(np.searchsorted(grid, block), minlength=grid.size) for block in blocks])
    below = np.cumsum(counts, axis=1, dtype=float)  # whole numbers as floats: exact, and many times as fast
    picks = rng.multinomial(BLOCKS, np.full(BLOCKS, 1 / BLOCKS), size=RESAMPLES)
    share = picks.astype(float) @ below
    share /= share[:, -1:]
    found: dict[str, Interval] = {}
    for name, q in quantiles.items():
        reached = grid[np.argmax(share >= q, axis=1)]
        low, high = np.quantile(reached, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
        value = float(np.quantile(values, q))
        found[name] = {"value": value, "low": min(float(low), value), "high": max(float(high), value), "level": LEVEL,
                       "method": "bootstrap", "n": int(values.size)}
    return found


def at(summary: Mapping[str, Any], path: str) -> float | None:
    """Return the figure at a dotted path of a summary, None when absent."""
    value: Any = summary
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return None if value is None else float(value)


