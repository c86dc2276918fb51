"""From samples to the tables of a measured profile: which rows are kept, and how they are smoothed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrate.frames import Frames, kv_bytes
from calibrate.rising import rising

if TYPE_CHECKING:
    import pandas as pd

#: Token counts that a profile keeps of a dense collection: the others show how far the interpolation is off.
KNOTS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16384, 32768)
#: The same for row counts that are no multiple of 16: some kernels pad, or take a slower path.
RAGGED = (1, 2, 4, 8, 17, 33, 65, 97, 129, 193, 257, 513, 769, 1025, 1537, 2049, 3073, 4097)
#: A collection with more token counts than this is thinned to the knots.
_DENSE = 30


def four(value: float) -> float:
    """Return a time in as many digits as it has."""
    return float(f"{value:.4g}")


def knots(tokens: Iterable[int]) -> tuple[list[int], list[int]]:
    """Return the token counts to keep: padded ones and ragged ones (none unless there are many)."""
    have = sorted({int(count) for count in tokens})
    even = [count for count in have if count <= 16 or count % 16 == 0]
    if len(have) <= _DENSE:
        return even, []
    kept = set(have)
    return [count for count in KNOTS if count in kept], [count for count in RAGGED if count in kept]


def linear(table: pd.DataFrame) -> dict[str, Any]:
    """Return the tables of matrix products, by format."""
    found: dict[str, Any] = {}
    for dtype, part in table.groupby("dtype"):
        grid = part.pivot_table(index=["n", "k"], columns="tokens", values="us")
        even, ragged = knots(grid.columns)
        complete = grid[[*even, *ragged]].notna().all(axis=1)
        grid = grid[complete]
        entry: dict[str, Any] = {"shapes": [[int(n), int(k)] for n, k in grid.index], "tokens": even,
                                 "us": _smooth(grid, even)}
        if ragged:
            entry |= {"tokens_ragged": ragged, "us_ragged": _smooth(grid, ragged)}
        found[str(dtype)] = entry
    return found


def _smooth(grid: pd.DataFrame, columns: Sequence[int]) -> list[list[float]]:
    return [[four(value) for value in rising(row)] for row in grid[list(columns)].to_numpy(float)]


def decode(table: pd.DataFrame, l2_bytes: float) -> list[dict[str, Any]]:
    """Return the tables of decode attention, one a shape."""
    entries = []
    for shape, part in table.groupby(list(_SHAPE)):
        rows = decode_rows(part, l2_bytes)
        if rows:
            entries.append({**_shape(shape), "rows": [{**row, "us": [four(us) for us in row["us"]]} for row in rows]})
    return entries


_SHAPE = ("heads", "kv_heads", "head_dim", "kv_dtype")


def _shape(values: Any, names: Sequence[str] = _SHAPE) -> dict[str, Any]:
    return {name: (value if isinstance(value, str) else int(value)) for name, value in zip(names, values, strict=True)}


def beyond_l2(table: pd.DataFrame, l2_bytes: float) -> Any:
    """Return which points read more KV than the second-level cache holds: only those say what HBM delivers.

    In a model's step every layer's KV comes from HBM, since the layers between have pushed it out; a benchmark that
    repeats one layer reads it from the cache as long as it fits.
    """
    return kv_bytes(table) > l2_bytes


def decode_rows(part: pd.DataFrame, l2_bytes: float) -> list[dict[str, Any]]:
    """Return one row a batch: the shortest context (what a launch takes) and those beyond the second-level cache."""
    rows = []
    far = beyond_l2(part, l2_bytes)
    for batch, group in part.groupby("batch"):
        group = group.sort_values("context")
        keep = far.loc[group.index].to_numpy(bool).copy()
        if not keep.any() and l2_bytes > 0:
            continue
        keep[0] = True
        group = group[keep]
        if len(group) < 2:
            continue
        total = group["context"].to_numpy(float) * float(batch)
        rows.append({"batch": int(batch), "tokens": [int(count) for count in total],
                     "us": [float(us) for us in rising(group["us"])]})
    return rows


def prefill(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the tables of prefill attention of one sequence, one a shape: new tokens by past tokens."""
    entries = []
    for shape, part in table[table["batch"] == 1].groupby(list(_SHAPE)):
        grid = part.pivot_table(index="past", columns="new", values="us")
        us = []
        for row in grid.to_numpy(float):
            there = ~np.isnan(row)
            line: list[float | None] = [None] * len(row)
            for index, value in zip(np.flatnonzero(there), rising(row[there]), strict=True):
                line[int(index)] = four(value)
            us.append(line)
        entries.append({**_shape(shape), "new": [int(c) for c in grid.columns], "past": [int(p) for p in grid.index],
                        "us": us})
    return entries


#: What tells tables of latent attention apart.
LATENT = ("heads", "rank", "rope", "hidden", "kv_dtype", "dtype")


def latent(decode_table: pd.DataFrame, prefill_table: pd.DataFrame, l2_bytes: float) -> list[dict[str, Any]]:
    """Return the tables of latent attention, one a shape that was measured both for decoding and for prompts."""
    prompts = dict(list(prefill_table[prefill_table["batch"] == 1].groupby(list(LATENT))))
    entries = []
    for shape, part in decode_table.groupby(list(LATENT)):
        rows = decode_rows(part, l2_bytes)
        if rows and shape in prompts:
            series = prompts[shape].set_index("new")["us"].sort_index()
            linear_us, pair_us = split_prompt(list(series.index), series)
            entries.append({**_shape(shape, LATENT), "rows": [{**row, "us": [four(us) for us in row["us"]]}
                                                              for row in rows],
                            "tokens": [int(count) for count in series.index],
                            "us": [four(us) for us in linear_us], "pair_s": four(pair_us * 1e-6)})
    return entries


def split_prompt(new: Sequence[int], us: Iterable[float]) -> tuple[list[float], float]:
    """Split times of uncached prompts into what goes with the tokens, and microseconds a pair of tokens.

    The second is of the fit ``a + b n + c n^2 / 2`` (non-negative, relative); the first is the rest at each length,
    made to rise.
    """
    from calibrate.parametric import solve

    count, time = np.asarray(list(new), dtype=float), np.asarray(list(us), dtype=float)
    found = solve(time * 1e-6, count * count / 2.0, count)
    pair_us = 1e6 / found["flops"] if found["flops"] else 0.0
    # A rest under a tenth would be noise: there the pairs are given less.
    rest = np.maximum(time - pair_us * count * count / 2.0, 0.1 * time)
    return [float(value) for value in rising(rest)], pair_us


def all_reduce(table: pd.DataFrame, switches: Mapping[int, Sequence[int]]) -> list[dict[str, Any]]:
    """Return the tables of all-reduces, one a number of GPUs."""
    entries = []
    for gpus, part in table.groupby("gpus"):
        part = part.sort_values("bytes")
        cuts = switches.get(int(gpus), ())
        sizes = [int(size) for size in part["bytes"]]
        entries.append({"gpus": int(gpus), "bytes": sizes, "switches": [cut for cut in cuts if cut <= sizes[-1]],
                        "us": [four(us) for us in rising_between(sizes, part["us"], cuts)]})
    return entries


def rising_between(sizes: Sequence[int], us: Iterable[float], switches: Sequence[int]) -> list[float]:
    """Return times that rise within each algorithm: at a switch they may fall."""
    values = np.asarray(list(us), dtype=float)
    parts = np.split(values, sorted({bisect_left(sizes, cut) for cut in switches}))
    return [float(value) for part in parts if len(part) for value in rising(part)]


def moe(table: pd.DataFrame, shapes: set[tuple[int, int, int, int]] | None) -> list[dict[str, Any]]:
    """Return the tables of experts, one a shape; only (experts, top_k, hidden, width) in `shapes`, if given."""
    entries = []
    names = ["experts", "top_k", "hidden", "width", "dtype", "tp"]
    for key, part in table.groupby(names):
        if (shapes is not None and tuple(int(v) for v in key[:4]) not in shapes) or key[5] > 8:
            continue
        part = part.sort_values("tokens")
        point = {name: (value if isinstance(value, str) else int(value))
                 for name, value in zip(names, key, strict=True)}
        entries.append({**point, "tokens": [int(t) for t in part["tokens"]],
                        "us": [four(us) for us in rising(part["us"])]})
    return entries


def swap(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the bandwidths of copies to and from the host, by size of a piece."""
    entries = []
    if not len(table):
        return entries
    for (direction, method, both), part in table.groupby(["direction", "method", "both_ways"]):
        part = part.sort_values("piece_bytes")
        rate = part["piece_bytes"] * part["pieces"] / (part["us"] * 1e-6)
        entries.append({"direction": direction, "method": method, "both_ways": bool(both),
                        "piece_bytes": [int(p) for p in part["piece_bytes"]], "Bps": [four(r) for r in rate]})
    return entries


def catalogue_shapes() -> tuple[set[tuple[int, int, int]], set[tuple[int, int, int, int]]]:
    """Return the attention shapes (heads, KV heads, head_dim of a GPU) and experts of the catalogue's models."""
    import hardware_profiles
    from sim.timing.measured_layers import expert_widths

    attention: set[tuple[int, int, int]] = set()
    experts: set[tuple[int, int, int, int]] = set()
    for name in hardware_profiles.names("models"):
        model = hardware_profiles.model(name)
        # Latent attention counts as a shape of (heads, 0, elements of the latent and the rotary key).
        attention |= {(model.n_heads // tp, 0, model.mla.kv_lora_rank + model.mla.rope_dim) if model.mla
                      else (model.n_heads // tp, max(1, model.n_kv_heads // tp), model.head_dim)
                      for tp in (1, 2, 4, 8) if model.n_heads % tp == 0}
        if model.moe:
            experts.add((model.moe.experts, model.moe.top_k, model.d_model, expert_widths(model)[0]))
    return attention, experts


def of_catalogue(frames: Frames) -> Frames:
    """Return the samples whose attention shapes a model of the catalogue has."""
    attention, _ = catalogue_shapes()
    tables = dict(frames.tables)
    for name in ("decode_attention", "prefill_attention", "latent_decode", "latent_prefill"):
        table = frames.get(name)
        latents = name.startswith("latent")
        keys = zip(table["heads"], 0 * table["heads"] if latents else table["kv_heads"],
                   table["rank"] + table["rope"] if latents else table["head_dim"], strict=True)
        tables[name] = table[np.array([key in attention for key in keys], dtype=bool)]
    return Frames(frames.gpu, frames.device, frames.l2_bytes, frames.provenance, frames.planning, tables,
                  frames.switches)
