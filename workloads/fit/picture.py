"""Quantile-quantile pictures of a fit."""

from __future__ import annotations

from pathlib import Path

from workloads.fit.fitting import Fit


def draw(fit: Fit, path: Path) -> None:
    """Draw, for every quantity, the quantiles drawn against those recorded; on the diagonal both are alike.

    Raises
    ------
    InputError
        The picture cannot be written.
    """
    import numpy as np

    from workloads.drawing import canvas, save

    across = 3
    down = -(-len(fit.rows) // across)
    figure, axes = canvas(down, across, (4.2 * across, 3.8 * down))
    for ax in axes.flat:
        ax.set_visible(False)
    for ax, row in zip(axes.flat, fit.rows, strict=False):
        ax.set_visible(True)
        steps = min(row.recorded.size, 400)
        q = (np.arange(steps) + 0.5) / steps
        x, y = np.quantile(row.recorded, q), np.quantile(row.drawn, q)
        least = max(1e-3, min(float(x[x > 0].min(initial=1e300)), float(y[y > 0].min(initial=1e300))))
        most = max(float(x.max()), float(y.max()), least * 2)
        ax.plot([least, most], [least, most], color="0.6", linewidth=1)
        ax.plot(np.maximum(x, least), np.maximum(y, least), ".", markersize=4,
                color="#c0392b" if row.verdict == "poor" else "#1f5f8b")
        ax.set_xscale("log")
        ax.set_yscale("log")
        unit = " (s)" if row.name.startswith("wait") else ""
        ax.set_title(f"{row.name}{unit}: D {row.distance:.3f}, {row.verdict}", fontsize=9)
        ax.set_xlabel("recorded", fontsize=8)
        ax.set_ylabel("drawn", fontsize=8)
    save(figure, path)
