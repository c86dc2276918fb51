"""Ledgers: where turns' time, the pool's byte-seconds and the GPUs' time went. Each sums to its whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics.collect import Columns
from sim.records import GPU_USES, LINK_USES, POOL_USES, TIER_USES, TIERS, TURN_CAUSES

GB = 1e9


def turn_ledger(columns: Columns, chosen: NDArray[np.bool_]) -> dict[str, float]:
    """Return seconds by cause, over the chosen turns; they sum to those turns' time from ready to end."""
    return {cause: float(columns("turns", f"{cause}_s")[chosen].sum()) for cause in TURN_CAUSES}


class Timeline:
    """The samples of one replication, cut at the warm-up.

    Cumulative columns are read off at any instant by linear interpolation between samples: within one sampling
    interval a use is taken as even.
    """

    def __init__(self, columns: Columns, warmup_s: float, end_s: float) -> None:
        self._columns = columns
        self.warmup_s = warmup_s
        self.end_s = end_s
        self._time = columns("timeline", "time_s")
        self._replica = columns("timeline", "replica")
        self.replicas = [int(r) for r in np.unique(self._replica)]

    def gained(self, column: str) -> float:
        """Return by how much a cumulative column grew after the warm-up, over all replicas."""
        values = self._columns("timeline", column)
        return float(sum(self._gain(self._time[rows], values[rows]) for rows in self._rows()))

    def _gain(self, time: NDArray[Any], values: NDArray[Any]) -> float:
        if not time.size or time[0] > 0:  # nothing is booked before the start
            time, values = np.concatenate([[0.0], time]), np.concatenate([[0.0], values])
        low, high = np.interp([self.warmup_s, self.end_s], time, values)
        return float(high - low)

    def _rows(self) -> Iterable[NDArray[Any]]:
        return (np.flatnonzero(self._replica == replica) for replica in self.replicas)

    def pool_ledger(self) -> dict[str, float]:
        """Return the pool's byte-seconds by use; they sum to pool bytes x measured span x replicas."""
        return {use: self.gained(f"{use}_byte_s") for use in POOL_USES}

    def gpu_ledger(self) -> dict[str, float]:
        """Return replica-seconds by use; they sum to measured span x replicas."""
        return {use: self.gained(f"gpu_{use}_cum_s") for use in GPU_USES}

    def tier_ledger(self, tier: str) -> dict[str, float]:
        """Return a tier's byte-seconds by use; they sum to its capacity x measured span, over all nodes."""
        return {use: self.gained(f"{tier}_{use}_byte_s") for use in TIER_USES}

    def link_ledger(self, link: str) -> dict[str, float]:
        """Return the seconds of one way of a link (`host_out`, `nvme_in`, ...) by use.

        They sum to the measured span x the links of that kind: one a replica to the host, one a node to a tier below.
        """
        return {use: self.gained(f"{link}_{use}_cum_s") for use in LINK_USES}

    def windows(self, column: str, edges: NDArray[Any], *, shared: bool = False) -> NDArray[Any]:
        """Return the time average of an instantaneous column in each window between `edges`.

        Replicas add up, unless each carries the same figure (`shared`). Between samples the value is taken as linear.
        """
        values = self._columns("timeline", column).astype(float)
        total = np.zeros(len(edges) - 1)
        for rows in self._rows():
            time, value = self._time[rows], values[rows]
            if time.size:
                area = np.concatenate([[0.0], np.cumsum(np.diff(time) * (value[1:] + value[:-1]) / 2)])
                total += np.diff(np.interp(edges, time, area)) / np.diff(edges)
            if shared:
                break
        return total


def below(timeline: Timeline, tiers: Sequence[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the ledgers of the tiers that there are and of the links on the way to them."""
    links = ["host", *(tier for tier in tiers if tier != "dram")] if tiers else []
    return {"tier_byte_s": {tier: timeline.tier_ledger(tier) for tier in tiers},
            "link_s": {f"{link}_{way}": timeline.link_ledger(f"{link}_{way}") for link in links
                       for way in ("out", "in")}}


def held(columns: Columns, warmup_s: float) -> dict[str, Any]:
    """Return GB-seconds that pauses begun after the warm-up held: in total, by tier and by tool."""
    chosen = columns("pauses", "start_s") >= warmup_s
    by_tier = {tier: columns("pauses", f"hold_{tier}_byte_s")[chosen] / GB for tier in ("hbm", *TIERS)}
    whole = np.sum(list(by_tier.values()), axis=0)
    tools, number = np.unique(columns("pauses", "tool")[chosen].astype(str), return_inverse=True)

    def split(held_GB_s: NDArray[Any]) -> dict[str, float]:
        sums = np.bincount(number, weights=held_GB_s, minlength=len(tools))
        return {str(tool): float(amount) for tool, amount in zip(tools, sums, strict=True)}

    return {
        "total": float(whole.sum()),
        "by_tier": {tier: float(held.sum()) for tier, held in by_tier.items()},
        "by_tool": split(whole),
        "by_tool_and_tier": {tier: split(held) for tier, held in by_tier.items()},
    }


def add(ledgers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Add ledgers of the same shape (nested mappings of numbers) up."""
    total: dict[str, Any] = {}
    for ledger in ledgers:
        for key, value in ledger.items():
            if isinstance(value, dict):
                total[key] = add([total.get(key, {}), value])
            else:
                total[key] = total.get(key, 0) + value
    return total
