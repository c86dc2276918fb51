"""Where a capacity search begins: closed forms on what the agents ask for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.scenario.deployment import Deployment
    from sim.scenario.model import Scenario
    from sim.timing.base import StepCost

#: Trajectories that are looked at.
SAMPLE = 64


@dataclass(frozen=True, slots=True)
class Demand:
    """What a trajectory asks for, on average.

    Attributes
    ----------
    context_tokens, shared_tokens
        Prompt and output of a turn, and how much of it other trajectories have computed before.
    turns, output_tokens, wait_s
        Turns, tokens generated and time in pauses.
    decoded_tokens, read_tokens
        Tokens that come out of decode steps (all but the first of a turn), and the tokens of context those steps read.
    prompts
        Of the trajectories looked at: (new tokens, tokens found) of every turn.
    trajectories
        How many were looked at.
    """

    context_tokens: float
    shared_tokens: float
    turns: float
    output_tokens: float
    wait_s: float
    decoded_tokens: float
    read_tokens: float
    prompts: list[tuple[int, int]]
    trajectories: int


def demand(scenario: Scenario) -> Demand:
    """Look at the first trajectories of a workload."""
    import workloads
    from workloads.stats import InfiniteCache, in_order

    cache = InfiniteCache()
    contexts: list[int] = []
    shared: list[int] = []
    prompts: list[tuple[int, int]] = []
    output = count = decoded = read = 0
    wait_s = 0.0
    for trajectory in islice(workloads.build(scenario.workload, Path()).trajectories(scenario.seed, 0), SAMPLE):
        for position, turn in enumerate(in_order(trajectory)):
            found = cache.match(turn.stream, turn.prompt_tokens)
            cache.add(turn.stream, turn.prompt_tokens + turn.kept_output)
            prompts.append((turn.prompt_tokens - found, found))
            contexts.append(turn.prompt_tokens + turn.output_tokens)
            if position == 0 and count:
                shared.append(found)
            output += turn.output_tokens
            steps = max(turn.output_tokens - 1, 0)
            decoded += steps
            read += steps * turn.prompt_tokens + steps * (steps - 1) // 2
            wait_s += turn.wait_s
        count += 1
    n = max(count, 1)
    return Demand(sum(contexts) / max(len(contexts), 1), sum(shared) / max(len(shared), 1), len(contexts) / n,
                  output / n, wait_s / n, decoded / n, read / n, prompts, n)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What closed forms say of all replicas together.

    Attributes
    ----------
    contexts
        Contexts that their pools hold side by side.
    rate
        Trajectories a second that they could compute, always busy.
    life_s
        Time a trajectory takes when it is alone.
    active_s
        The part of it outside pauses.
    """

    contexts: int
    rate: float
    life_s: float
    active_s: float


def ceilings(scenario: Scenario, asked: Demand) -> Ceilings:
    """Work out how many contexts fit, and how fast they can be served."""
    from sim.scenario.deployment import deploy
    from sim.timing import build

    place = deploy(scenario)
    cost = build(scenario.timing, place)
    fit = place.fit(max(round(asked.context_tokens), 1), int(asked.shared_tokens), scenario.engine.headroom)
    batch = max(1, min(fit, scenario.engine.schedule.max_seqs))
    prefill_s = _prefill_s(scenario, place, cost, asked)
    decode_s = asked.output_tokens * cost.step(batch, round(batch * asked.context_tokens)) / batch
    alone_s = asked.output_tokens * cost.step(1, round(asked.context_tokens))
    busy_s = max(prefill_s + decode_s, 1e-12)
    return Ceilings(fit * place.replicas, place.replicas / busy_s, asked.wait_s + prefill_s + alone_s,
                    prefill_s + alone_s)


def most_rate(scenario: Scenario, asked: Demand) -> float:
    """Return trajectories a second that no load and no retention policy exceeds.

    Notes
    -----
    A step takes no less than its prompt chunks alone would, nor than its decoding turns alone. So a replica is busy
    for at least the longer of two times a trajectory: its prompts, without what an infinite cache holds, in steps
    filled to the budget; and its output, decoded in the largest batch that the pool (contexts as at their shortest)
    and `max_seqs` allow. Both are least where a step's fixed part is shared most. Waits do not lower the bound: more
    agents fill them. Copies, evictions and objectives only lower what is reached.
    """
    from sim.scenario.deployment import deploy
    from sim.timing import build

    place = deploy(scenario)
    cost, schedule = build(scenario.timing, place), scenario.engine.schedule
    shortest = max(min(sum(prompt) for prompt in asked.prompts), 1)
    batch = max(1, min(place.fit(shortest, int(asked.shared_tokens)), schedule.max_seqs))
    read = asked.read_tokens / max(asked.decoded_tokens, 1.0)
    decode_s = asked.decoded_tokens * cost.step(batch, int(batch * read)) / batch
    budget = max(schedule.token_budget if schedule.policy == "chunked" else 0, max(new for new, _ in asked.prompts))
    prefill_s = 0.0
    for new, found in asked.prompts:
        if new:
            alike = max(1, budget // new)
            prefill_s += cost.step(0, 0, [(new, found)] * alike) / alike
    return place.replicas / max(prefill_s / asked.trajectories, decode_s, 1e-12)


def _prefill_s(scenario: Scenario, place: Deployment, cost: StepCost, asked: Demand) -> float:
    """Return the time a trajectory's prompts take; a step's fixed part counts only as far as a prompt fills it."""
    schedule = scenario.engine.schedule
    budget = schedule.token_budget if schedule.policy == "chunked" else 1 << 30
    total = 0.0
    for new, found in asked.prompts:
        past = found
        while new > 0:
            chunk = min(new, budget)
            total += cost.step(0, 0, [(chunk, past)]) * min(1.0, chunk / min(budget, 8192))
            past, new = past + chunk, new - chunk
    return total / asked.trajectories


def guess(scenario: Scenario, find: str, asked: Demand, load: float) -> float:
    """Return where to begin the search for `find`.

    Parameters
    ----------
    load
        The scenario's own load: trajectories alive, or trajectories a second.
    """
    most = ceilings(scenario, asked)
    held = most.contexts if scenario.retention.policy == "keep" else most.contexts * most.life_s / max(
        most.active_s, 1e-9)
    if find == "rate":
        return max(min(most.rate, held / most.life_s) * 0.8, 1e-9)
    alive = max(min(held, most.rate * most.life_s), 1.0)
    if find == "concurrency":
        return alive
    return max(load / alive, 0.0)
