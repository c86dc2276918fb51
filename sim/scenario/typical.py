"""How long the contexts of a scenario's own agents are, from the first of them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

from sim.errors import InputError

if TYPE_CHECKING:
    from sim.scenario.model import Scenario

#: Trajectories looked at.
SAMPLE = 32


class Typical(NamedTuple):
    """Contexts (prompt and what is kept of the output) of the turns of the first agents, in tokens."""

    agents: int
    turns: int
    mean: int
    median: int


def typical(scenario: Scenario, most: int) -> Typical:
    """Look at the first agents of a scenario's workload.

    Parameters
    ----------
    scenario
        A loaded scenario.
    most
        Longest context of the model; longer ones count as that long.

    Raises
    ------
    InputError
        The workload cannot be read, or holds no turn.
    """
    import workloads
    from workloads.arrivals import Arrivals, ClosedLoop
    from workloads.stats import in_order

    config = scenario.workload
    if config.arrivals is None:  # a trace without times would be counted first
        config = config.model_copy(update={"arrivals": Arrivals(closed=ClosedLoop(concurrency=1))})
    agents = list(islice(workloads.build(config, Path()).trajectories(scenario.seed, 0), SAMPLE))
    contexts = [min(turn.prompt_tokens + turn.kept_output, most) for agent in agents for turn in in_order(agent)]
    if not contexts:
        raise InputError("has no turns", field="workload.agents")
    return Typical(len(agents), len(contexts), max(1, round(fmean(contexts))), max(1, round(median(contexts))))
