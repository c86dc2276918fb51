"""How good a fit is: what was recorded against what the spec draws, with Kolmogorov's distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from workloads.fit.observe import Line, Session

#: Kolmogorov distances (largest difference of two distribution functions) up to which a fit is called good, and fair.
GOOD, FAIR = 0.05, 0.12
#: How far the means may lie apart.
MEAN_OFF = 0.25
_FEW = 20

_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity: the samples, their distance D, and the chance p of a larger one if both came from one source."""

    name: str
    recorded: _Array
    drawn: _Array
    distance: float
    p: float
    verdict: Literal["good", "fair", "poor", "few"]


def compare(recorded: Sequence[Session], drawn: Sequence[Session]) -> list[Row]:
    """Return a row for every quantity that both have."""
    ours, theirs = _columns(recorded), _columns(drawn)
    return [_row(name, np.asarray(values, dtype=float), np.asarray(theirs[name], dtype=float))
            for name, values in ours.items() if values and theirs.get(name)]


def _columns(sessions: Sequence[Session]) -> dict[str, list[float]]:
    mains = [session.main for session in sessions]
    found: dict[str, list[float]] = {
        "turns of a trajectory": [len(line.prompts) for line in mains],
        "prompt tokens": _all(mains, "prompts"), "output tokens": _all(mains, "outputs"),
        "new tokens a turn": _all(mains, "added"),
        "longest prompt of a trajectory": [max(line.prompts) for line in mains],
    }
    for line in mains:
        for tool, waits in line.waits.items():
            found.setdefault(f"wait: {tool}", []).extend(waits)
    found["sub-agent turns"] = [len(child.prompts) for session in sessions for child in session.children]
    return found


def _all(lines: Sequence[Line], name: str) -> list[float]:
    return [value for line in lines for value in getattr(line, name)]


def _row(name: str, recorded: _Array, drawn: _Array) -> Row:
    from scipy.stats import ks_2samp

    result = ks_2samp(recorded, drawn, method="asymp")
    distance = float(result.statistic)
    mean = max(float(recorded.mean()), 1e-9)
    apart = abs(float(drawn.mean()) - mean) / mean
    # A sample of n is itself off by about 1.36 / sqrt(n) (the 95 % band): no fit can be told from it more closely.
    band = 1.36 / np.sqrt(recorded.size)
    verdict: Literal["good", "fair", "poor", "few"] = \
        "few" if recorded.size < _FEW else \
        "poor" if distance > max(FAIR, band) or (apart > MEAN_OFF and recorded.size > 200) else \
        "good" if distance <= max(GOOD, band) else "fair"
    return Row(name, recorded, drawn, distance, float(result.pvalue), verdict)
