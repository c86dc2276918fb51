"""Bandwidth between HBM and host memory by the size of a piece: two parameters, and how far they are off.

A piece takes ``t0 + bytes / B``: a start-up time and a rate. Published curves are in
`hardware_profiles/measured/host_links.json` with their sources.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class LinkFit(NamedTuple):
    """A fitted curve: seconds a piece, bytes a second, and the median and worst relative error on its points."""

    piece_s: float
    Bps: float
    median: float
    worst: float

    def bandwidth(self, piece_bytes: ArrayLike) -> NDArray[Any]:
        """Return the bytes a second that pieces of a size reach."""
        size = np.asarray(piece_bytes, dtype=float)
        return size / (self.piece_s + size / self.Bps)


def fit(piece_bytes: ArrayLike, Bps: ArrayLike) -> LinkFit:
    """Fit a curve to bandwidths by size of a piece, by least absolute relative deviations."""
    from calibrate.parametric import solve

    size, rate = np.asarray(piece_bytes, dtype=float), np.asarray(Bps, dtype=float)
    found = solve(size / rate, np.zeros_like(size), size)
    curve = LinkFit(found["overhead_s"], found["Bps"], 0.0, 0.0)
    error = np.abs(curve.bandwidth(size) / rate - 1.0)
    return curve._replace(median=float(np.median(error)), worst=float(error.max()))


def published() -> list[dict[str, Any]]:
    """Return the published curves: ``gpu``, ``direction``, ``method``, ``piece_bytes``, ``Bps``, ``source``."""
    from sim.timing.measured_profile import folder

    data = json.loads((Path(folder()) / "host_links.json").read_text(encoding="utf-8"))
    return list(data["curves"])


def leave_one_out(piece_bytes: ArrayLike, Bps: ArrayLike) -> float:
    """Return the median relative error of the points, each predicted by a fit without it."""
    size, rate = np.asarray(piece_bytes, dtype=float), np.asarray(Bps, dtype=float)
    errors = []
    for index in range(len(size)):
        rest = np.arange(len(size)) != index
        errors.append(abs(float(fit(size[rest], rate[rest]).bandwidth(size[index])) / rate[index] - 1.0))
    return float(np.median(errors))
