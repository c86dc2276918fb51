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
    """Return block tables of a sequence and of a child forked from it that has written one token.

    Physical numbers are scattered, as a free list hands them out. Up to its first write the child's table is its
    parent's. Then it has its own copy of the tail when the tail is partly filled (copy-on-write), else a new block.
    """
    count = blocks_needed(tokens, block)
    parent = [(7 * n + 3) % 16 for n in range(count)]
    whole, tail = full_blocks(tokens, block)
    fresh = next(number for number in range(64) if number not in parent)
    return {"parent": parent, "child, after its\nfirst write": [*parent[:whole], fresh] if tail else [*parent, fresh]}


def block_table(tables: Mapping[str, Sequence[int]] | None = None, ax: Axes | None = None, *, tokens: int = 100,
                block: int = 16, pool: int = 16) -> Axes:
    """Draw two block tables, above and below the physical blocks they point to, with each block's number of users.

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
    ax = style.axes(ax, width=7.4, height=3.2)
    given = forked(tokens, block) if tables is None else tables
    users: dict[int, int] = {}
    for (name, entries), y, side, colour, dash in zip(given.items(), (2.6, -2.4), (0, 1), (style.BLUE, style.RED),
                                                      ("-", "--"), strict=False):
        ax.text(-0.3, y + 0.3, name, ha="right", va="center", fontsize=9)
        for logical, physical in enumerate(entries):
            users[physical] = users.get(physical, 0) + 1
            x = logical * 1.25 + (pool - 1.25 * len(entries)) / 2
            _cell(ax, x, y, 0.6, colour, str(physical), "white")
            ax.plot([x + 0.45, physical + 0.45], [y + 0.6 * side, 0.62 * (1 - side)], color=colour, linewidth=1,
                    linestyle=dash)
    for physical in range(pool):
        count = users.get(physical, 0)
        colour = "white" if not count else style.SKY if count > 1 else "#D6E9F8"
        _cell(ax, physical, 0, 0.62, colour, f"{physical}", style.GREY if not count else style.BLACK)
    ax.text(-0.3, 0.31, "physical blocks", ha="right", va="center", fontsize=9)
    _bare(ax, (-3.6, pool + 0.1), (-2.6, 3.4))
    whole, tail = full_blocks(tokens, block)
    style.label(ax, f"Block tables after a fork: {tokens} tokens = {whole} full blocks of {block} + {tail} in a tail")
    style.legend(ax, below=True, handles=style.patches({
        "two users": (style.SKY, None), "one user": ("#D6E9F8", None), "free": ("white", None)}))
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
        run, used = (min(max(end, node.first), node.end) for end in (node.run_end, node.used_end))
        for low, high, state in ((node.first, run, "in use"), (run, used, "kept"), (used, node.end, "dormant")):
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
    for span in spans.to_dict("records"):
        state = str(span["state"])
        gone = state == "evicted"
        ax.barh(rows[span["label"]], span["end"] - span["first"], left=span["first"], height=0.62,
                color=STATES[state], edgecolor=style.GREY if gone else style.INK, linewidth=0.8,
                linestyle="--" if gone else "-", hatch=None if gone else style.HATCHES.get(state))
    starts = spans.groupby("label")["first"].min()
    for label, parent in spans.drop_duplicates("label")[["label", "parent"]].itertuples(index=False):
        if parent in rows:
            ax.plot([starts[label]] * 2, [rows[parent] + 0.31, rows[label] - 0.31], color=style.INK, linewidth=1,
                    linestyle=":")
    seen = set(spans["state"])
    handles = style.patches({state: (colour, style.HATCHES.get(state)) for state, colour in STATES.items()
                             if state in seen})
    ax.set_yticks(list(rows.values()), list(rows))
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.grid(axis="y", visible=False)
    style.label(ax, title, "position in the prompt (tokens)")
    style.legend(ax, handles=handles)
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
    ax = style.axes(ax, width=7.4, height=2.9)
    link = at.host_link
    far = [("NVMe", f"{at.nvme_bytes / 1e12:.3g} TB", "all drives", f"write {rate(at.nvme_write_Bps)}",
            f"read {rate(at.nvme_read_Bps)}")] if at.nvme_read_Bps else []
    if at.nic_Bps:
        far.append(("remote", "other nodes", "all adapters", f"out {rate(at.nic_Bps)}", f"in {rate(at.nic_Bps)}"))
    height = 1.9 * max(len(far), 1) - 0.5
    _box(ax, 0.0, 0.0, height, f"HBM\n{at.gpus} x {amount(at.gpu.hbm_bytes)}\n{rate(at.gpu.hbm_Bps)} each", style.SKY)
    own = f"\n{rate(at.host_dram_Bps)}" if at.host_dram_Bps else ""
    _box(ax, 4.6, 0.0, height, f"host DRAM\n{amount(at.host_dram_bytes)}{own}", "#D6E9F8")
    _arrows(ax, 2.1, height / 2, link.kind, f"out {rate(link.out_Bps)} a GPU", f"in {rate(link.in_Bps)} a GPU")
    for row, (name, size, how, out, back) in enumerate(reversed(far)):
        _box(ax, 9.2, 1.9 * row, 1.4, f"{name}\n{size}", style.LIGHT)
        _arrows(ax, 6.7, 1.9 * row + 0.7, how, out, back)
    _bare(ax, (-0.2, 11.4 if far else 6.8), (-0.2, height + 0.25))
    style.label(ax, f"Tiers of a {at.name}")
    return ax


def _box(ax: Axes, x: float, y: float, height: float, text: str, colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    ax.add_patch(FancyBboxPatch((x, y), 2.0, height, boxstyle="round,pad=0.04,rounding_size=0.1", facecolor=colour,
                                edgecolor=style.INK, linewidth=0.9))
    ax.text(x + 1.0, y + height / 2, text, ha="center", va="center", fontsize=9)


def _arrows(ax: Axes, x: float, y: float, kind: str, out: str, back: str) -> None:
    """Draw a pair of arrows, 2.4 long, from `x` on: to the right with what goes out, to the left with what returns."""
    for begin, end, lift, text, side in ((x, x + 2.4, 0.12, out, "bottom"), (x + 2.4, x, -0.12, back, "top")):
        ax.annotate("", (end, y + lift), (begin, y + lift),
                    arrowprops={"arrowstyle": "-|>", "color": style.INK, "linewidth": 1.3})
        ax.text(x + 1.2, y + 1.5 * lift, text, ha="center", va=side, fontsize=8.5)
    ax.text(x + 1.2, y + 0.56, kind, ha="center", va="bottom", fontsize=8.5, style="italic", color=style.GREY)
