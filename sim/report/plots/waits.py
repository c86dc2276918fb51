"""Figures of time, from closed forms: step lengths with and without chunks, what a pause costs, and when to do what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim.analytic import break_even as forms
from sim.analytic import roofline
from sim.metrics.wording import seconds
from sim.report.plots import style
from sim.report.plots.memory import deployed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sim.scenario.deployment import Deployment

#: Tokens of a prompt that one step computes at most, where a context is recomputed.
BUDGET = 8_192


def steps_of(prompt: int, chunk: int, *, streams: int = 32, n_params: float = 70e9, weight_bytes: float = 140e9,
             flops: float = 480e12, hbm_Bps: float = 3.0e12, before: int = 6, after: int = 6,
             ) -> list[tuple[float, str]]:
    """Return the lengths of steps around a prompt that joins `streams` decoding turns, and what each does.

    A step takes the longer of its matrix products and one read of the weights (KV traffic is left out).
    """
    decode_s = roofline.step_s(roofline.linear_flop(n_params, streams), weight_bytes, flops, hbm_Bps)
    steps = [(decode_s, "decode")] * before
    if chunk >= prompt:
        steps.append((roofline.step_s(roofline.linear_flop(n_params, prompt), weight_bytes, flops, hbm_Bps),
                      "prefill"))
    else:
        count = roofline.chunks(prompt, chunk)
        for n in range(count):
            new = min(chunk, prompt - n * chunk)
            steps.append((roofline.step_s(roofline.linear_flop(n_params, new + streams), weight_bytes, flops, hbm_Bps),
                          "both"))
    return steps + [(decode_s, "decode")] * after


def step_lengths(prompt: int = 4_096, chunks: Sequence[int] = (512,), ax: Axes | None = None,
                 **model: Any) -> Axes:
    """Draw steps one after another while a prompt is computed: whole, then in chunks; the longest gap is named.

    Parameters
    ----------
    prompt
        Tokens of the prompt.
    chunks
        Chunk sizes, a lane each, below the monolithic one.
    ax
        Where to draw.
    model
        What `steps_of` takes.
    """
    lanes = [prompt, *chunks]
    ax = style.axes(ax, width=7.4, height=1.3 + 0.75 * len(lanes))
    colours: dict[str, tuple[str, str | None]] = {
        "decode": (style.BLUE, None), "prefill": (style.RED, "//"), "both": (style.SKY, None)}
    ends = []
    for row, chunk in enumerate(lanes):
        at = 0.0
        for length, kind in steps_of(prompt, chunk, **model):
            ax.barh(row, length, left=at, height=0.55, color=colours[kind][0], hatch=colours[kind][1],
                    edgecolor="white", linewidth=0.8)
            at += length
        ends.append(at)
        longest = max(length for length, _ in steps_of(prompt, chunk, **model))
        ax.text(at + 0.015 * max(ends), row, f"longest gap\n{seconds(longest)}", va="center", fontsize=8.5)
    ax.set_yticks(range(len(lanes)), ["whole prompt\nat once", *(f"chunks of\n{chunk}" for chunk in chunks)])
    ax.invert_yaxis()
    ax.set_xlim(0, max(ends) * 1.17)
    ax.grid(axis="y", visible=False)
    style.label(ax, f"A prompt of {prompt:,} tokens joins a running batch", "time (s); one bar a step")
    style.legend(ax, below=True, handles=style.patches({
        "decode only": colours["decode"], "decode and a chunk": colours["both"], "prefill only": colours["prefill"]}))
    return ax


class Pause:
    """What a pause of one context could cost on a deployment, by closed forms; all vectorised over tokens.

    Parameters
    ----------
    place
        Model and hardware, worked out.
    mu_hbm, mu_dram
        Shadow prices of a byte-second (only their ratio matters).
    mfu
        Share of the peak at which a context is recomputed.
    """

    def __init__(self, place: Deployment, mu_hbm: float = 1.0, mu_dram: float = 0.05, mfu: float = 0.5) -> None:
        self.place, self.mu_hbm, self.mu_dram, self.mfu = place, mu_hbm, mu_dram, mfu

    def bytes(self, tokens: float) -> float:
        """Return the bytes of the context."""
        return self.place.kv_bytes(int(tokens))

    def reload_s(self, tokens: float, link_Bps: float | None = None) -> float:
        """Return the seconds to bring the context back over the host link, or over `link_Bps`."""
        rate = self.place.host_link_Bps_in if link_Bps is None else min(link_Bps, self.place.host_link_Bps_in)
        return forms.reload_s(self.bytes(tokens), rate, self.place.host_link_latency_s)

    def trip_s(self, tokens: float) -> float:
        """Return the seconds out to DRAM and back."""
        place = self.place
        return forms.round_trip_s(self.bytes(tokens), place.host_link_Bps_out, place.host_link_Bps_in,
                                  place.host_link_latency_s)

    def threshold_s(self, tokens: float) -> float:
        """Return the break-even wait."""
        return forms.break_even_wait_s(self.trip_s(tokens), self.mu_hbm, self.mu_dram)

    def recompute_s(self, tokens: float) -> float:
        """Return the seconds to compute the context again (its attention under the causal mask)."""
        place = self.place
        flop = (roofline.linear_flop(place.n_active_params, tokens)
                + roofline.chunk_attention_flop(place.full_layers, place.d_attn, tokens, 0))
        return roofline.compute_s(flop, place.peak_flops, self.mfu)

    def costs(self, tokens: float, wait_s: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the price of each action at each wait, in byte-seconds of HBM.

        ``keep``: ``M T``. ``offload``: the round trip in HBM, the wait in DRAM. ``drop``: the GPUs compute for R
        seconds, during which the whole pool waits: ``R x pool``.
        """
        held = self.bytes(tokens)
        return {"keep": self.mu_hbm * held * wait_s,
                "offload": np.where(wait_s > self.trip_s(tokens),
                                    self.mu_hbm * held * self.trip_s(tokens) + self.mu_dram * held * wait_s, np.inf),
                "drop": np.full_like(wait_s, self.mu_hbm * self.recompute_s(tokens) * self.place.pool_bytes)}


def break_even(ax: Axes | None = None, *, place: Deployment | None = None, mu_dram: float = 0.05) -> Axes:
    """Draw, against context length, what a returning turn pays (recompute, reload) and the break-even wait.

    Parameters
    ----------
    ax
        Where to draw.
    place
        Model and hardware; Llama-3.1-70B on a DGX H100 when left out.
    mu_dram
        Shadow price of a byte-second in DRAM, that of HBM being 1.
    """
    ax = style.axes(ax)
    pause = Pause(deployed("llama-3.1-70b", "dgx-h100") if place is None else place, mu_dram=mu_dram)
    node = pause.place.node
    at = np.geomspace(1024, pause.place.model.context_limit or 131_072, 60)
    curves = [("compute again", [pause.recompute_s(n) for n in at]),
              ("reload from NVMe", [pause.reload_s(n, node.nvme_read_Bps) for n in at] if node.nvme_read_Bps else []),
              ("break-even wait, DRAM", [pause.threshold_s(n) for n in at]),
              ("reload from DRAM", [pause.reload_s(n) for n in at])]
    for number, (text, values) in enumerate(curves):
        if values:
            ax.plot(at, values, color=style.SERIES[number], linestyle=style.DASHES[number], label=text)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    style.tokens_axis(ax.xaxis)
    style.seconds_axis(ax.yaxis)
    style.label(ax, f"Cost of a pause: {pause.place.model.name} on {node.name}",
                "context (tokens, log scale)", "time (log scale)")
    style.legend(ax)
    return ax


def regimes(ax: Axes | None = None, *, place: Deployment | None = None, mu_dram: float = 0.05) -> Axes:
    """Draw which action is cheapest in the plane of context and wait: keep, offload or drop.

    Prices are those of `Pause.costs`; the dashed line is the break-even wait ``T*``.

    Parameters
    ----------
    ax
        Where to draw.
    place
        Model and hardware; Llama-3.1-70B on a DGX H100 when left out.
    mu_dram
        Shadow price of a byte-second in DRAM, that of HBM being 1.
    """
    from matplotlib.colors import ListedColormap

    ax = style.axes(ax)
    pause = Pause(deployed("llama-3.1-70b", "dgx-h100") if place is None else place, mu_dram=mu_dram)
    contexts = np.geomspace(1024, pause.place.model.context_limit or 131_072, 90)
    waits = np.geomspace(1e-3, 36_000.0, 140)
    names = ("keep", "offload", "drop")
    best = np.array([np.argmin([pause.costs(n, waits)[name] for name in names], axis=0) for n in contexts]).T
    ax.pcolormesh(contexts, waits, best, cmap=ListedColormap([style.ORANGE, "#9CCBE8", "#E8A27C"]), vmin=0, vmax=2,
                  shading="nearest", rasterized=True)
    ax.plot(contexts, [pause.threshold_s(n) for n in contexts], color=style.BLACK, linestyle="--", linewidth=1.2)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_ylim(waits[0], waits[-1])
    middle = len(contexts) // 2
    for value, name in enumerate(names):
        where = np.flatnonzero(best[:, middle] == value)
        if where.size:
            ax.text(contexts[middle], waits[int(where.mean())], name, ha="center", va="center", fontsize=12,
                    fontweight="bold")
    ax.annotate("T*", (contexts[-12], pause.threshold_s(contexts[-12])), xytext=(0, 5), textcoords="offset points",
                fontsize=9)
    style.tokens_axis(ax.xaxis)
    style.seconds_axis(ax.yaxis)
    ax.grid(visible=False)
    style.label(ax, f"Cheapest action, {pause.place.model.name} on {pause.place.node.name}",
                "private context (tokens, log scale)", "wait (log scale)")
    return ax
