"""Figures of a sweep, from its table of points: a heat map, lines with intervals, a Pareto front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.metrics.wording import number, percent, seconds, usd
from sim.report.plots import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

#: Replications from which an interval is drawn; fewer are shown one by one.
FEW = 3
_WORDS = {"ttft_first": "TTFT of first turns", "ttft_resumed": "TTFT of resumed turns", "ttft": "TTFT",
          "itl": "inter-token latency", "tpot": "time per output token"}


def said(column: str) -> Callable[[float | None], str]:
    """Return how figures of a column are written, by the unit in its name."""
    if column.startswith("usd"):
        return usd
    if column.startswith(("hit_rate", "goodput")) or "_share_" in column:
        return percent
    return seconds if column.endswith("_s") and not column.endswith(("per_s", "GB_s")) else number


def unit(column: str) -> str:
    """Return a column's name in words, with its unit."""
    write = said(column)
    if write is usd:
        return column.replace("usd_per_", "USD per ").replace("Mtok_", "million tokens, ").replace("_", " ")
    words = next((text + column.removeprefix(start).replace("_p", ", p").replace("_mean", ", mean")
                  for start, text in _WORDS.items() if column.startswith(f"{start}_")), column)
    if "." in column:
        return column
    tail = " (s)" if write is seconds else ""
    return words.removesuffix("_s" if tail else "").replace("_per_s", " per second").replace("_", " ") + tail


def _categories(points: pd.DataFrame, column: str) -> list[Any]:
    """Return an axis' values in order: numbers rising, others as they come."""
    values = list(dict.fromkeys(points[column].dropna().tolist()))
    plain = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return sorted(values) if plain else values


def heat_map(points: pd.DataFrame, x: str, y: str, value: str, ax: Axes | None = None, *,
             best: str | None = None, title: str = "") -> Axes:
    """Draw the mean of `value` over replications in a grid of two axes; every cell says its figure.

    Parameters
    ----------
    points
        One row a point and replication.
    x, y, value
        Columns.
    ax
        Where to draw.
    best
        ``low`` or ``high``: frames the best cell of each row.
    """
    columns, rows = _categories(points, x), _categories(points, y)
    ax = style.axes(ax, width=max(4.5, 1.6 + 0.95 * len(columns)), height=max(2.4, 1.2 + 0.5 * len(rows)))
    table = points.pivot_table(index=y, columns=x, values=value, aggfunc="mean", observed=True)
    grid = table.reindex(index=rows, columns=columns).to_numpy(float)
    from matplotlib.colors import LogNorm, Normalize

    finite = grid[np.isfinite(grid)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    wide = low > 0 and high > 20 * low
    norm = LogNorm(low, high) if wide else Normalize(low, high if high > low else low + 1.0)
    image = ax.imshow(np.ma.masked_invalid(grid), aspect="auto", cmap="cividis", norm=norm,
                      origin="lower" if all(isinstance(row, int | float) for row in rows) else "upper")
    write = said(value)
    for row, column in np.ndindex(grid.shape):
        cell = grid[row, column]
        dark = np.isfinite(cell) and norm(cell) < 0.55
        ax.text(column, row, write(float(cell)) if np.isfinite(cell) else "no data", ha="center", va="center",
                fontsize=8.5, color="white" if dark else style.BLACK)
    if best:
        _frame(ax, grid, best)
    ax.set_xticks(range(len(columns)), [_short(value) for value in columns])
    ax.set_yticks(range(len(rows)), [_short(value) for value in rows])
    ax.grid(visible=False)
    made = ax.figure.colorbar(image, ax=ax, pad=0.02)
    made.set_label(unit(value) + (", log scale" if wide else ""), fontsize=8.5)
    made.ax.yaxis.set_major_formatter(lambda value, _: write(value))
    made.ax.minorticks_off()
    made.outline.set_visible(False)
    style.label(ax, title, x, y)
    return ax


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _frame(ax: Axes, grid: Any, best: str) -> None:
    from matplotlib.patches import Rectangle

    for row, values in enumerate(grid):
        if np.isfinite(values).any():
            column = int(np.nanargmin(values) if best == "low" else np.nanargmax(values))
            ax.add_patch(Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, fill=False, edgecolor=style.RED,
                                   linewidth=2))


def lines(points: pd.DataFrame, x: str, value: str, by: str | None = None, ax: Axes | None = None, *,
          limit: float | None = None, title: str = "") -> Axes:
    """Draw `value` against `x`, a line for each value of `by`, with 95 % intervals over three replications or more.

    Two replications are drawn as dots.

    Parameters
    ----------
    points
        One row a point and replication; other axes than `x` and `by` are averaged over.
    x, value, by
        Columns.
    ax
        Where to draw.
    limit
        A level to mark: an objective, say.
    """
    ax = style.axes(ax)
    from scipy.stats import t

    at = _categories(points, x)
    numeric = all(isinstance(value, int | float) for value in at)
    place = dict(zip(at, at if numeric else range(len(at)), strict=True))
    groups = [(None, points)] if by is None else [(key, points[points[by] == key]) for key in _categories(points, by)]
    for index, (key, chosen) in enumerate(groups):
        stats = chosen.groupby(x, observed=True)[value].agg(["mean", "std", "count"]).reindex(at).dropna(subset="mean")
        where = np.array([place[value] for value in stats.index], float)
        colour = style.SERIES[index % len(style.SERIES)]
        ax.plot(where, stats["mean"], color=colour, linestyle=style.DASHES[index % len(style.DASHES)], markersize=5,
                marker=style.MARKERS[index % len(style.MARKERS)], label=None if key is None else _short(key))
        if stats["count"].max() >= FEW:
            half = (t.ppf(0.975, np.maximum(stats["count"] - 1, 1)) * stats["std"].fillna(0.0)
                    / np.sqrt(stats["count"]))
            ax.fill_between(where, stats["mean"] - half, stats["mean"] + half, color=colour, alpha=0.18, linewidth=0)
        elif stats["count"].max() > 1:
            ax.scatter([place[value] for value in chosen[x]], chosen[value], color=colour, s=9, alpha=0.6, linewidths=0)
    if not numeric:
        ax.set_xticks(range(len(at)), [_short(value) for value in at])
    elif min(at, default=0) > 0 and max(at) / min(at) >= 8:
        ax.set_xscale("log", base=2)
        ax.set_xticks(at, [_short(value) for value in at])
        ax.minorticks_off()
    _value_axis(ax, points[value].to_numpy(float), value)
    if limit is not None:
        ax.axhline(limit, color=style.BLACK, linestyle=":", linewidth=1.3, label=f"limit {said(value)(limit)}")
    style.label(ax, title, x, unit(value))
    style.legend(ax, title=by)
    return ax


def _value_axis(ax: Axes, values: Any, column: str) -> None:
    finite = values[np.isfinite(values)]
    if finite.size and finite.min() > 0 and finite.max() / finite.min() > 20:
        ax.set_yscale("log")
        ax.set_ylim(finite.min() / 1.5, finite.max() * 1.5)
        if said(column) is seconds:
            style.seconds_axis(ax.yaxis)
    else:
        ax.set_ylim(0, max(1.08 * float(finite.max()), 1e-12) if finite.size else 1.0)


def front(cost: Sequence[float], latency: Sequence[float]) -> list[int]:
    """Return the positions of points that no other point beats in both (lower is better), cheapest first."""
    order = sorted(range(len(cost)), key=lambda i: (cost[i], latency[i]))
    chosen: list[int] = []
    lowest = float("inf")
    for i in order:
        if latency[i] < lowest:
            chosen.append(i)
            lowest = latency[i]
    return chosen


def pareto(points: pd.DataFrame, cost: str = "usd_per_trajectory", latency: str = "ttft_resumed_p95_s",
           by: str | None = None, label: str | None = None, ax: Axes | None = None, *,
           title: str = "") -> Axes:
    """Draw cost against latency and the front of points that nothing beats in both.

    Parameters
    ----------
    points
        One row a point (mean over replications is taken where there are several rows with the same `by` and `label`).
    cost, latency
        Columns; lower is better.
    by
        Column that colours and marks the points.
    label
        Column written beside the points of the front.
    ax
        Where to draw.
    """
    ax = style.axes(ax)
    rows = points.dropna(subset=[cost, latency]).reset_index(drop=True)
    groups = [(None, rows)] if by is None else [(key, rows[rows[by] == key]) for key in _categories(points, by)]
    for index, (key, chosen) in enumerate(groups):
        ax.scatter(chosen[cost], chosen[latency], color=style.SERIES[index % len(style.SERIES)], s=44,
                   marker=style.MARKERS[index % len(style.MARKERS)], label=None if key is None else _short(key),
                   zorder=3, edgecolors="white", linewidths=0.5)
    best = rows.iloc[front(rows[cost].tolist(), rows[latency].tolist())]
    ax.step(best[cost], best[latency], where="post", color=style.BLACK, linewidth=1.1, linestyle="--", zorder=2,
            label="front: nothing is better in both")
    _value_axis(ax, rows[latency].to_numpy(float), latency)
    ax.set_xlim(left=0)
    if label is not None:
        style.label_marks(ax, [(row[cost], row[latency], _short(row[label])) for _, row in best.iterrows()])
    style.label(ax, title, unit(cost), unit(latency))
    style.legend(ax, title=by)
    return ax
