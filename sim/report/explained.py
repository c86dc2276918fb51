"""What `explain` found, on a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sim.metrics.wording import number, seconds, usd
from sim.report.catalogue import amount, rate
from sim.report.tables import console, show_rows

#: Units that are counted, for one of them.
_ONE = {"trajectories": "trajectory", "tokens": "token", "blocks": "block", "turns": "turn"}


def show(explanation: Mapping[str, Any]) -> None:
    """Print an explanation: a table a section, what binds first, and what was assumed."""
    rows = explanation["rows"]
    out = console()
    sections = list(dict.fromkeys(row.section for row in rows))
    for section in sections:
        show_rows([(row.quantity, text(row.value, row.unit), row.formula) for row in rows if row.section == section],
                  title=section, to=out)
        out.print()
    out.print(f"Binds first: {explanation['binds']}, at contexts of {explanation['context']} tokens", style="bold")
    for sentence in explanation["assumptions"]:
        out.print(sentence)


def text(value: float | int | str, unit: str) -> str:
    """Return a figure with the unit that suits its size."""
    if isinstance(value, str):
        return value
    if math.isinf(value):
        return "never"
    if unit == "s":
        return seconds(value)
    if unit == "B":
        return f"{amount(value)} = {number(value / 1e9)} GB" if value >= 2**30 else amount(value)
    if unit == "B/token":
        return f"{number(value / 1024)} KiB/token"
    if unit == "B/s":
        return rate(value)
    if unit == "FLOP/s":
        return f"{number(value / 1e12)} TFLOP/s"
    if unit == "USD/h":
        return f"{usd(value)}/h"
    if value == 1 and unit in _ONE:
        unit = _ONE[unit]
    return f"{number(value)} {unit}".rstrip()
