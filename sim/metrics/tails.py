"""What the turns beyond an objective's quantile waited for: that is what an objective that is missed waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.metrics import ledgers, slo
from sim.metrics.collect import Columns
from sim.metrics.percentiles import QUANTILES

#: objective -> the figure of a turn it limits
FIGURES = {"ttft": "ttft_s", "ttft_first": "ttft_s", "ttft_resumed": "ttft_s", "tpot": "tpot_s", "turn": "turn_s"}
#: Causes of the time up to the first token, and of the time after it. A preemption may lie on either side.
BEFORE = ("queue_blocks", "queue_budget", "reload", "prefill", "recompute")
AFTER = ("interference", "decode")


class Tail(NamedTuple):
    """An objective that is missed, by name, value and limit, how many turns lie beyond it, and their seconds by cause.

    Only the time that the objective counts: up to the first token, after it, or all of a turn.
    """

    objective: str
    value_s: float
    limit_s: float
    turns: int
    cause_s: Mapping[str, float]


def measured(columns: Columns, order: NDArray[Any], turn: Mapping[str, NDArray[Any]],
             limits: slo.Slo) -> dict[str, dict[str, Any]]:
    """Return, for each objective on a latency of turns, how many turns lie beyond its quantile, and seconds by cause.

    Of an objective on a mean these are all the turns it is about.

    Parameters
    ----------
    columns, order
        Of one replication, and the rows of `turns` that are measured.
    turn
        Their figures, in that order.
    limits
        The objectives.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, stats in limits.items():
        if name not in FIGURES:
            continue
        value = turn[FIGURES[name]]
        about = ~np.isnan(value)
        if name in ("ttft_first", "ttft_resumed"):
            about &= turn["first"] == (name == "ttft_first")
        for stat in stats:
            if about.any():
                least = -np.inf if stat == "mean" else np.quantile(value[about], QUANTILES[stat])
                beyond = about & (value >= least)
                found[f"{name}.{stat}"] = {"turns": int(beyond.sum()),
                                           "cause_s": _causes(columns, order[beyond], turn, beyond, name)}
    return found


def _causes(columns: Columns, rows: NDArray[Any], turn: Mapping[str, NDArray[Any]], beyond: NDArray[np.bool_],
            name: str) -> dict[str, float]:
    of = {"turn": (*BEFORE, *AFTER), "tpot": AFTER}.get(name, BEFORE)
    spent = {cause: float(columns("turns", f"{cause}_s")[rows].sum()) for cause in of}
    whole = {"turn": turn["turn_s"], "tpot": turn["turn_s"] - turn["ttft_s"]}.get(name, turn["ttft_s"])
    return spent | {"preemption": max(float(whole[beyond].sum()) - sum(spent.values()), 0.0)}


def worst(tails: Sequence[Mapping[str, dict[str, Any]]], rows: Sequence[Mapping[str, Any]]) -> Tail | None:
    """Return the tail of the objective that is missed by most; None where that is none on a latency of turns.

    Parameters
    ----------
    tails
        Of each replication, see `measured`.
    rows
        The objectives, with what was reached.
    """
    missed = [row for row in rows if row["met"] is False and row["limit_s"] is not None]
    if not missed:
        return None
    row = max(missed, key=lambda row: row["value_s"] / row["limit_s"] if row["limit_s"] else np.inf)
    found = [tail[row["objective"]] for tail in tails if row["objective"] in tail]
    if not found:
        return None
    added = ledgers.add(found)
    return Tail(row["objective"], row["value_s"], row["limit_s"], added["turns"], added["cause_s"])
