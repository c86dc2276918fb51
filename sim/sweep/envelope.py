"""Capacity envelopes: how many agents a node holds, over context length, sharing and tool waits, and what they cost."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.sweep import pool

if TYPE_CHECKING:
    import pandas as pd

    from sim.scenario.model import Scenario

#: Nodes of the usual comparison.
NODES = ("dgx-h100", "dgx-h200", "gh200-nvl2", "dgx-b200", "gb200-nvl72")


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of an envelope."""

    hardware: str
    context_tokens: int
    sharing: float
    wait_s: float
    scenario: Scenario | None
    error: str = ""


def envelope(scenario: Any, *, contexts: Sequence[int] = (8_192, 32_768, 131_072),
             sharing: Sequence[float] = (0.0, 0.75), waits: Sequence[float | str] = (5.0, 60.0),
             hardware: Sequence[str] = NODES, turns: int = 8,
             simulate: bool = True, settings: Mapping[str, Sequence[Any]] | None = None, overrides: Sequence[str] = (),
             jobs: int | None = None, most_replications: int = 4) -> pd.DataFrame:
    """Return the concurrency that nodes hold over context length, sharing and tool wait.

    Parameters
    ----------
    scenario
        Everything else: model, engine, retention, objectives, duration. Its agents are replaced, its hardware too.
    contexts
        Tokens of an agent's context halfway through its turns.
    sharing
        Share of that context that all agents have in common.
    waits
        Time between turns: seconds, or text with a unit. Waits are exponential with this mean.
    hardware
        Names of nodes. Where a replica of the scenario's `parallelism` does not fit a node, tensor parallelism is cut
        to the GPUs it has.
    turns
        Turns of an agent.
    simulate
        Search for the concurrency by simulation (the scenario needs `slo:`); otherwise only closed forms are given.
    settings
        Further axes: path -> values, like ``{"retention.policy": ["keep", "offload"]}``.
    overrides
        ``dotted.path=value`` texts.
    jobs
        Combinations at once (of a single one: replications); None for one a core.
    most_replications
        Replications of a load too close to call; every load begins with two, whatever the scenario's.

    Returns
    -------
    DataFrame
        One row a combination: the axes; `ceiling`, the contexts that fit by closed form (contexts at the end of the
        last turn); `trajectories_per_h_most` and `usd_per_trajectory_least`, bounds that hold for any number of
        agents (`sim.sweep.estimate.most_rate`); with `simulate` also `concurrency` with its interval (`low`, `high`),
        `binds`, `ttft_resumed_p95_s`, `itl_p99_s`, `trajectories_per_h` and `usd_per_trajectory` at that concurrency.
        A combination that does not fit has its reason in `error`.

    Raises
    ------
    InputError
        The scenario is wrong, or lacks objectives.
    """
    import pandas as pd

    from sim import units
    from sim.sweep.run import load

    base: Scenario = scenario if hasattr(scenario, "workload") else load(scenario, overrides)
    if simulate and not base.slo:
        raise InputError("an envelope by simulation needs objectives, like slo: {ttft_resumed: {p95: 2 s}}",
                         field="slo")
    times = [units.parse(wait, units.SECONDS) for wait in waits]
    axes = dict(settings or {})
    cells = []
    for combination in itertools.product(*axes.values()):
        extra = dict(zip(axes, combination, strict=True))
        for name, context, share, wait_s in itertools.product(hardware, contexts, sharing, times):
            cells.append((_cell(base, name, int(context), float(share), wait_s, turns, extra), extra))
    inner = jobs if len(cells) == 1 else 1
    tasks = [(number, cell, simulate, most_replications, inner) for number, (cell, _) in enumerate(cells)]
    found = dict(pool.each(_work_out, tasks, jobs))
    rows = [{"hardware": cell.hardware, "context_tokens": cell.context_tokens, "sharing": cell.sharing,
             "wait_s": cell.wait_s, **extra, **found[number]} for number, (cell, extra) in enumerate(cells)]
    return pd.DataFrame(rows)


def pareto(frame: pd.DataFrame, better: str = "trajectories_per_h", cheaper: str = "usd_per_trajectory",
           by: Sequence[str] = ("context_tokens", "sharing", "wait_s")) -> pd.DataFrame:
    """Return the rows that no other beats: none of the same agents has more of `better` for no more of `cheaper`.

    Parameters
    ----------
    frame
        What `envelope` gives, or any table with these columns.
    by
        Columns that say which agents are served: only rows alike in them are compared.

    Returns
    -------
    DataFrame
        The front, cheapest first within each group, with `cheapest` True in its first row.

    Raises
    ------
    InputError
        The table lacks a column, as one of closed forms (``simulate=False``) lacks rates and costs.
    """
    lacks = [name for name in (better, cheaper, *by) if name not in frame]
    if lacks:
        raise InputError(f"the table has no {', '.join(lacks)}; an envelope has them only where it is simulated "
                         "(simulate=True); of bounds: sim.pareto(frame, 'trajectories_per_h_most', "
                         "'usd_per_trajectory_least')", field="pareto")
    kept: list[Any] = []
    good = frame.dropna(subset=[better, cheaper])
    for _, group in good.groupby(list(by), sort=True, dropna=False):
        best = float("-inf")
        ranked = group.sort_values([cheaper, better], ascending=[True, False])
        for position, (index, row) in enumerate(ranked.iterrows()):
            if row[better] > best:
                best = float(row[better])
                kept.append((index, position == 0))
    front: pd.DataFrame = good.loc[[index for index, _ in kept]].copy()
    front["cheapest"] = [first for _, first in kept]
    return front


def _cell(base: Scenario, name: str, context: int, share: float, wait_s: float, turns: int,
          extra: Mapping[str, Any]) -> Cell:
    from hardware_profiles import node
    from sim.scenario.deployment import deploy
    from sim.sweep.axes import texts
    from sim.sweep.run import load

    if not 0 <= share < 1 or context < 64:
        raise InputError("contexts are 64 tokens or more, sharing is a fraction below 1", field="envelope",
                         got=f"{context}, {share}")
    tree = base.model_dump(mode="json", by_alias=True, exclude_none=True)
    tree.pop("sweep", None)
    tree.pop("vary", None)
    gpus = node(name).gpus
    tp = base.parallelism.tp
    while tp * base.parallelism.pp > gpus and tp > 1:
        tp //= 2
    tree |= {"name": f"{name}, {context} tokens", "hardware": name, "replications": 1,
             "parallelism": {"tp": tp, "pp": base.parallelism.pp},
             "workload": {"agents": _agent(context, share, wait_s, turns), "arrivals": {"closed": {"concurrency": 1}}}}
    try:
        scenario = load(tree, list(texts(dict(extra))))
        deploy(scenario)
        return Cell(name, context, share, wait_s, scenario)
    except InputError as error:
        return Cell(name, context, share, wait_s, None, str(error).splitlines()[0])


def _agent(context: int, share: float, wait_s: float, turns: int) -> dict[str, Any]:
    """Return an agent whose prompt and output are `context` tokens long halfway through its turns.

    An eighth of the context is generated and observed on the way, in equal parts a turn.
    """
    common = int(context * share)
    grown = max((context // 8) // max(turns - 1, 1), 2)
    start = max(context - common - grown * (turns - 1) // 2, 16)
    zones = [{"name": "own", "tokens": start}]
    if common:
        zones.insert(0, {"name": "shared", "tokens": common, "shared": "all"})
    return {"prompt": zones, "turns": turns, "output": max(grown // 2, 1), "observation": max(grown // 2, 1),
            "tools": {"tool": {"wait": {"exponential": {"mean": wait_s}}}}}


def _work_out(task: tuple[int, Cell, bool, int, int | None]) -> tuple[int, dict[str, Any]]:
    from sim.scenario.deployment import deploy
    from sim.sweep.estimate import demand, most_rate

    number, cell, simulate, most_replications, jobs = task
    if cell.scenario is None:
        return number, {"ceiling": 0, "error": cell.error}
    place = deploy(cell.scenario)
    longest = int(cell.context_tokens * 17 / 16)
    ceiling = place.fit(longest, int(cell.context_tokens * cell.sharing),
                        cell.scenario.engine.headroom) * place.replicas
    row: dict[str, Any] = {"gpus": place.gpus, "replicas": place.replicas, "tp": place.tp, "ceiling": ceiling,
                           "error": None}
    if ceiling:
        per_h = most_rate(cell.scenario, demand(cell.scenario)) * 3600
        row |= {"trajectories_per_h_most": per_h,
                "usd_per_trajectory_least": place.gpus * place.price_usd_per_gpu_hour / per_h}
    return number, row | (_simulated(cell, most_replications, jobs) if simulate else {})


def _simulated(cell: Cell, most_replications: int, jobs: int | None) -> dict[str, Any]:
    from sim.sweep.sizing import size

    try:
        found = size(cell.scenario, "concurrency", reliefs=False, jobs=jobs, tolerance=0.03,
                     most_replications=most_replications)
    except InputError as error:
        return {"error": str(error).splitlines()[0]}
    row = {"concurrency": found.answer or 0.0, "low": found.low, "high": found.high,
           "loads_tried": len(found.candidates), "binds": found.binds, "missed_beyond": found.missed_beyond}
    if found.summary is None:
        return row | {"error": "no load meets the objectives"}
    rate = found.summary["throughput"]["trajectories_per_s"]
    return row | {"ttft_resumed_p95_s": found.summary["ttft_s"]["resumed"]["p95"],
                  "itl_p99_s": found.summary["itl_s"]["p99"],
                  "trajectories_per_h": None if rate is None else rate * 3600,
                  "usd_per_trajectory": found.summary["cost"]["usd_per_trajectory"]}
