"""How long the contexts of a scenario's own agents are, from the first of them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

from sim.errors import InputError

if TYPE_CHECKING:
    from sim.scenario.model import Scenario
    from workloads.trajectory import Stream, Turn

#: Trajectories looked at.
SAMPLE = 32


class Typical(NamedTuple):
    """Contexts (prompt and what is kept of the output) of the turns of the first agents, in tokens.

    `shared` are the first tokens that the first prompts of all of them have in common; 0 if only one agent was seen.
    """

    agents: int
    turns: int
    mean: int
    median: int
    shared: int


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
    return Typical(len(agents), len(contexts), max(1, round(fmean(contexts))), max(1, round(median(contexts))),
                   _common([agent.roots[0] for agent in agents]))


def _common(firsts: list[Turn]) -> int:
    """Return how many of their first tokens the prompts of some turns have in common."""
    if len(firsts) < 2:
        return 0
    paths: list[dict[Stream, int]] = []
    for turn in firsts:
        path, stream, tokens = {}, turn.stream, turn.prompt_tokens  # type: dict[Stream, int], Stream | None, int
        while stream is not None:
            path[stream] = tokens
            tokens, stream = min(tokens, stream.attach), stream.parent
        paths.append(path)
    everywhere = [stream for stream in paths[0] if all(stream in path for path in paths)]
    return max((min(path[stream] for path in paths) for stream in everywhere), default=0)
