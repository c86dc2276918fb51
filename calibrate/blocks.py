"""Decode attention by block size: its rate relative to blocks of the reference size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrate import build
from calibrate.frames import COLUMNS, Frames
from sim.timing.block_size import REFERENCE, efficiency

if TYPE_CHECKING:
    import pandas as pd

HOW = "each point of shape, batch and context, then each inner block size, left out"
#: What tells points apart besides the block size.
_POINT = list(COLUMNS["decode_attention"])
#: Weight of the reference size in the regression: it stays at 1.
_FIXED = 1e9


def ratios(frames: Frames) -> pd.DataFrame:
    """Return a row a measured point: its columns, ``us``, ``reference_us`` and ``ratio``, the second over the first.

    Only points that were measured with blocks of the reference size too, with KV beyond the second-level cache if any
    is: within it, the time is that of launches and of the cache.
    """
    table = frames.get("decode_blocks")
    if not len(table):
        return table.assign(reference_us=[], ratio=[])
    far = table[build.beyond_l2(table, frames.l2_bytes)]
    table = far if (far["block"] != REFERENCE).any() else table
    reference = table[table["block"] == REFERENCE].rename(columns={"us": "reference_us"})[[*_POINT, "reference_us"]]
    both = table[table["block"] != REFERENCE].merge(reference, on=_POINT)
    return both.assign(ratio=both["reference_us"] / both["us"])


def fit(points: pd.DataFrame) -> dict[str, Any]:
    """Return the table of a profile: block sizes and efficiencies, which never fall as blocks grow.

    Of each size the median ratio over batches and contexts, then isotonic regression of the logarithms, each size
    weighted by its points; the reference size is held at 1. Empty without points.
    """
    from scipy.optimize import isotonic_regression

    if not len(points):
        return {}
    groups = points.groupby("block")["ratio"]
    medians, counts = groups.median(), groups.count()
    medians.loc[REFERENCE], counts.loc[REFERENCE] = 1.0, _FIXED
    medians = medians.sort_index()
    smooth = np.exp(isotonic_regression(np.log(medians.to_numpy(float)),
                                        weights=counts.loc[medians.index].to_numpy(float)).x)
    return {"blocks": [int(block) for block in medians.index], "efficiency": [build.four(value) for value in smooth],
            "points": len(points)}


def held_out(points: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yield the prediction of each point from tables that have not seen it (see `held_out.points`)."""
    if not len(points):
        return
    names = [name for name in _POINT if points[name].nunique() > 1]
    for where, left in points.groupby(names) if names else []:
        table = fit(points.drop(left.index))
        key = dict(zip(names, where, strict=True))
        text = ", ".join(f"{name} {value}" for name, value in key.items())
        yield from _predicted(left, table, text)
    inner = sorted({*points["block"], REFERENCE})[1:-1]
    for block, left in points[points["block"].isin(inner)].groupby("block"):
        yield from _predicted(left, fit(points[points["block"] != block]), f"blocks of {block}")


def _predicted(left: pd.DataFrame, table: Mapping[str, Any], out: str) -> Iterator[tuple[Any, ...]]:
    """Yield points of a table they are not in; a table that has lost all its points says nothing."""
    for row in left.itertuples() if table else []:
        us = row.reference_us / efficiency(table, int(row.block))
        yield ("attention_by_block", f"{row.heads}/{row.kv_heads} heads of {row.head_dim}, {row.kv_dtype}",
               f"batch {row.batch}, context {row.context}, blocks of {row.block}", out, row.us, us)


def rows(table: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a table in words: tokens of a block, and what they leave of the rate with the reference size."""
    return [(str(block), f"{value:.1%}") for block, value in
            zip(table["blocks"], table["efficiency"], strict=True)] if table else []
