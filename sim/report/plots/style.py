"""How every figure looks: colours that colour-blind readers and grey printers tell apart, units on every axis."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's palette (Color Universal Design, 2008), and greys.
BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
ORANGE, RED, PURPLE, BLACK = "#E69F00", "#D55E00", "#CC79A7", "#1A1A1A"
GREY, LIGHT, INK = "#8C8C8C", "#E9ECEF", "#333333"

#: Colours of unnamed series, in order; `MARKERS` and `DASHES` go along with them.
SERIES = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 1)))

#: Colours of what the ledgers know; neighbours in a stack differ in lightness.
COLOURS: Mapping[str, str] = {
    "decoding": BLUE, "prefilling": SKY, "kept": ORANGE, "dormant": YELLOW, "dormant_reused": YELLOW,
    "dormant_wasted": "#B8AD1C", "tail_waste": RED, "reserved": PURPLE, "in_flight": GREEN, "free": LIGHT,
    "queue_blocks": RED, "queue_budget": ORANGE, "reload": GREEN, "prefill": SKY, "recompute": PURPLE,
    "interference": YELLOW, "decode": BLUE, "preemption": BLACK, "copy_stall": GREEN, "idle": LIGHT,
    "keep": ORANGE, "release": YELLOW, "drop": RED, "offload": BLUE,
}
#: Patterns that keep two pairs of similar greys apart in print.
HATCHES: Mapping[str, str] = {"kept": "//", "keep": "//", "recompute": "//", "interference": "..", "dormant": "..",
                              "dormant_wasted": "xx"}

_RC: Mapping[str, Any] = {
    "figure.dpi": 100, "savefig.dpi": 150, "figure.facecolor": "white", "figure.constrained_layout.use": True,
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica", "sans-serif"],
    "font.size": 9.5, "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.titlepad": 8, "axes.labelsize": 9.5, "axes.labelcolor": INK, "axes.edgecolor": GREY, "axes.linewidth": 0.8,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.grid": True,
    "grid.color": "#DDDDDD", "grid.linewidth": 0.6, "xtick.color": INK, "ytick.color": INK, "lines.linewidth": 1.8,
    "legend.frameon": False, "legend.fontsize": 8.5, "hatch.linewidth": 0.5, "hatch.color": "#00000055",
    "svg.fonttype": "none", "svg.hashsalt": "kvplan",
}


def context() -> AbstractContextManager[None]:
    """Return the context in which figures are drawn and saved."""
    import matplotlib as mpl

    return mpl.rc_context(dict(_RC))  # type: ignore[arg-type]


def figure(width: float = 6.6, height: float = 3.4, **subplots: Any) -> tuple[Figure, Any]:
    """Return a figure in the house style and its axes (an array when `subplots` asks for several).

    Parameters
    ----------
    width, height
        Inches.
    subplots
        What ``Figure.subplots`` takes.
    """
    from matplotlib.figure import Figure

    with context():
        made = Figure(figsize=(width, height))
        return made, made.subplots(**subplots)


def axes(ax: Axes | None, width: float = 6.6, height: float = 3.4) -> Axes:
    """Return `ax`, or one of a new pyplot figure, dressed in the house style whoever made it."""
    if ax is None:
        import matplotlib.pyplot as plt

        # Not in `context`: a notebook's backend sets itself up here, and leaving the context would undo that.
        ax = plt.subplots(figsize=(width, height), layout="constrained")[1]
    assert ax is not None
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.set_axisbelow(True)
    ax.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    ax.tick_params(colors=INK, labelsize=9)
    return ax


def svg(drawn: Figure | Axes) -> str:
    """Return a figure as an ``<svg>`` element: text stays text, the same figure gives the same bytes."""
    found = getattr(drawn, "figure", None) or drawn
    out = io.StringIO()
    with context():
        found.savefig(out, format="svg", metadata={"Date": None, "Creator": None})  # type: ignore[union-attr]
    text = out.getvalue()
    return text[text.index("<svg"):].rstrip()


def label(ax: Axes, title: str = "", x: str = "", y: str = "") -> None:
    """Set what is given of title and axis labels; a label names its unit."""
    if title:
        ax.set_title(title, loc="left", fontsize=10.5, fontweight="bold", pad=8)
    if x:
        ax.set_xlabel(x, fontsize=9.5, color=INK)
    if y:
        ax.set_ylabel(y, fontsize=9.5, color=INK)


def legend(ax: Axes, *, reverse: bool = False, title: str | None = None, handles: Sequence[Any] = (),
           below: bool = False) -> None:
    """Put the legend to the right of the axes (or in one row below), in the order of a stack when `reverse`.

    `handles` stand in for the artists that carry labels.
    """
    found = list(handles) or ax.get_legend_handles_labels()[0]
    if not found:
        return
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
    if below:
        from matplotlib.transforms import ScaledTranslation

        drop = ScaledTranslation(0, -0.5, ax.figure.dpi_scale_trans)  # inches, whatever the size of the axes
        place = {"loc": "upper left", "bbox_to_anchor": (0.0, 0.0), "bbox_transform": ax.transAxes + drop,
                 "ncols": len(found)}
    ax.legend(handles=found[::-1] if reverse else found, borderaxespad=0.0, title=title, alignment="left",
              frameon=False, fontsize=8.5, **place)


def patches(kinds: Mapping[str, tuple[str, str | None]]) -> list[Any]:
    """Return legend handles for areas: text -> colour and hatch."""
    from matplotlib.patches import Patch

    return [Patch(facecolor=colour, hatch=hatch, edgecolor=GREY if colour in ("white", LIGHT) else "white", label=text)
            for text, (colour, hatch) in kinds.items()]


def time_scale(end_s: float) -> tuple[float, str]:
    """Return how many seconds the unit of a time axis has, and its name."""
    if end_s > 3 * 86400:
        return 86400.0, "d"
    return (3600.0, "h") if end_s > 3 * 3600 else (60.0, "min") if end_s > 300 else (1.0, "s")


def bytes_scale(most: float) -> tuple[float, str]:
    """Return the bytes of the decimal unit that suits an axis up to `most` bytes, and its name."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if most >= size:
            return size, unit
    return 1.0, "B"


def seconds_axis(axis: Any) -> None:
    """Write the ticks of a logarithmic axis in us, ms, s, min and h."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    from sim.metrics.wording import seconds

    low, high = sorted(axis.get_view_interval())
    marks = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, 360000.0]
    inside = [mark for mark in marks if low <= mark <= high]
    if len(inside) < 3:
        marks = sorted({m * 10.0**e for e in range(-6, 6) for m in (1, 2, 5)})
        inside = [mark for mark in marks if low <= mark <= high]
    axis.set_major_locator(FixedLocator(inside))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))


def tokens_axis(axis: Any) -> None:
    """Write the ticks of a logarithmic axis of tokens as powers of two: 8k is 8,192."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = sorted(axis.get_view_interval())
    marks = [2**power for power in range(6, 24) if low <= 2**power <= high]
    axis.set_major_locator(FixedLocator(marks[:: 2 if len(marks) > 9 else 1]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: tokens(value)))


def tokens(value: float) -> str:
    """Return a number of tokens as ticks show it: 8k is 8,192, 1M is 1,048,576."""
    if value >= 2**20:
        return f"{value / 2**20:.3g}M"
    return f"{value / 1024:.3g}k" if value >= 1024 else f"{value:.0f}"


#: Marks as near to each other as this share one text.
_CLOSE_PX = 14


def label_marks(ax: Axes, marks: Sequence[tuple[float, float, str]]) -> None:
    """Write texts beside points; those of points that lie on each other are written once, with commas."""
    groups: list[tuple[float, float, list[str]]] = []
    for x, y, text in marks:
        here = ax.transData.transform((x, y))
        near = next((texts for a, b, texts in groups
                     if abs(ax.transData.transform((a, b)) - here).max() < _CLOSE_PX), None)
        if near is None:
            groups.append((x, y, [text]))
        elif text not in near:
            near.append(text)
    for x, y, texts in groups:
        ax.annotate(", ".join(texts), (x, y), xytext=(5, 5), textcoords="offset points", fontsize=8)
