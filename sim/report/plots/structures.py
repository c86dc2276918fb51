"""Pictures of structures: a block table and a fork, a prefix tree, the tiers of a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sim.analytic.fragmentation import blocks_needed, full_blocks
from sim.report.plots import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from hardware_profiles import NodeProfile
    from sim.memory.prefix_tree import PrefixTree

#: Colours of a prefix tree's spans by state.
STATES: Mapping[str, str] = {"in use": style.BLUE, "kept": style.ORANGE, "dormant": style.YELLOW,
                             "evicted": "white"}


def forked(tokens: int = 100, block: int = 16) -> dict[str, list[int]]:
    """Return block tables of a sequence, of a child right after a fork, and of one that has written a token.

    Physical numbers are scattered, as a free list hands them out; the third table has its own copy of the tail when
    the tail is partly filled (copy-on-write), a new block when it is not.
    """
    count = blocks_needed(tokens, block)
    parent = [(7 * n + 3) % 16 for n in range(count)]
    whole, tail = full_blocks(tokens, block)
    fresh = next(number for number in range(64) if number not in parent)
    return {"parent": parent, "child, after the fork": list(parent),
            "child, after its first write": [*parent[:whole], fresh] if tail else [*parent, fresh]}


def block_table(tables: Mapping[str, Sequence[int]] | None = None, ax: Axes | None = None, *, tokens: int = 100,
                block: int = 16, pool: int = 16) -> Axes:
    """Draw block tables over the physical blocks they point to, with each block's number of users.

    Parameters
    ----------
    tables
        Name -> physical block of each logical one; by default a fork of `tokens` tokens.
    ax
        Where to draw.
    tokens, block
        Length of the parent and block size, for the default and the title.
    pool
        Physical blocks drawn.
    """
    ax = style.axes(ax, width=7.4, height=4.0)
    given = forked(tokens, block) if tables is None else tables
    users: dict[int, int] = {}
    height = 1.35
    for row, (name, entries) in enumerate(given.items()):
        y = height * (len(given) - row) + 0.9
        ax.text(-0.3, y + 0.25, name, ha="right", va="center", fontsize=9)
        for logical, physical in enumerate(entries):
            users[physical] = users.get(physical, 0) + 1
            x = logical + (pool - 9) / 2
            _cell(ax, x, y, 0.5, style.SERIES[row % 7], str(physical), "white")
            ax.plot([x + 0.45, physical + 0.45], [y, 0.62], color=style.SERIES[row % 7], linewidth=0.9,
                    alpha=0.65, linestyle=style.DASHES[row % 7])
    for physical in range(pool):
        count = users.get(physical, 0)
        colour = "white" if not count else style.SKY if count > 1 else "#D6E9F8"
        _cell(ax, physical, 0, 0.62, colour, f"{physical}", style.BLACK)
        ax.text(physical + 0.45, -0.3, f"{count}" if count else "free", ha="center", va="center", fontsize=8.5,
                color=style.INK)
    ax.text(-0.3, 0.31, "physical blocks", ha="right", va="center", fontsize=9)
    ax.text(-0.3, -0.3, "users", ha="right", va="center", fontsize=9)
    _bare(ax, (-4.7, pool), (-0.6, height * len(given) + 1.7))
    whole, tail = full_blocks(tokens, block)
    ax.set_title(f"Block tables: {tokens} tokens are {whole} full blocks of {block} and {tail} tokens in a tail")
    return ax


def _cell(ax: Axes, x: float, y: float, height: float, colour: str, text: str, ink: str) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((x, y), 0.9, height, facecolor=colour, edgecolor=style.INK, linewidth=0.8))
    ax.text(x + 0.45, y + height / 2, text, ha="center", va="center", fontsize=8.5, color=ink)


def _bare(ax: Axes, x: tuple[float, float], y: tuple[float, float]) -> None:
    ax.set_xlim(*x)
    ax.set_ylim(*y)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)


def tree_spans(tree: PrefixTree, before: Iterable[Any] = ()) -> pd.DataFrame:
    """Return the spans of a prefix tree: ``label``, ``parent``, ``first`` and ``end`` (tokens), ``state``.

    Parameters
    ----------
    tree
        The simulator's own.
    before
        Rows of an earlier call; what they held and the tree no longer holds is added as evicted.
    """
    import pandas as pd

    size = tree.pool.block_tokens
    rows: list[dict[str, Any]] = []
    for node in tree.nodes.values():
        parent = node.parent.stream.label if node.parent is not None else ""
        used = min(max(node.used_end, node.first), node.end)
        for low, high, state in ((node.first, used, "in use" if node.running else "kept"),
                                 (used, node.end, "dormant")):
            if high > low:
                rows.append({"label": node.stream.label, "parent": parent, "first": low * size, "end": high * size,
                             "state": state})
    reach: dict[str, int] = {}
    for row in rows:
        reach[row["label"]] = max(reach.get(row["label"], 0), row["end"])
    for old in before:
        low = max(old["first"], reach.get(old["label"], old["first"]))
        if old["end"] > low and old["state"] != "evicted":
            rows.append({**old, "first": low, "state": "evicted"})
    return pd.DataFrame(rows, columns=["label", "parent", "first", "end", "state"])


def prefix_tree(spans: pd.DataFrame, ax: Axes | None = None, *, title: str = "Prefix tree") -> Axes:
    """Draw a prefix tree: a row a stream, from the token where it leaves its parent to its end, coloured by state.

    Parameters
    ----------
    spans
        As `tree_spans` returns them.
    ax
        Where to draw.
    title
        Above it.
    """
    rows = _rows(spans)
    ax = style.axes(ax, width=7.4, height=0.9 + 0.36 * len(rows))
    for span in spans.itertuples():
        gone = span.state == "evicted"
        ax.barh(rows[span.label], span.end - span.first, left=span.first, height=0.62, color=STATES[span.state],
                edgecolor=style.GREY if gone else style.INK, linewidth=0.8, linestyle="--" if gone else "-",
                hatch=None if gone else style.HATCHES.get(span.state))
    starts = spans.groupby("label")["first"].min()
    for label, parent in spans.drop_duplicates("label")[["label", "parent"]].itertuples(index=False):
        if parent in rows:
            ax.plot([starts[label]] * 2, [rows[parent] + 0.31, rows[label] - 0.31], color=style.INK, linewidth=1,
                    linestyle=":")
    seen = set(spans["state"])
    for state, colour in STATES.items():
        if state in seen:
            ax.bar(0, 0, color=colour, edgecolor=style.GREY if state == "evicted" else style.INK, label=state,
                   hatch=style.HATCHES.get(state), linestyle="--" if state == "evicted" else "-")
    ax.set_yticks(list(rows.values()), list(rows))
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.grid(axis="y", visible=False)
    style.label(ax, title, "position in the prompt (tokens)")
    style.legend(ax)
    return ax


def _rows(spans: pd.DataFrame) -> dict[str, int]:
    """Return a row for each stream: depth first, children below their parent."""
    kin: dict[str, list[str]] = {}
    named = spans.drop_duplicates("label")
    known = set(named["label"])
    for label, parent in named[["label", "parent"]].itertuples(index=False):
        kin.setdefault(parent if parent in known else "", []).append(label)
    order: list[str] = []
    stack = list(reversed(kin.get("", [])))
    while stack:
        label = stack.pop()
        order.append(label)
        stack += reversed(kin.get(label, []))
    return {label: row for row, label in enumerate(order)}


def tiers(node: str | NodeProfile = "dgx-h100", ax: Axes | None = None) -> Axes:
    """Draw where a node's KV can lie and how fast it moves between: sizes in boxes, rates on arrows.

    Parameters
    ----------
    node
        A catalogue name or a profile; rates are those of its file (achieved ones where they were measured).
    ax
        Where to draw.
    """
    from hardware_profiles import node as named
    from sim.report.catalogue import amount, rate

    at = named(node) if isinstance(node, str) else node
    ax = style.axes(ax, width=7.4, height=2.7)
    link = at.host_link
    boxes = [(f"HBM\n{at.gpus} x {amount(at.gpu.hbm_bytes)}\n{rate(at.gpu.hbm_Bps)} each", style.SKY)]
    arrows = [(f"{link.kind}", f"out {rate(link.out_Bps)} a GPU", f"in {rate(link.in_Bps)} a GPU")]
    boxes.append((f"host DRAM\n{amount(at.host_dram_bytes)}\n{rate(at.host_dram_Bps)}" if at.host_dram_Bps else
                  f"host DRAM\n{amount(at.host_dram_bytes)}", "#D6E9F8"))
    if at.nvme_read_Bps:
        boxes.append((f"NVMe\n{at.nvme_bytes / 1e12:.3g} TB", style.YELLOW))
        arrows.append(("all drives", f"write {rate(at.nvme_write_Bps)}", f"read {rate(at.nvme_read_Bps)}"))
    if at.nic_Bps:
        boxes.append(("remote\nother nodes", style.LIGHT))
        arrows.append(("all adapters", f"out {rate(at.nic_Bps)}", f"in {rate(at.nic_Bps)}"))
    _chain(ax, boxes, arrows, branch=bool(at.nvme_read_Bps and at.nic_Bps))
    ax.set_title(f"Tiers of a {at.name}")
    return ax


def _chain(ax: Axes, boxes: Sequence[tuple[str, str]], arrows: Sequence[tuple[str, str, str]], *,
           branch: bool) -> None:
    """Draw boxes from left to right; with `branch` the last two both hang on the second."""
    from matplotlib.patches import FancyBboxPatch

    places = [(0.0, 1.0), (4.6, 1.0)] + ([(9.2, 2.05), (9.2, -0.05)] if branch else [(9.2, 1.0)][:len(boxes) - 2])
    for (text, colour), (x, y) in zip(boxes, places, strict=True):
        ax.add_patch(FancyBboxPatch((x, y), 2.0, 1.3, boxstyle="round,pad=0.04,rounding_size=0.1", facecolor=colour,
                                    edgecolor=style.INK))
        ax.text(x + 1.0, y + 0.65, text, ha="center", va="center", fontsize=9)
    for (kind, out, back), (x, y), start in zip(arrows, places[1:], (places[0], places[1], places[1]), strict=False):
        begin, lift = start[0] + 2.08, (y - start[1]) * 0.55
        for text, shift, ends, side in ((out, 0.17, (begin, x - 0.08), "bottom"), (back, -0.17, (x - 0.08, begin),
                                                                                  "top")):
            ys = (start[1] + 0.65 + lift * 0.3 + shift, y + 0.65 + shift)
            ax.annotate("", (ends[1], ys[1] if ends[1] > ends[0] else ys[0]),
                        (ends[0], ys[0] if ends[1] > ends[0] else ys[1]),
                        arrowprops={"arrowstyle": "-|>", "color": style.INK, "linewidth": 1.3})
            ax.text((begin + x) / 2, sum(ys) / 2 + (0.06 if shift > 0 else -0.06) + (0.28 if shift > 0 else -0.28)
                    * bool(lift), text, ha="center", va=side, fontsize=8.5)
        ax.text((begin + x) / 2, (start[1] + y) / 2 + 0.65 + 0.55 + 0.5 * (lift > 0) - 1.7 * (lift < 0), kind,
                ha="center", va="center", fontsize=8.5, style="italic", color=style.INK)
    _bare(ax, (-0.2, 11.4), (-0.35, 3.6) if branch else (0.5, 2.8))
