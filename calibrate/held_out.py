"""How far interpolation is off on rows it has not seen: whole rows of a batch, a length or a message size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrate import blocks, build
from calibrate.frames import Frames
from calibrate.rising import rising
from sim.timing.measured_layers import product
from sim.timing.measured_tables import Curve, DecodeTable, Ramp, Switched

if TYPE_CHECKING:
    import pandas as pd

#: Kernel classes that have to meet the bound of `MEDIAN` and `P90`.
GATED = ("linear", "decode_attention", "prefill_attention", "all_reduce")
MEDIAN, P90 = 0.05, 0.15


def points(frames: Frames) -> pd.DataFrame:
    """Predict every held-out point.

    Returns
    -------
    DataFrame
        One row a point: ``kernel`` (class), ``part`` (what of it), ``point`` (text), ``held_out`` (the row left out),
        ``measured_us``, ``predicted_us``.
    """
    import pandas as pd

    found = [*_linear(frames), *_unseen_shapes(frames), *_decode(frames, "decode_attention", ATTENTION),
             *blocks.held_out(blocks.ratios(frames)), *_prefill(frames),
             *_decode(frames, "latent_decode", build.LATENT), *_latent_prefill(frames), *_all_reduce(frames)]
    columns = ["kernel", "part", "point", "held_out", "measured_us", "predicted_us"]
    table = pd.DataFrame(found, columns=columns)
    table["error"] = table["predicted_us"] / table["measured_us"] - 1.0
    return table


def summary(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return median and 90th percentile of the relative error by kernel class (matrix products also by format)."""
    found: dict[str, dict[str, Any]] = {}
    keys = [(kernel, table[table["kernel"] == kernel]) for kernel in dict.fromkeys(table["kernel"])]
    for dtype, part in table[table["kernel"] == "linear"].groupby("part"):
        keys.append((f"linear/{dtype}", part))
    for name, part in keys:
        size = part["error"].abs()
        found[name] = {"points": len(part), "median": float(f"{size.median():.4g}"),
                       "p90": float(f"{size.quantile(0.9):.4g}"), "bias": float(f"{part['error'].median():.3g}"),
                       "how": HOW.get(name.split("/")[0], "")}
    return found


#: What was held out, by kernel class.
HOW = {
    "linear": "token counts between the profile's knots (all of them where a collection is dense, else one left out)",
    "linear, shape unseen": "every second output width n left out, interpolated from its neighbours",
    "decode_attention": "each inner context, then each inner batch, left out; KV beyond the second-level cache",
    "attention_by_block": blocks.HOW,
    "prefill_attention": "each inner length, then each inner batch, left out",
    "latent_decode": "as decode_attention; the module with its products",
    "latent_prefill": "each inner length of one prompt left out; the module with its products",
    "all_reduce": "each inner message size left out",
}


def _linear(frames: Frames) -> Iterator[tuple[Any, ...]]:
    for dtype, part in frames.get("linear").groupby("dtype"):
        grid = part.pivot_table(index=["n", "k"], columns="tokens", values="us")
        even, ragged = build.knots(grid.columns)
        for (n, k), row in grid.iterrows():
            series = row.dropna()
            if ragged:
                yield from _thinned(str(dtype), n, k, series, even, ragged)
            else:
                for index in range(1, len(series) - 1):
                    rest = series.drop(series.index[index])
                    predicted = Curve(list(rest.index), list(rising(rest)))(float(series.index[index]))
                    where = f"{series.index[index]} tokens"
                    yield ("linear", dtype, f"{n} x {k}", where, series.iloc[index], predicted)


def _thinned(dtype: str, n: int, k: int, series: pd.Series, even: Sequence[int],
             ragged: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    curves = []
    for kept in (even, ragged):
        there = [count for count in kept if count in series.index]
        if len(there) < 2:
            return
        curves.append(Curve(there, list(rising(series[there]))))
    for count, us in series.items():
        if count not in even and count not in ragged:
            curve = curves[0] if count <= 16 or count % 16 == 0 else curves[1]
            yield ("linear", dtype, f"{n} x {k}", f"{count} tokens", us, curve(float(count)))


def _unseen_shapes(frames: Frames) -> Iterator[tuple[Any, ...]]:
    """Predict products whose n is left out from those of the widths around it."""
    for dtype, part in frames.get("linear").groupby("dtype"):
        widths = sorted(part["n"].unique())
        if len(widths) < 7:
            continue
        out = set(widths[3:-1:2])
        grid = part.pivot_table(index=["n", "k"], columns="tokens", values="us")
        even, _ = build.knots(grid.columns)
        grid = grid[even].dropna()
        known = {(int(n), int(k)): list(rising(row)) for (n, k), row in
                 zip(grid.index, grid.to_numpy(float), strict=True) if n not in out}
        for (n, k), row in zip(grid.index, grid.to_numpy(float), strict=True):
            if n in out and any(key[1] == k for key in known):
                for count, us, predicted in zip(even, row, product(known, (int(n), int(k)), []), strict=True):
                    yield ("linear, shape unseen", dtype, f"{n} x {k}, {count} tokens", f"n {n}", us, predicted)


ATTENTION = ("heads", "kv_heads", "head_dim", "kv_dtype")


def _decode(frames: Frames, kernel: str, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Predict decode attention, of a table whose shapes are told apart by `names`."""
    for shape, part in frames.get(kernel).groupby(list(names)):
        what = _called(names, shape)
        rows = build.decode_rows(part, frames.l2_bytes)
        for found in (*_lengths(part, rows, frames.l2_bytes), *_batches(part, rows, frames.l2_bytes)):
            yield (kernel, what, *found)


def _called(names: Sequence[str], shape: Any) -> str:
    at = dict(zip(names, shape, strict=True))
    if "rank" in at:
        return f"{at['heads']} heads on latents of {at['rank']} + {at['rope']} in {at['kv_dtype']}, {at['dtype']}"
    return f"{at['heads']}/{at['kv_heads']} heads of {at['head_dim']}, {at['kv_dtype']}"


def _lengths(part: pd.DataFrame, rows: Sequence[dict[str, Any]], l2: float) -> Iterator[tuple[Any, ...]]:
    measured = _by_point(part, l2)
    for row in rows:
        for index in range(1, len(row["tokens"]) - 1):
            context = row["tokens"][index] / row["batch"]
            us = measured.get((row["batch"], round(context)))
            if us is None:
                continue
            kept = [i for i in range(len(row["tokens"])) if i != index]
            ramp = Ramp([row["tokens"][i] for i in kept],
                        list(rising([measured.get((row["batch"], round(row["tokens"][i] / row["batch"])), row["us"][i])
                                     for i in kept])), 0.0)
            yield (f"batch {row['batch']}, context {context:.0f}", f"context {context:.0f}", us,
                   ramp(row["tokens"][index]))


def _batches(part: pd.DataFrame, rows: Sequence[dict[str, Any]], l2: float) -> Iterator[tuple[Any, ...]]:
    measured = _by_point(part, l2)
    for index in range(1, len(rows) - 1):
        neighbours = (rows[index - 1], rows[index + 1])
        reach = min(row["tokens"][-1] for row in neighbours)
        last = neighbours[0]
        slope = (last["us"][-1] - last["us"][-2]) / (last["tokens"][-1] - last["tokens"][-2]) * 1e-6
        table = DecodeTable(neighbours, slope)
        batch = rows[index]["batch"]
        for (size, context), us in measured.items():
            if size == batch and batch * context <= 2 * reach:
                yield (f"batch {batch}, context {context}", f"batch {batch}", us,
                       table(float(batch), float(batch * context)) * 1e6)


def _by_point(part: pd.DataFrame, l2: float) -> dict[tuple[int, int], float]:
    """Return the measured points beyond the second-level cache."""
    far = part[build.beyond_l2(part, l2)]
    return {(int(b), int(c)): float(us) for b, c, us in zip(far["batch"], far["context"], far["us"], strict=True)}


def _prefill(frames: Frames) -> Iterator[tuple[Any, ...]]:
    for shape, whole in frames.get("prefill_attention").groupby(list(ATTENTION)):
        what = _called(ATTENTION, shape)
        for past, part in whole.groupby("past"):
            grid = part.pivot_table(index="batch", columns="new", values="us")
            for axis, name in ((grid, "length"), (grid.T, "batch")):
                for other, row in axis.iterrows():
                    series = row.dropna()
                    for index in range(1, len(series) - 1):
                        where = series.index[index]
                        rest = series.drop(where)
                        curve = Curve(list(rest.index), list(rising(rest)), smooth=True)
                        point = f"batch {other}, {where} new" if name == "length" else f"batch {where}, {other} new"
                        yield ("prefill_attention", what, f"{point} on {past}", f"{name} {where}", series.iloc[index],
                               curve(float(where)))


def _latent_prefill(frames: Frames) -> Iterator[tuple[Any, ...]]:
    """Predict modules of one prompt at each inner length, from the split of the others."""
    table = frames.get("latent_prefill")
    for shape, part in table[table["batch"] == 1].groupby(list(build.LATENT)):
        series = part.set_index("new")["us"].sort_index()
        for index in range(1, len(series) - 1):
            where = series.index[index]
            rest = series.drop(where)
            linear_us, pair_us = build.split_prompt(list(rest.index), rest)
            predicted = Curve(list(rest.index), linear_us)(float(where)) + pair_us * where * where / 2.0
            yield ("latent_prefill", _called(build.LATENT, shape), f"{where} new", f"length {where}",
                   series.iloc[index], predicted)


def _all_reduce(frames: Frames) -> Iterator[tuple[Any, ...]]:
    for gpus, part in frames.get("all_reduce").groupby("gpus"):
        series, switches = part.set_index("bytes")["us"].sort_index(), frames.switches.get(int(gpus), ())
        for index in range(1, len(series) - 1):
            where = series.index[index]
            rest = series.drop(where)
            sizes = [int(size) for size in rest.index]
            curve = Switched(sizes, build.rising_between(sizes, rest, switches), switches, 0.0)
            yield ("all_reduce", f"{gpus} GPUs", f"{where} bytes", f"{where} bytes", series.iloc[index],
                   curve(float(where)))


def misses(errors: dict[str, dict[str, Any]]) -> list[str]:
    """Return the gated kernel classes that miss the bounds, in words."""
    return [f"{name}: median {errors[name]['median']:.1%}, 90th percentile {errors[name]['p90']:.1%} "
            f"(bounds {MEDIAN:.0%} and {P90:.0%})"
            for name in GATED if name in errors and not np.all([errors[name]["median"] <= MEDIAN,
                                                                errors[name]["p90"] <= P90])]
