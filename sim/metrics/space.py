"""How well an allocator uses the pool: the three measures, from pictures of the address space and over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sim.metrics.collect import Columns
    from sim.metrics.ledgers import Timeline
    from sim.metrics.measure import Part
    from sim.records import RunTotals

Array = NDArray[Any]

#: Columns of `records.SPACE_COLUMNS` that the measures are made of.
COLUMNS = ("time_s", "replica", "start", "end", "use")


def fragmentation(space: Mapping[str, Array], request: int, piece_tokens: int = 0) -> dict[str, Array]:
    """Return the measures at every moment of which there is a picture.

    Parameters
    ----------
    space
        The columns `COLUMNS`, of one replication.
    request
        Tokens that somebody asks for, above 0.
    piece_tokens
        Tokens into which the request may be cut (a block); 0 if it needs them in one piece.

    Returns
    -------
    dict
        Arrays ``time_s``, ``replica``, ``allocation_efficiency`` (useful over allocated; 1 where nothing is),
        ``effective_occupancy`` (useful over the pool) and ``external_fragmentation`` (the share of what is free that
        lies in holes too small for the request; 0 where nothing is free).
    """
    piece = min(request, piece_tokens) if piece_tokens else request
    moment, number = np.unique(np.stack([space["time_s"], space["replica"]]), axis=1, return_inverse=True)
    number = number.reshape(-1)
    size = (space["end"] - space["start"]).astype(float)
    hole, useful = space["use"] == "hole", space["use"] == "useful"

    def total(chosen: Array) -> Array:
        return np.bincount(number[chosen], weights=size[chosen], minlength=moment.shape[1]).astype(float)

    free, taken, held = total(hole), total(~hole), total(useful)
    return {
        "time_s": moment[0], "replica": moment[1].astype(int),
        "allocation_efficiency": np.divide(held, taken, out=np.ones_like(held), where=taken > 0),
        "effective_occupancy": held / np.maximum(free + taken, 1.0),
        "external_fragmentation": 1.0 - np.divide(total(hole & (size >= piece)), free, out=np.ones_like(free),
                                                  where=free > 0),
    }


def measured(columns: Columns, timeline: Timeline, totals: RunTotals, turn: Mapping[str, Array]) -> dict[str, float]:
    """Return what a replication's summary is made of: averages over the time measured, in tokens and shares.

    The request that is looked at is the median turn's, prompt and output.
    """
    edges = np.array([timeline.warmup_s, timeline.end_s])
    found = {name: float(timeline.windows(f"{name}_tokens", edges)[0]) for name in ("useful", "allocated")}
    found["pool"] = float(totals.pool_tokens * totals.replicas)
    sizes = turn["prompt_tokens"] + turn["output_tokens"]
    if sizes.size:
        found["request"] = float(np.median(sizes))
        space = {name: columns("address_space", name) for name in COLUMNS}
        shares = fragmentation(space, int(found["request"]), totals.piece_tokens)
        after = shares["external_fragmentation"][shares["time_s"] >= timeline.warmup_s]
        if after.size:
            found["external_fragmentation"] = float(after.mean())
    return found


def summary(parts: Sequence[Part]) -> dict[str, float | int | None]:
    """Return the measures over all replications, each weighted by its measured time; None where there is none."""
    span = np.array([part.span_s for part in parts])

    def mean(name: str) -> float | None:
        there = [(part.space[name], weight) for part, weight in zip(parts, span, strict=True) if name in part.space]
        whole = sum(weight for _, weight in there)
        return sum(value * weight for value, weight in there) / whole if whole > 0 else None

    useful, allocated, pool, request = mean("useful"), mean("allocated"), mean("pool"), mean("request")
    return {
        "efficiency": useful / allocated if useful is not None and allocated else None,
        "effective_occupancy": useful / pool if useful is not None and pool else None,
        "external_fragmentation": mean("external_fragmentation"),
        "request_tokens": None if request is None else round(request),
    }
