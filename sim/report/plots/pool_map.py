"""The fragmentation map: what every part of a pool is used for at a moment, one row an allocator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sim.analytic import fragmentation as forms
from sim.report.plots import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sim.memory.allocators.base import Allocator

#: Uses of a segment: what the legend says, colour, hatch.
_USES = {"useful": ("useful", style.BLUE, None), "reserved": ("reserved, empty", style.ORANGE, "//"),
         "hole": ("hole", style.LIGHT, None)}


def segments(allocators: Mapping[str, Allocator]) -> pd.DataFrame:
    """Return the address spaces of some allocators, named by the keys, as `address_space` draws them.

    Returns
    -------
    DataFrame
        Columns ``allocator``, ``start`` and ``end`` (token slots), ``use`` (useful, reserved, hole) and ``sequence``
        (missing for holes and for what is shared).
    """
    import pandas as pd

    rows = [(name, *segment) for name, allocator in allocators.items() for segment in allocator.segments()]
    frame = pd.DataFrame(rows, columns=["allocator", "start", "end", "use", "sequence"])
    return frame.astype({"sequence": "Int64"})


def address_space(segments: pd.DataFrame, ax: Axes | None = None, *, request: int | None = None,
                  block_tokens: Mapping[str, int] | None = None) -> Axes:
    """Draw which token slots of a pool are useful, reserved in vain, or holes: one row an allocator.

    Parameters
    ----------
    segments
        Columns ``allocator``, ``start``, ``end`` (token slots) and ``use``, as `segments` returns them.
    ax
        Where to draw.
    request
        Tokens somebody asks for: the text beside a row says how much of what is free is too scattered for them.
    block_tokens
        Allocators that serve a request from pieces of so many tokens instead of from one.
    """
    names = list(dict.fromkeys(segments["allocator"]))
    ax = style.axes(ax, width=7.4, height=0.9 + 0.62 * len(names))
    end = int(segments["end"].max()) if len(segments) else 1
    for row, name in enumerate(names):
        mine = segments[segments["allocator"] == name]
        widths = mine["end"] - mine["start"]
        for use, (_, colour, hatch) in _USES.items():
            there = mine["use"] == use
            ax.broken_barh(list(zip(mine["start"][there], widths[there], strict=True)), (row - 0.3, 0.6),
                           facecolor=colour, hatch=hatch, edgecolor=style.GREY if use == "hole" else "white",
                           linewidth=0.4)
        sizes = {use: int(widths[mine["use"] == use].sum()) for use in _USES}
        text = (f"{forms.allocation_efficiency(sizes['useful'], sizes['useful'] + sizes['reserved']):.0%} of what is "
                f"allocated,\n{forms.effective_occupancy(sizes['useful'], sum(sizes.values())):.0%} of the pool useful")
        if request is not None:
            piece = min(request, (block_tokens or {}).get(name, request))
            lost = forms.external_fragmentation([int(size) for size in widths[mine["use"] == "hole"]], piece)
            text += f"\n{lost:.0%} of free too scattered"
        ax.text(end * 1.015, row, text, va="center", fontsize=8)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(max(len(names), 1) - 0.5, -0.5)
    ax.set_xlim(0, end * 1.38)
    marks = [end * quarter // 4 for quarter in range(5)]
    ax.set_xticks(marks, [style.tokens(mark) if mark else "0" for mark in marks])
    ax.grid(visible=False)
    asked = "" if request is None else f"; room for {request:,} more tokens?"
    style.label(ax, f"The pool at a moment{asked}", "place in the pool (tokens)")
    ax.xaxis.label.set_x(0.5 / 1.38)  # below the pool, not below the text beside it
    kinds = {text: (colour, hatch) for text, colour, hatch in _USES.values()}
    style.legend(ax, below=True, handles=style.patches(kinds))
    return ax
