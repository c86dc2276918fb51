"""Figures of memory, from closed forms and the catalogues: how much KV a context takes, and what allocators waste."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.analytic import fragmentation as forms
from sim.analytic import sizing
from sim.report.plots import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sim.scenario.deployment import Deployment

#: Models of the memory wall: dense, mixture, latent attention, sliding windows, linear attention.
MODELS = ("llama-3.1-405b", "llama-3.1-70b", "qwen3-235b-a22b", "llama-3.1-8b", "deepseek-v3", "gpt-oss-120b",
          "qwen3-next-80b-a3b")
#: Live lengths (tokens) of the picture of three allocators, in order of arrival; negative ones have ended.
LENGTHS = (9_000, -5_000, 12_000, -3_000, 7_000)
POOL_TOKENS, REQUEST_TOKENS, S_MAX, BLOCK = 65_536, 14_000, 32_768, 16


def deployed(model: str, hardware: str, tp: int = 8, **fields: Any) -> Deployment:
    """Return a catalogue model on a catalogue node; further `fields` are a scenario's."""
    from sim.scenario import load
    from sim.scenario.deployment import deploy

    given = {"model": model, "hardware": hardware, "parallelism": {"tp": tp}, "workload": {"agents": "coding-agent"}}
    return deploy(load(given | fields))


def memory_wall(models: Sequence[str] = MODELS, ax: Axes | None = None, *, gpu: str = "h100-sxm-80gb",
                dtype: str = "bf16") -> Axes:
    """Draw the KV bytes of one context against its length, a line a model, and the HBM of one GPU and of eight.

    Parameters
    ----------
    models
        Catalogue names; a marker shows the model's context limit, a thin line what lies beyond.
    ax
        Where to draw.
    gpu, dtype
        Whose HBM is marked, and the precision of the KV.
    """
    import hardware_profiles as profiles

    ax = style.axes(ax, width=7.4, height=4.0)
    reach = 2**20
    for number, name in enumerate(models):
        model = profiles.model(name)
        most = min(model.context_limit or reach, reach)
        at = np.geomspace(1024, most, 60)
        held = [model.kv_bytes(int(tokens), dtype) / 1e9 for tokens in at]
        ax.plot(at, held, color=style.SERIES[number % 7], linestyle=style.DASHES[number % 7],
                label=f"{name}, {model.kv_bytes_per_token(dtype) / 1024:,.3g} KiB/token")
        beyond = np.geomspace(most, reach, 20)
        ax.plot(beyond, [model.kv_bytes(int(tokens), dtype) / 1e9 for tokens in beyond],
                color=style.SERIES[number % 7], linewidth=0.8, alpha=0.45)
        ax.plot(at[-1:], held[-1:], color=style.SERIES[number % 7], marker=style.MARKERS[number % 7], markersize=5)
    hbm = profiles.gpu(gpu).hbm_bytes / 1e9
    for count in (1, 8):
        ax.axhline(count * hbm, color=style.BLACK, linewidth=1)
        ax.annotate(f"HBM of {count} x {gpu}: {count * hbm:,.0f} GB", (1100, count * hbm), xytext=(0, 3),
                    textcoords="offset points", fontsize=8.5)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlim(1024, reach * 1.15)
    ax.set_ylim(top=2.2 * 8 * hbm)
    style.tokens_axis(ax.xaxis)
    style.label(ax, "The memory wall: KV of one context", "context (tokens, log scale); markers: the model's limit",
                f"KV cache, {dtype} (GB, log scale)")
    style.legend(ax)
    return ax


def envelope_points(hardware: Sequence[str] = ("dgx-h100", "dgx-b200"), model: str = "llama-3.1-70b", *, tp: int = 8,
                    shares: Sequence[float] = (0.0, 0.75), headroom: float = 0.1,
                    contexts: Sequence[int] = (8_192, 16_384, 32_768, 65_536, 131_072)) -> pd.DataFrame:
    """Return how many trajectories a node's pool holds: one row a node, context and shared part (closed form).

    Columns: ``hardware``, ``context_tokens``, ``shared`` (part of the context common to all), ``trajectories``.
    """
    import pandas as pd

    rows = []
    for name in hardware:
        place = deployed(model, name, tp)
        for tokens in contexts:
            for share in shares:
                common = int(tokens * share) // place.block_size * place.block_bytes
                fit = sizing.shared_concurrency(place.pool_blocks * place.block_bytes, common,
                                                place.trajectory_bytes(tokens) - common, headroom)
                rows.append((name, tokens, share, fit * place.replicas_per_node))
    return pd.DataFrame(rows, columns=["hardware", "context_tokens", "shared", "trajectories"])


def envelope(points: pd.DataFrame | None = None, ax: Axes | None = None, *, value: str = "trajectories",
             shared: str = "shared") -> Axes:
    """Draw how many trajectories nodes hold against context length, a line a node and shared part.

    Parameters
    ----------
    points
        As `envelope_points` returns them, which is what is drawn when left out; or what `sim.envelope` gives.
    ax
        Where to draw.
    value, shared
        Columns: what is counted (``ceiling`` or ``concurrency`` of `sim.envelope`), and the part of a context that is
        common to all (``sharing`` there).
    """
    ax = style.axes(ax)
    points = envelope_points() if points is None else points
    shares = sorted(points[shared].unique())
    for index, (name, rows) in enumerate(points.groupby("hardware", sort=False)):
        for dash, share in enumerate(shares):
            line = rows[rows[shared] == share].sort_values("context_tokens")
            ax.plot(line["context_tokens"], line[value].clip(lower=0.5), color=style.SERIES[index % 7],
                    linestyle=style.DASHES[dash % 7], marker=style.MARKERS[index % 7], markersize=5,
                    label=f"{name}, {share:.0%} shared" if share else f"{name}, nothing shared")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_ylim(bottom=0.8)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else "")
    style.tokens_axis(ax.xaxis)
    style.label(ax, "Trajectories a node holds", "context (tokens, log scale)", "trajectories that fit (log scale)")
    style.legend(ax)
    return ax


def allocated(lengths: Sequence[int], allocator: str) -> list[tuple[int, int]]:
    """Return (tokens allocated, tokens used) of each sequence under an allocator; an ended one (negative) uses 0."""
    def size(tokens: int) -> int:
        if allocator == "paged":
            return forms.blocks_needed(tokens, BLOCK) * BLOCK
        return S_MAX if allocator == "static" else forms.growth_buffer_tokens(tokens)

    return [(size(abs(n)), max(n, 0)) for n in lengths]


def fragmentation(lengths: Sequence[int] = LENGTHS, ax: Axes | None = None, *, pool: int = POOL_TOKENS,
                  request: int = REQUEST_TOKENS) -> Axes:
    """Draw a map of the same sequences in one pool under three allocators: used, allocated in vain, free.

    Parameters
    ----------
    lengths
        Tokens of the sequences in order of arrival; negative ones have ended and left a hole.
    ax
        Where to draw.
    pool, request
        Tokens the pool holds, and of the sequence that asks for room next.
    """
    ax = style.axes(ax, width=7.4, height=3.1)
    names = {"static": f"one buffer of {style.tokens(S_MAX)}\na sequence", "growth": "buffers that\ndouble",
             "paged": f"blocks of {BLOCK}"}
    for row, allocator in enumerate(names):
        at, useful, taken = 0, 0, 0
        holes: list[int] = []
        live = 0
        for size, used in allocated(lengths, allocator):
            if at + size > pool:
                break
            if used:
                ax.barh(row, used, left=at, height=0.56, color=style.BLUE, edgecolor="white")
                ax.barh(row, size - used, left=at + used, height=0.56, color=style.ORANGE, hatch="//",
                        edgecolor="white")
                useful, taken, live = useful + used, taken + size, live + 1
            else:
                holes.append(size)
                ax.barh(row, size, left=at, height=0.56, color=style.LIGHT, edgecolor=style.GREY)
            at += size
        if at < pool:
            ax.barh(row, pool - at, left=at, height=0.56, color=style.LIGHT, edgecolor=style.GREY)
            holes.append(pool - at)
        share = forms.allocation_efficiency(useful, taken)
        ax.text(pool * 1.015, row, f"holds {live} of {sum(n > 0 for n in lengths)}, {share:.0%} of it used\n"
                f"{_verdict(holes, request, allocator)}", va="center", fontsize=8.5)
    ax.set_yticks(range(3), list(names.values()))
    ax.invert_yaxis()
    ax.set_xlim(0, pool * 1.42)
    marks = range(0, pool + 1, pool // 4)
    ax.set_xticks(list(marks), [style.tokens(mark) if mark else "0" for mark in marks])
    ax.grid(visible=False)
    style.label(ax, f"Fragmentation: room for {request:,} more tokens?", "place in the pool (tokens)")
    ax.xaxis.set_label_coords(0.5 / 1.42, -0.13)
    style.legend(ax, below=True, handles=style.patches({
        "used": (style.BLUE, None), "allocated in vain": (style.ORANGE, "//"), "free": (style.LIGHT, None)}))
    return ax


def _verdict(holes: Sequence[int], request: int, allocator: str) -> str:
    need = allocated([request], allocator)[0][0]
    lost = 0.0 if allocator == "paged" else forms.external_fragmentation(holes, need)
    fits = sum(holes) >= need if allocator == "paged" else forms.first_fit(holes, need) is not None
    return (f"{lost:.0%} of free is in too small holes\n"
            f"{style.tokens(need) if need % 1024 == 0 else f'{need:,}'} asked, {style.tokens(sum(holes))} free: "
            f"{'fits' if fits else 'does not fit'}")


def reallocation(ax: Axes | None = None, *, tokens: int = 4_500, initial: int = 256, factor: float = 2.0) -> Axes:
    """Draw the memory one growing sequence holds: a buffer that doubles, its peak while it is copied, and blocks.

    Parameters
    ----------
    ax
        Where to draw.
    tokens
        Length the sequence grows to.
    initial, factor
        Tokens of the first buffer, and by how much it grows.
    """
    ax = style.axes(ax)
    length = np.arange(1, tokens + 1)
    buffer = np.array([forms.growth_buffer_tokens(int(n), initial, factor) for n in length])
    moves = np.flatnonzero(np.diff(buffer)) + 1
    ax.fill_between(length, length, buffer, color=style.ORANGE, alpha=0.55, hatch="//", edgecolor="white", linewidth=0,
                    label="allocated in vain")
    ax.plot(length, buffer, color=style.ORANGE, drawstyle="steps-post", label="buffer that doubles")
    ax.plot(length, [forms.blocks_needed(int(n), BLOCK) * BLOCK for n in length], color=style.BLUE, linestyle="--",
            label=f"blocks of {BLOCK}, tail included")
    peaks = [forms.growth_peak(factor) * buffer[at - 1] for at in moves]
    ax.vlines(length[moves], buffer[moves - 1], peaks, color=style.RED, linewidth=1.4)
    ax.scatter(length[moves], peaks, color=style.RED, marker="^", s=34, zorder=3,
               label=f"peak while copying: {forms.growth_peak(factor):g} x the old buffer")
    ax.set_xlim(0, tokens)
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    style.label(ax, "Reallocation", "length of the sequence (tokens)", "memory held (token slots)")
    ax.legend(loc="upper left", frameon=False, fontsize=8.5)
    return ax
