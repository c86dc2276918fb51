"""Verbs on the folders that runs leave."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sim.cli.options import AsJson, NextTo, print_json, tell
from sim.errors import InputError


def bill(folder: Path, /, *, price: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
         ttl: str | None = None, daily_tasks: float | None = None, json: AsJson = False) -> None:
    """What a run's trajectories cost, here and at providers that cache prompts.

    Parameters
    ----------
    folder
        Folder of a run.
    price
        A model with a price; repeats; all of them when left out.
    ttl
        Time to live of what is cached, like '1 h', where the provider sells several.
    daily_tasks
        Trajectories a day, evenly over it: adds how many deployments like the one simulated serve them, and what a day
        costs.
    """
    from sim.report import bills

    found = bills.of_run(folder, price, ttl, daily_tasks)
    if json:
        print_json(bills.data(found))
    else:
        bills.show(found)


def compare(first: Path, /, *others: Path, json: AsJson = False) -> None:
    """Runs side by side, and the differences to the first where they served the same agents.

    Parameters
    ----------
    first, others
        Folders of runs.
    """
    from sim.report import compare as comparing

    if not others:
        raise InputError("compare needs two folders or more")
    comparison = comparing.compare([first, *others])
    if json:
        print_json(comparison.data())
    else:
        comparing.show(comparison)


def report(folder: Path, /, *, output: NextTo = None) -> None:
    """Write one self-contained HTML file: figures, tables, what binds and why.

    Parameters
    ----------
    folder
        The folder of a run or of a sweep.
    """
    from sim.report import html

    print(html.report(folder, output))


def trace(folder: Path, /, *, output: NextTo = None, limit: int = 300, replication: int = 0) -> None:
    """Write a run as Chrome-trace JSON, which ui.perfetto.dev opens.

    Parameters
    ----------
    folder
        The folder of a run.
    limit
        Trajectories drawn, the first to arrive; 0 for all. Counters are always of the whole run.
    replication
        Which repetition.
    """
    from sim.report import trace as tracing

    written = tracing.trace(folder, output, limit=limit, replication=replication)
    left = f", {written.left_out:,} left out (--limit 0 draws all)" if written.left_out else ""
    tell(f"{written.events:,} events, {written.trajectories:,} trajectories{left}")
    print(written.path)
