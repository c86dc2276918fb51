"""The figures of docs/validation.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sim.report.plots import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def agent_jobs(table: pd.DataFrame, path: Path) -> None:
    """Draw mean job time against the rate of arrivals, measured beside predicted, a panel each with every policy."""
    made, axes = style.figure(8.2, 3.5, ncols=2, sharex=True, sharey=True)
    with style.context():
        for ax, column in zip(axes, ("measured", "predicted"), strict=True):
            for index, (policy, rows) in enumerate(table.groupby("policy", sort=False)):
                ax.plot(rows["jobs_per_s"], rows[column], color=style.SERIES[index], marker=style.MARKERS[index],
                        linestyle=style.DASHES[index], markersize=4.5, label=str(policy))
            style.label(ax, column.capitalize(), "jobs arriving per second",
                        "mean job time (log scale)" if column == "measured" else "")
            ax.set_yscale("log")
            ax.set_yticks([5, 10, 30, 60, 180, 600], ["5 s", "10 s", "30 s", "1 min", "3 min", "10 min"])
            ax.minorticks_off()
            ax.set_xticks(sorted(set(table["jobs_per_s"])))
        made.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    _save(made, path)


def host_link(table: pd.DataFrame, path: Path) -> None:
    """Draw bandwidth against the size of a piece: points measured, lines by the catalogue's link."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    names = {"pieces": "a copy a piece (DMA)", "zero_copy": "copy kernel"}
    made, ax = style.figure(6.6, 3.4)
    with style.context():
        for index, (method, rows) in enumerate(table.groupby("method", sort=False)):
            look = {"color": style.SERIES[index]}
            name = names[str(method)]
            ax.plot(rows["piece_bytes"], rows["predicted"] / 1e9, **look, linestyle=style.DASHES[index],
                    label=f"{name}, formula")
            ax.plot(rows["piece_bytes"], rows["measured"] / 1e9, **look, linestyle="", marker=style.MARKERS[index],
                    markersize=5, label=f"{name}, measured")
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_locator(FixedLocator([2**power for power in range(12, 25, 2)]))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda size, _: _binary(size)))
        ax.set_ylim(bottom=0)
        style.label(ax, "", "contiguous piece (log scale)", "bandwidth, GB/s")
        style.legend(ax)
    _save(made, path)


def _binary(size: float) -> str:
    return f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size / 2**10:g} KiB"


def _save(made: Figure, path: Path) -> None:
    with style.context():
        made.savefig(path, dpi=130, metadata={"Software": None})
