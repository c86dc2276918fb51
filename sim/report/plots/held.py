"""How long resumed turns wait against the HBM that pauses hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sim.metrics.intervals import student
from sim.report.plots import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

#: From this ratio of the largest to the smallest on, what is held is drawn on a logarithmic scale that has a zero.
_WIDE = 100.0


def held_against_wait(points: pd.DataFrame, by: str, ax: Axes | None = None, *, title: str = "") -> Axes:
    """Draw the 95th percentile of resumed turns' TTFT against the HBM that pauses hold, a mark for each value of `by`.

    Bars are 95 % intervals over replications (Student's t), where there are at least three.

    Parameters
    ----------
    points
        One row a value and replication: `by`, ``held_GB_s`` (GB-seconds a pause), ``ttft_resumed_p95_s`` (seconds).
    by
        Column whose values are told apart; the legend has them from the top of the picture down.
    ax
        Where to draw.
    """
    ax = style.axes(ax, 7.6, 4.4)
    held: list[float] = []
    marks = []
    for index, (name, chosen) in enumerate(points.groupby(by, sort=False)):
        x, y = chosen["held_GB_s"].to_numpy(float), chosen["ttft_resumed_p95_s"].to_numpy(float)
        down, up = _reach(y)
        colour, again = style.SERIES[index % len(style.SERIES)], index >= len(style.SERIES)
        mark, *_ = ax.errorbar([x.mean()], [y.mean()], xerr=[[side] for side in _reach(x)],
                               yerr=[[min(down, y.mean() * 0.9)], [up]],  # a logarithmic axis has no place for zero
                               color=colour, linestyle="none", elinewidth=1, capsize=2, markersize=8,
                               marker=style.MARKERS[index % len(style.MARKERS)],
                               markeredgecolor=colour if again else "white", markeredgewidth=1.5 if again else 0.7,
                               markerfacecolor="white" if again else colour)
        mark.set_label(str(name))
        held.append(float(x.mean()))
        marks.append((float(y.mean()), mark))
    ax.set_yscale("log")
    style.label(ax, title, "HBM held by pauses (GB·s a pause)", "TTFT of resumed turns, p95 (log scale)")
    _held_axis(ax, held)
    style.seconds_axis(ax.yaxis)
    style.legend(ax, handles=[mark for _, mark in sorted(marks, key=lambda entry: -entry[0])], title="slowest first")
    return ax


def _reach(values: Any) -> tuple[float, float]:
    """Return how far the interval of a mean reaches down and up; nothing below zero."""
    spread = student(list(values)) if len(values) > 2 else None
    if spread is None:
        return 0.0, 0.0
    return min(spread["value"] - spread["low"], spread["value"]), spread["high"] - spread["value"]


def _held_axis(ax: Axes, held: list[float]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    most, least = max(held), min((value for value in held if value > 0), default=1.0)
    if most < _WIDE * least:
        ax.set_xlim(left=-0.02 * most - 1e-9)
        return
    first = 10.0 ** np.floor(np.log10(least))
    ax.set_xscale("symlog", linthresh=first, linscale=0.5)
    ax.set_xlabel("HBM held by pauses (GB·s a pause, log scale with a zero)")
    ticks = [0.0, *(first * 10.0**power for power in range(int(np.ceil(np.log10(most / first))) + 1))]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_xlim(-0.3 * first, most * 3)
