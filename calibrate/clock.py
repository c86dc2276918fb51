"""How long a kernel takes: warm-up, device events, cold caches, repeats until the median is known well enough."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

#: GPU cycles (about a millisecond) in which the host writes the launches of some repeats.
_HELD_CYCLES = 2_000_000


class Clock:
    """Times kernels on one device.

    Parameters
    ----------
    device
        Where they run.
    half_width
        Relative half-width of the 95 % interval of the median at which repeating stops.
    most_s
        Seconds after which it stops in any case.
    """

    def __init__(self, device: torch.device, half_width: float = 0.02, most_s: float = 2.0) -> None:
        self.device = device
        self.half_width = half_width
        self.most_s = most_s
        self._flush: torch.Tensor | None = None
        if device.type == "cuda":
            cache = torch.cuda.get_device_properties(device).L2_cache_size
            self._flush = torch.empty(max(2 * cache, 64 << 20), dtype=torch.uint8, device=device)

    def measure(self, run: Callable[[], Any], least: int = 5, most: int = 200) -> dict[str, Any]:
        """Return what a kernel takes: ``us`` (median), ``spread`` (quartile distance over the median), ``half_width``
        reached, ``repeats`` and the ``raw_us`` of each repeat (30 at most).
        """
        for _ in range(3):
            run()
        self._wait()
        begin = time.perf_counter()
        found: list[float] = []
        while len(found) < most:
            found.extend(self._repeat(run, 1 if self._flush is None else 5))
            if len(found) >= least and (half_width(found) <= self.half_width
                                        or time.perf_counter() - begin > self.most_s):
                break
        middle = statistics.median(found)
        quarters = statistics.quantiles(found, n=4) if len(found) > 1 else [middle, middle, middle]
        return {"us": middle, "spread": (quarters[2] - quarters[0]) / middle, "half_width": half_width(found),
                "repeats": len(found), "raw_us": [float(f"{us:.5g}") for us in found[:30]]}

    def _repeat(self, run: Callable[[], Any], count: int) -> list[float]:
        if self._flush is None:
            begin = time.perf_counter()
            run()
            return [(time.perf_counter() - begin) * 1e6]
        # The GPU is held until the whole queue is written: else a short kernel's time is that of its launch.
        torch.cuda._sleep(_HELD_CYCLES)
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
        for first, last in pairs:
            self._flush.zero_()  # what the kernel reads must come from HBM, as it does in a model's step
            first.record()
            run()
            last.record()
        torch.cuda.synchronize()
        return [first.elapsed_time(last) * 1e3 for first, last in pairs]

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def half_width(values: Sequence[float]) -> float:
    """Return the relative half-width of the 95 % interval of the median, from order statistics."""
    ordered = sorted(values)
    count = len(ordered)
    if count < 5:
        return math.inf
    reach = 0.98 * math.sqrt(count)  # 1.96 * sqrt(n) / 2
    low, high = max(0, math.floor(count / 2 - reach)), min(count - 1, math.ceil(count / 2 + reach))
    return (ordered[high] - ordered[low]) / 2 / statistics.median(ordered)
