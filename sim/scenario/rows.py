"""A figure of `explain`."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One figure: where it belongs, what it is, its value in SI, its unit, and the formula or source behind it.

    `value` is a number (infinite where nothing is enough) or text; units are ``B``, ``B/token``, ``B/s``, ``s``,
    ``FLOP/s``, ``FLOP/B``, ``tokens``, ``blocks``, ``trajectories``, ``turns``, ``USD/h``, ``x`` or empty.
    """

    section: str
    quantity: str
    value: float | int | str
    unit: str
    formula: str
