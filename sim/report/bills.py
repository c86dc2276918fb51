"""`kvplan bill`: what a run's trajectories cost here and at providers that cache prompts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.metrics import billing, wording
from sim.sweep import store

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console


def of_run(folder: Path, names: Sequence[str], ttl: str | None) -> pd.DataFrame:
    """Read a run and return its bills.

    Raises
    ------
    InputError
        The folder holds no run, or a name or the time to live is wrong.
    """
    summary = store.read_summary(folder)
    return billing.table(store.read_table(folder / "turns.parquet", billing.COLUMNS), summary, names, ttl)


def data(bills: pd.DataFrame) -> list[dict[str, Any]]:
    """Return bills as plain data."""
    made: list[dict[str, Any]] = store.plain(bills.to_dict("records"))
    return made


def show(bills: pd.DataFrame, to: Console | None = None) -> None:
    """Print bills side by side."""
    from sim.report import tables

    rows = []
    for row in data(bills):
        hosted = row.get("turns") is not None
        whole = row["usd"] or 0.0
        parts = [wording.percent(row[f"{part}_usd"] / whole) if hosted and whole else wording.NONE
                 for part in ("read", "write", "input", "output", "storage")]
        date = row["date"] if row["checked"] else f"from memory, {row['date']}"
        rows.append([row["name"], date or wording.NONE, wording.seconds(row["ttl_s"]),
                     wording.usd(row["usd_per_trajectory"]), *parts])
    tables.show_rows(rows, headers=("", "prices of", "lives", "a trajectory", "read", "write", "input", "output",
                                    "storage"), to=to)
