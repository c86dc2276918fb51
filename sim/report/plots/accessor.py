"""`result.plot.<name>()`: the figures of a run, filled in from its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sim.metrics.wording import seconds
from sim.report.plots import pool_map, runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sim.sweep.result import Result


class Plots:
    """Figures of one run; each takes an `ax` and returns it, and takes what its function in `sim.report.plots` takes.

    Calling the accessor itself (``result.plot()``) draws an overview.
    """

    def __init__(self, result: Result) -> None:
        self.result = result

    def __repr__(self) -> str:
        names = [name for name in dir(type(self)) if not name.startswith("_")]
        return f"<plots of {self.result!r}: {', '.join(names)}>"

    @property
    def _warmup_s(self) -> float:
        return float(self.result.summary["checks"]["warmup_s"])

    def _limits(self, *metrics: str) -> dict[str, float]:
        """Return the objectives of a metric, by the text that marks them."""
        slo: Mapping[str, Any] = getattr(self.result.scenario, "slo", None) or {}
        return {f"limit of {statistic}, {seconds(limit)}": float(limit) for metric in metrics
                for statistic, limit in (slo.get(metric) or {}).items()}

    def pool_use(self, ax: Axes | None = None) -> Axes:
        """Draw what the KV pool held over time."""
        return runs.pool_use(self.result.timeline, ax, warmup_s=self._warmup_s)

    def gpu_use(self, ax: Axes | None = None) -> Axes:
        """Draw what the GPUs did over time."""
        return runs.gpu_use(self.result.timeline, ax, warmup_s=self._warmup_s)

    def occupancy(self, ax: Axes | None = None) -> Axes:
        """Draw turns decoding, in prefill and queued over time."""
        return runs.occupancy(self.result.timeline, ax, warmup_s=self._warmup_s)

    def link_use(self, ax: Axes | None = None) -> Axes:
        """Draw how busy the host links were over time."""
        return runs.link_use(self.result.timeline, ax, warmup_s=self._warmup_s)

    def time_by_cause(self, ax: Axes | None = None) -> Axes:
        """Draw where a turn's time went."""
        return runs.time_by_cause(self.result.turns, ax, warmup_s=self._warmup_s)

    def ttft(self, ax: Axes | None = None) -> Axes:
        """Draw the distribution of the time to first token."""
        return runs.ttft(self.result.turns, ax, warmup_s=self._warmup_s,
                         limits=self._limits("ttft", "ttft_first", "ttft_resumed"))

    def itl(self, ax: Axes | None = None) -> Axes:
        """Draw the distribution of inter-token latency."""
        return runs.itl(self.result.steps, ax, limits=self._limits("itl"))

    def pauses(self, ax: Axes | None = None) -> Axes:
        """Draw what became of each paused context."""
        return runs.pauses(self.result.pauses, ax)

    def address_space(self, at: float | None = None, ax: Axes | None = None, *, request: int | None = None) -> Axes:
        """Draw what every part of the pool is used for at a time; when left out, where the pool is fullest.

        Of a `request` of so many tokens the text says how much of what is free is too scattered for it.
        """
        frame = self.result.pool_at(at)
        engine = self.result.scenario.engine
        blocks = dict.fromkeys(frame["allocator"], engine.block_size) if engine.allocator.paged else {}
        return pool_map.address_space(frame, ax, request=request, block_tokens=blocks)

    def __call__(self) -> Figure:
        """Draw an overview of the run: pool, GPUs, occupancy, latencies and causes."""
        import matplotlib.pyplot as plt

        made, places = plt.subplots(3, 2, figsize=(14, 9), layout="constrained")
        for draw, ax in zip((self.pool_use, self.gpu_use, self.occupancy, self.time_by_cause, self.ttft, self.itl),
                            places.flat, strict=True):
            draw(ax)
        return made
