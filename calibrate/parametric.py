"""The parametric fit: an overhead, achieved FLOP/s and achieved bytes/s, by non-negative least squares.

A kernel's time is taken as ``overhead + units * unit + FLOP / F + bytes / B``. Every sample is divided by its own time,
so errors are relative and a microsecond kernel counts as much as a millisecond one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrate.frames import ELEMENT, kv_bytes

if TYPE_CHECKING:
    import pandas as pd


def solve(seconds: ArrayLike, flop: ArrayLike, moved: ArrayLike, units: ArrayLike | None = None) -> dict[str, float]:
    """Fit the parameters of one kernel class.

    Parameters
    ----------
    seconds
        Measured times, > 0, shape (points,).
    flop, moved
        Floating-point operations and bytes of each point.
    units
        Something else that each costs a time, such as the sequences of a batch; None for nothing.

    Returns
    -------
    dict
        ``overhead_s``; ``flops`` and ``Bps`` (0 where the term does not show in the samples); ``unit_s`` with units;
        ``median`` and ``p90`` of the relative error on these very samples.
    """
    from scipy.optimize import nnls

    time = np.asarray(seconds, dtype=float)
    columns = [np.ones_like(time), np.asarray(flop, dtype=float), np.asarray(moved, dtype=float)]
    if units is not None:
        columns.append(np.asarray(units, dtype=float))
    matrix = np.stack(columns, axis=1) / time[:, None]
    scale = np.where(matrix.max(axis=0) > 0, matrix.max(axis=0), 1.0)
    # Reweighted to least absolute deviations, so that a few slow samples do not move the rest.
    weights = np.ones_like(time)
    for _ in range(8):
        found, _ = nnls(matrix / scale * weights[:, None], weights)
        error = np.abs(matrix / scale @ found - 1.0)
        weights = 1.0 / np.sqrt(np.maximum(error, 0.005))
    coefficients = found / scale
    result = {"overhead_s": float(coefficients[0]), "flops": _rate(coefficients[1]), "Bps": _rate(coefficients[2]),
              "median": float(np.median(error)), "p90": float(np.quantile(error, 0.9))}
    if units is not None:
        result["unit_s"] = float(coefficients[3])
    return result


def _rate(seconds_each: float) -> float:
    return 1.0 / float(seconds_each) if seconds_each > 0 else 0.0


def linear(table: pd.DataFrame) -> dict[str, float]:
    """Fit matrix products of one format: ``2 m n k`` FLOP, weights and activations moved once."""
    flop, moved = linear_work(table)
    return solve(table["us"] * 1e-6, flop, moved)


def linear_work(table: pd.DataFrame) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return FLOP and bytes of each product."""
    m, n, k = (table[name].to_numpy(float) for name in ("tokens", "n", "k"))
    size = table["dtype"].map(ELEMENT).to_numpy(float)
    return 2.0 * m * n * k, size * n * k + m * (size * k + 2.0 * n)


def decode(table: pd.DataFrame) -> dict[str, float]:
    """Fit decode attention: KV bytes, and something a sequence."""
    flop = 4.0 * table["heads"] * table["head_dim"] * table["batch"] * table["context"]
    return solve(table["us"] * 1e-6, 0.0 * flop, kv_bytes(table), table["batch"])


def prefill(table: pd.DataFrame) -> dict[str, float]:
    """Fit attention of prompts: ``4 h d c (p + c/2)`` FLOP a sequence; past KV and the chunk's own rows moved once."""
    batch, new, past = (table[name].to_numpy(float) for name in ("batch", "new", "past"))
    wide = table["heads"].to_numpy(float) * table["head_dim"].to_numpy(float)
    kv = 4.0 * table["kv_heads"].to_numpy(float) * table["head_dim"].to_numpy(float)
    return solve(table["us"] * 1e-6, 4.0 * wide * batch * new * (past + new / 2.0),
                 batch * (kv * (past + new) + 4.0 * wide * new))


def all_reduce(table: pd.DataFrame) -> dict[str, float]:
    """Fit all-reduces: a ring moves ``2 (g-1)/g`` of the bytes over each GPU's links."""
    gpus, size = table["gpus"].to_numpy(float), table["bytes"].to_numpy(float)
    return solve(table["us"] * 1e-6, np.zeros_like(size), 2.0 * (gpus - 1.0) / gpus * size)


#: Products narrower than this mostly measure a launch; where there are wider ones, the fit is of those.
_LARGE = 2048

FITS = {"decode_attention": decode, "prefill_attention": prefill, "all_reduce": all_reduce}


def fit_all(tables: dict[str, pd.DataFrame]) -> dict[str, dict[str, float]]:
    """Fit every kernel class there are enough samples of; matrix products by format, as ``linear/bf16``."""
    found: dict[str, dict[str, float]] = {}
    products = tables.get("linear")
    if products is not None and len(products):
        for dtype, part in products.groupby("dtype"):
            large = part[(part["n"] >= _LARGE) & (part["k"] >= _LARGE)]
            if len(large) >= 4 or len(part) >= 4:
                found[f"linear/{dtype}"] = linear(large if len(large) >= 4 else part)
    for name, fit in FITS.items():
        table = tables.get(name)
        if table is not None and len(table) >= 4:
            found[name] = fit(table)
    return {name: {key: float(f"{value:.5g}") for key, value in fit.items()} for name, fit in found.items()}
