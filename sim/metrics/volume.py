"""What it takes to serve the tasks of a day with deployments like the one simulated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sim.errors import InputError

#: Seconds of a day, and the most tasks that may be asked for.
DAY_S, MOST_TASKS = 86_400.0, 10**12


@dataclass(frozen=True, slots=True)
class Volume:
    """What it takes to serve so many tasks (trajectories) a day.

    Attributes
    ----------
    deployments, nodes
        Deployments as simulated, a whole number, and the nodes that all of them have.
    utilisation
        Share of what they finish at the load simulated that is asked for.
    usd_per_day, usd_per_task
        What they cost for 24 hours, busy or not, and that for each task; None without a price.
    """

    deployments: int
    nodes: int
    utilisation: float
    usd_per_day: float | None
    usd_per_task: float | None


def volume(summary: Mapping[str, Any], daily_tasks: float, nodes: int = 1) -> Volume:
    """Return how many deployments like the one simulated serve `daily_tasks` a day, and what they cost.

    Parameters
    ----------
    summary
        Of the run: each deployment is taken to finish trajectories at its rate, all day.
    daily_tasks
        Trajectories a day, evenly over the day: whoever has peaks gives 24 times the tasks of the busiest hour.
    nodes
        Nodes of the deployment simulated.

    Raises
    ------
    InputError
        That is no number of tasks, or no trajectory finished in the measured span of the run.
    """
    if not 0 < daily_tasks <= MOST_TASKS:
        raise InputError(f"expected tasks a day, above 0 and at most {MOST_TASKS:.0e}", field="daily-tasks",
                         got=daily_tasks)
    rate, cost, checks = summary["throughput"]["trajectories_per_s"], summary["cost"], summary["checks"]
    if not rate:
        raise InputError("no trajectory finished in the measured span, so there is no rate to go by: give the run a "
                         "longer duration", field="daily-tasks", got=daily_tasks)
    each = rate * DAY_S
    deployments = math.ceil(daily_tasks / each * (1 - 1e-12))
    usd = None if cost["usd"] is None else (
        cost["usd"] / (checks["span_s"] * checks["replications"]) * DAY_S * deployments)
    return Volume(deployments, deployments * nodes, daily_tasks / (deployments * each), usd,
                  None if usd is None else usd / daily_tasks)
