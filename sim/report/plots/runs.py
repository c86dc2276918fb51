"""Figures of one run, from its tables: where memory, GPUs and time went, and how long users waited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics.wording import LABELS, seconds
from sim.records import GPU_USES, TURN_CAUSES
from sim.report.plots import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

#: Bins a time axis is divided into.
BINS = 180
#: What the pool's stack shows, from the bottom, and the cumulative columns behind each kind. Whether a dormant block
#: will be found again shows only later, so both kinds of dormancy are one over time.
POOL_KINDS: Mapping[str, tuple[str, ...]] = {
    "decoding": ("decoding",), "prefilling": ("prefilling",), "tail_waste": ("tail_waste",),
    "in_flight": ("in_flight",), "kept": ("kept",), "dormant": ("dormant_reused", "dormant_wasted"),
    "reserved": ("reserved",), "free": ("free",),
}
#: Points a curve of a distribution is drawn with.
POINTS = 400
_DORMANT = {"dormant": "dormant (cache)"}


def _edges(timeline: pd.DataFrame) -> NDArray[Any]:
    times = timeline["time_s"].to_numpy(float)
    end = float(times.max()) if times.size else 1.0
    return np.linspace(0.0, end, 1 + max(1, min(BINS, np.unique(times).size)))


def _one(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the first replication in `frame`."""
    if "replication" not in frame or frame.empty:
        return frame
    chosen: pd.DataFrame = frame[frame["replication"] == frame["replication"].iloc[0]]
    return chosen


def grown(timeline: pd.DataFrame, columns: Sequence[str], edges: NDArray[Any]) -> NDArray[Any]:
    """Return by how much the sum of cumulative `columns` grew in each bin, over all replicas; between samples growth
    is even."""
    total = np.zeros(len(edges))
    for _, rows in timeline.groupby("replica"):
        time = np.concatenate([[0.0], rows["time_s"].to_numpy(float)])
        value = np.concatenate([[0.0], rows[list(columns)].to_numpy(float).sum(axis=1)])
        total += np.interp(edges, time, value)
    return np.diff(total)


def _stack(ax: Axes, edges: NDArray[Any], parts: Mapping[str, NDArray[Any]], scale: float) -> None:
    base = np.zeros(len(edges))
    for name, values in parts.items():
        top = base + np.append(values, values[-1:])
        ax.fill_between(edges / scale, base, top, step="post", facecolor=style.COLOURS[name], linewidth=0,
                        edgecolor="#00000055", hatch=style.HATCHES.get(name),
                        label=_DORMANT.get(name) or LABELS[name])
        base = top


def pool_use(timeline: pd.DataFrame, ax: Axes | None = None, *, warmup_s: float | None = None) -> Axes:
    """Draw what the KV pool held over time, by kind, stacked (all replicas together; the first replication).

    Parameters
    ----------
    timeline
        Rows of `sim.records.TIMELINE_COLUMNS`; the cumulative ``*_byte_s`` columns are differenced.
    ax
        Where to draw.
    warmup_s
        Marked, if given.
    """
    ax = style.axes(ax)
    timeline = _one(timeline)
    edges = _edges(timeline)
    width = np.diff(edges)
    parts = {kind: np.clip(grown(timeline, [f"{use}_byte_s" for use in uses], edges) / width, 0, None)
             for kind, uses in POOL_KINDS.items()}
    whole = np.sum(list(parts.values()), axis=0)
    size, unit = style.bytes_scale(float(whole.max()))
    shown = {kind: values / size for kind, values in parts.items() if values.sum() > 1e-3 * whole.sum()}
    scale, name = style.time_scale(float(edges[-1]))
    _stack(ax, edges, shown, scale)
    _time_axis(ax, edges, scale, warmup_s)
    ax.set_ylim(0, max(float(whole.max()) / size, 1e-9))
    style.label(ax, "KV pool by use", f"simulated time ({name})", f"KV pool ({unit})")
    style.legend(ax, reverse=True)
    return ax


def gpu_use(timeline: pd.DataFrame, ax: Axes | None = None, *, warmup_s: float | None = None) -> Axes:
    """Draw what the GPUs did over time, as shares, stacked."""
    ax = style.axes(ax)
    timeline = _one(timeline)
    edges = _edges(timeline)
    parts = {use: np.clip(grown(timeline, [f"gpu_{use}_cum_s"], edges), 0, None)
             for use in sorted(GPU_USES, key=lambda use: (use == "idle", use != "decode"))}
    whole = np.maximum(np.sum(list(parts.values()), axis=0), 1e-12)
    scale, name = style.time_scale(float(edges[-1]))
    _stack(ax, edges, {use: 100 * values / whole for use, values in parts.items()
                       if values.sum() > 1e-3 * whole.sum()}, scale)
    _time_axis(ax, edges, scale, warmup_s)
    ax.set_ylim(0, 100)
    style.label(ax, "GPU time by use", f"simulated time ({name})", "GPU time (%)")
    style.legend(ax, reverse=True)
    return ax


def _time_axis(ax: Axes, edges: NDArray[Any], scale: float, warmup_s: float | None) -> None:
    ax.set_xlim(0, float(edges[-1]) / scale)
    if warmup_s and warmup_s < edges[-1]:
        ax.axvline(warmup_s / scale, color=style.BLACK, linestyle=":", linewidth=1.2, label="end of warm-up")


def time_by_cause(turns: pd.DataFrame, ax: Axes | None = None, *, warmup_s: float = 0.0) -> Axes:
    """Draw the mean time of a turn by cause, stacked, one bar a kind of turn: first, resumed, and the slowest 5 %.

    Parameters
    ----------
    turns
        Rows of `sim.records.TURN_COLUMNS`; those that finished and became ready after `warmup_s` count.
    ax
        Where to draw.
    warmup_s
        Seconds.
    """
    ax = style.axes(ax, height=2.6)
    rows = turns[(turns["status"] == "finished") & (turns["ready_s"] >= warmup_s)]
    length = rows["end_s"] - rows["ready_s"]
    slow = rows[length >= length.quantile(0.95)] if len(rows) else rows
    bars = {"slowest 5 %": slow, "resumed turns": rows[~rows["first"]], "first turns": rows[rows["first"]]}
    bars = {name: chosen for name, chosen in bars.items() if len(chosen)}
    means = {cause: [float(chosen[f"{cause}_s"].mean()) for chosen in bars.values()] for cause in TURN_CAUSES}
    base = np.zeros(len(bars))
    whole = sum(np.array(values) for values in means.values()) if bars else base
    for cause, values in means.items():
        if np.any(np.array(values) > 2e-3 * whole):
            ax.barh(range(len(bars)), values, left=base, color=style.COLOURS[cause], label=LABELS[cause],
                    hatch=style.HATCHES.get(cause), edgecolor="white", linewidth=0.6, height=0.7)
        base = base + np.array(values)
    for position, end in enumerate(base):
        ax.annotate(f"{seconds(float(end))}", (end, position), xytext=(4, 0), textcoords="offset points", va="center",
                    fontsize=8.5)
    ax.set_yticks(range(len(bars)), [f"{name}\n({len(chosen):,})" for name, chosen in bars.items()])
    ax.set_xlim(0, max(base.max() if base.size else 0.0, 1e-9) * 1.14)
    ax.grid(axis="y", visible=False)
    style.label(ax, "Where a turn's time goes", "mean time of a turn (s)")
    style.legend(ax)
    return ax


def occupancy(timeline: pd.DataFrame, ax: Axes | None = None, *, warmup_s: float | None = None) -> Axes:
    """Draw turns decoding, in prefill and queued over time, and trajectories alive (averages of each bin)."""
    ax = style.axes(ax)
    timeline = _one(timeline)
    edges = _edges(timeline)
    scale, name = style.time_scale(float(edges[-1]))
    centres = (edges[:-1] + edges[1:]) / 2 / scale
    curves = (("alive", "trajectories alive", style.GREY, "--"), ("decoding", "turns decoding", style.BLUE, "-"),
              ("prefilling", "turns in prefill", style.SKY, "-."), ("waiting", "turns queued", style.RED, "-"))
    for column, text, colour, dash in curves:
        ax.plot(centres, _averages(timeline, column, edges), color=colour, linestyle=dash, label=text,
                linewidth=1.3)
    _time_axis(ax, edges, scale, warmup_s)
    ax.set_ylim(bottom=0)
    style.label(ax, "Turns in the system", f"simulated time ({name})", "turns, trajectories")
    style.legend(ax)
    return ax


def _averages(timeline: pd.DataFrame, column: str, edges: NDArray[Any]) -> NDArray[Any]:
    total = np.zeros(len(edges) - 1)
    for _, rows in timeline.groupby("replica"):
        time, value = rows["time_s"].to_numpy(float), rows[column].to_numpy(float)
        if time.size > 1:
            area = np.concatenate([[0.0], np.cumsum(np.diff(time) * (value[1:] + value[:-1]) / 2)])
            total += np.diff(np.interp(edges, time, area)) / np.diff(edges)
        if column == "alive":  # each replica carries the same figure
            break
    return total


def link_use(timeline: pd.DataFrame, ax: Axes | None = None, *, warmup_s: float | None = None) -> Axes:
    """Draw how busy the host links were over time, each way (mean of the replicas)."""
    ax = style.axes(ax, height=2.6)
    timeline = _one(timeline)
    edges = _edges(timeline)
    scale, name = style.time_scale(float(edges[-1]))
    replicas = max(timeline["replica"].nunique(), 1)
    for column, text, colour, dash in (("link_in_cum_s", "from the host", style.BLUE, "-"),
                                       ("link_out_cum_s", "to the host", style.ORANGE, "-")):
        busy = grown(timeline, [column], edges) / np.diff(edges) / replicas
        ax.step(edges / scale, 100 * np.append(busy, busy[-1:]), where="post", color=colour, linestyle=dash,
                label=text, linewidth=1.3)
    _time_axis(ax, edges, scale, warmup_s)
    ax.set_ylim(0, max(1.0, ax.get_ylim()[1]))
    if not timeline[["link_out_cum_s", "link_in_cum_s"]].to_numpy().any():
        ax.text(0.5, 0.5, "nothing moved", transform=ax.transAxes, ha="center", color=style.GREY)
    style.label(ax, "Host link", f"simulated time ({name})", "busy (%)")
    style.legend(ax)
    return ax


def ttft(turns: pd.DataFrame, ax: Axes | None = None, *, warmup_s: float = 0.0,
         limits: Mapping[str, float] | None = None) -> Axes:
    """Draw the distribution of the time to first token, first and resumed turns apart.

    `limits` are marked: text -> seconds.
    """
    ax = style.axes(ax)
    rows = turns[(turns["status"] == "finished") & (turns["ready_s"] >= warmup_s)]
    curves = {}
    for text, chosen in (("first turns", rows[rows["first"]]), ("resumed turns", rows[~rows["first"]])):
        values = np.sort((chosen["first_token_s"] - chosen["ready_s"]).to_numpy(float))
        if values.size:
            curves[text] = values
    for (text, values), colour, dash in zip(curves.items(), (style.RED, style.BLUE), ("--", "-"), strict=False):
        share = np.linspace(0, 1, min(POINTS, max(values.size, 2)))
        at = np.maximum(np.quantile(values, share), 1e-6)
        ax.plot(at, 100 * share, color=colour, linestyle=dash, label=f"{text} ({values.size:,})")
    _cdf(ax, "Time to first token", "time to first token (log scale)", "turns (%)", limits)
    return ax


def itl(steps: Mapping[str, Any], ax: Axes | None = None, *, limits: Mapping[str, float] | None = None) -> Axes:
    """Draw the distribution of inter-token latency, from the histogram of `steps.json` (after the warm-up)."""
    ax = style.axes(ax)
    found = steps["itl"]
    order = np.argsort(found["low_s"])
    weight = np.array(found["weight"], float)[order]
    if weight.sum() > 0:
        high = np.array(found["high_s"], float)[order]
        ax.step(high, 100 * np.cumsum(weight) / weight.sum(), where="post", color=style.BLUE,
                label="gaps between tokens")
    _cdf(ax, "Inter-token latency", "inter-token latency (log scale)", "gaps (%)", limits)
    return ax


def _cdf(ax: Axes, title: str, x: str, y: str, limits: Mapping[str, float] | None) -> None:
    ax.set_xscale("log")
    for text, limit in (limits or {}).items():
        ax.axvline(limit, color=style.BLACK, linestyle=":", linewidth=1.2, label=text)
    for percentile, align in ((50, "center"), (95, "top"), (99, "bottom")):
        ax.axhline(percentile, color=style.GREY, linewidth=0.7, zorder=0.5)
        ax.text(1.005, percentile, f"p{percentile}", transform=ax.get_yaxis_transform(), fontsize=7.5, va=align,
                color=style.GREY)
    ax.set_ylim(0, 100.5)
    style.seconds_axis(ax.xaxis)
    style.label(ax, title, x, y)
    if len(ax.get_legend_handles_labels()[0]) > 1:
        ax.legend(loc="lower right", frameon=False, fontsize=8.5)


def pauses(pauses: pd.DataFrame, ax: Axes | None = None, *, most: int = 2500) -> Axes:
    """Draw what became of each paused context: its wait against the tokens it alone held, by action.

    At most `most` pauses are drawn, evenly picked; crosses are kept ones that were forced out.
    """
    ax = style.axes(ax)
    rows = pauses[(pauses["end_s"] > pauses["start_s"]) & (pauses["private_tokens"] > 0)]
    rows = rows.iloc[:: max(1, -(-len(rows) // most))]
    for number, (action, chosen) in enumerate(rows.groupby("action", sort=True)):
        for forced, marker, text in ((False, style.MARKERS[number], str(action)), (True, "x", f"{action}, forced out")):
            some = chosen[chosen["forced"] == forced]
            if len(some):
                colour = style.COLOURS.get(str(action), style.GREY)
                ax.scatter(some["end_s"] - some["start_s"], some["private_tokens"], s=11 if not forced else 22,
                           marker=marker, color=style.BLACK if forced else colour, alpha=0.75, linewidths=0.8,
                           edgecolors=None if forced else style.INK if colour == style.YELLOW else "none",
                           label=f"{text} ({len(some):,})", rasterized=True)
    ax.set_xscale("log")
    ax.set_yscale("log")
    style.seconds_axis(ax.xaxis)
    style.tokens_axis(ax.yaxis)
    style.label(ax, "What became of each pause", "wait (log scale)", "private context (tokens)")
    style.legend(ax)
    return ax
