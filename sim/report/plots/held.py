"""How long resumed turns wait against the HBM that pauses hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim.report.plots import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def held_against_wait(points: pd.DataFrame, by: str, ax: Axes | None = None, *, title: str = "") -> Axes:
    """Draw the 95th percentile of resumed turns' TTFT against the HBM that pauses hold, a mark for each value of `by`.

    Bars are 95 % intervals over replications (Student's t), where there are at least three.

    Parameters
    ----------
    points
        One row a value and replication: `by`, ``held_GB_s`` (GB-seconds a turn), ``ttft_resumed_p95_s`` (seconds).
    by
        Column whose values are told apart; written beside the marks.
    ax
        Where to draw.
    """
    from scipy.stats import t

    ax = style.axes(ax, 7.2, 4.4)
    marks: list[tuple[float, float, str]] = []
    for index, (name, chosen) in enumerate(points.groupby(by, sort=False)):
        x, y = chosen["held_GB_s"].to_numpy(), chosen["ttft_resumed_p95_s"].to_numpy()
        colour, marker = style.SERIES[index % len(style.SERIES)], style.MARKERS[(index * 3 + 1) % len(style.MARKERS)]
        reach = [np.zeros(1), np.zeros(1)]
        if len(chosen) > 2:
            width = t.ppf(0.975, len(chosen) - 1) / np.sqrt(len(chosen))
            reach = [np.array([width * values.std(ddof=1)]) for values in (x, y)]
        low = np.minimum(reach[1], y.mean() * 0.9)  # a logarithmic axis has no place for zero
        ax.errorbar([x.mean()], [y.mean()], xerr=reach[0], yerr=[low, reach[1]], color=colour, marker=marker,
                    markersize=7, elinewidth=1, capsize=2)
        marks.append((float(x.mean()), float(y.mean()), str(name)))
    ax.set_yscale("log")
    style.seconds_axis(ax.yaxis)
    ax.set_xlim(left=-0.02 * max(point[0] for point in marks) - 1e-9)
    style.label_marks(ax, marks)
    style.label(ax, title, "HBM held by pauses (GB·s a turn)", "TTFT of resumed turns, p95")
    return ax
