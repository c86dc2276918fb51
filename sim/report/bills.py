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


def of_run(folder: Path, names: Sequence[str], ttl: str | None, daily_tasks: float | None = None) -> pd.DataFrame:
    """Read a run and return its bills.

    Raises
    ------
    InputError
        The folder holds no run, or a name, the time to live or the tasks a day are wrong.
    """
    from sim.sweep.run import load

    summary = store.read_summary(folder)
    nodes = 1 if daily_tasks is None else load(folder).nodes
    turns = store.read_table(folder / "turns.parquet", billing.COLUMNS)
    return billing.table(turns, summary, names, ttl, daily_tasks, nodes)


def data(bills: pd.DataFrame) -> list[dict[str, Any]]:
    """Return bills as plain data."""
    made: list[dict[str, Any]] = store.plain(bills.to_dict("records"))
    return made


def show(bills: pd.DataFrame, to: Console | None = None) -> None:
    """Print bills side by side."""
    from sim.report import tables

    rows, bills_by_day = [], "usd_per_day" in bills
    for row in data(bills):
        hosted = row.get("turns") is not None
        whole = row["usd"] or 0.0
        parts = [wording.percent(row[f"{part}_usd"] / whole) if hosted and whole else wording.NONE
                 for part in ("read", "write", "input", "output", "storage")]
        date = row["date"] if row["checked"] else f"from memory, {row['date']}"
        rows.append([row["name"], date or wording.NONE, wording.seconds(row["ttl_s"]),
                     wording.usd(row["usd_per_trajectory"]),
                     *([wording.usd(row["usd_per_day"])] if bills_by_day else []), *parts])
    tables.show_rows(rows, headers=("", "prices of", "lives", "a trajectory", *(["a day"] if bills_by_day else []),
                                    "read", "write", "input", "output", "storage"), to=to)
    if bills_by_day:
        (to or tables.console()).print(f"\n{daily(bills)}", highlight=False)


def daily(bills: pd.DataFrame) -> str:
    """Return in words what serves the tasks of a day on one's own GPUs."""
    own = data(bills)[0]
    count, nodes = int(own["deployments"]), int(own["nodes"])
    many = f"{count:,} deployment{'s' if count > 1 else ''} like the one simulated ({nodes:,} node{'s' * (nodes > 1)})"
    usd = ("no price in the hardware profile" if own["usd_per_day"] is None else
           f"{wording.usd(own['usd_per_day'])} a day, {wording.usd(own['usd_per_task'])} a task")
    return (f"self-hosted: {many}, in use to {wording.percent(own['utilisation'])} of what they finish at the load "
            f"simulated: {usd}. Tasks are taken to come evenly over the day.")
