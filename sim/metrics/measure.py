"""One replication, measured: its records cut at the warm-up and reduced to what a summary is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.errors import InputError
from sim.metrics import checks, ledgers, lost, percentiles, routes, slo, space, tails, warmup
from sim.metrics.collect import Columns
from sim.records import TIERS, RunTotals

Array = NDArray[Any]

#: Prompt tokens found, by the tier they were found in.
HIT_COLUMNS = ("hit_hbm_tokens", *(f"hit_{tier}_tokens" for tier in TIERS))


@dataclass(frozen=True, slots=True)
class Facts:
    """What a summary must know that is not in the records.

    Attributes
    ----------
    warmup_s
        Warm-up in seconds; None for MSER-5.
    finite
        The workload is finite and played to its end (a trace without a `duration`).
    slo
        Objective -> statistic -> limit in seconds.
    gpus
        GPUs of the whole deployment.
    price_usd_per_gpu_hour
        None when the hardware profile has no price.
    tiers
        Names of the tiers below HBM that the scenario has.
    keeps
        Those of them in which a context stays when it has been read.
    if_empty
        Tier -> why nothing was written to it, should it have stayed empty.
    closed
        As many trajectories as the scenario says are always alive, so the load follows what the system serves.
    seed
        Seed of the bootstrap.
    block_tokens
        Tokens of a KV block; 0 for contiguous buffers.
    attention_efficiency, copy_efficiency
        What blocks of that size leave of the rate of decode attention, and pieces of theirs of the host link's.
    over_hbm_bytes
        Bytes by which weights and a given pool exceed the HBM of a replica.
    """

    warmup_s: float | None = None
    finite: bool = False
    slo: slo.Slo = field(default_factory=dict)
    gpus: int = 1
    price_usd_per_gpu_hour: float | None = None
    tiers: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    if_empty: Mapping[str, str] = field(default_factory=dict)
    closed: bool = False
    seed: int = 0
    block_tokens: int = 0
    attention_efficiency: float = 1.0
    copy_efficiency: float = 1.0
    over_hbm_bytes: int = 0


@dataclass(slots=True)
class Part:
    """One replication after its warm-up. Arrays of turns are in order of `ready_s`."""

    totals: RunTotals
    warmup_s: float
    settled: bool
    span_s: float
    turns: int
    trajectories: dict[str, int]
    #: Finished turns that became ready after the warm-up: column -> array.
    turn: dict[str, Array]
    #: Finished turns that ended after the warm-up: end, prompt and output tokens.
    done: dict[str, Array]
    trajectory_s: Array
    trajectory_end_s: Array
    #: How old each trajectory of the whole run grew, and whether it had come to its end.
    age_s: Array
    ended: Array
    ledger: dict[str, dict[str, float]]
    #: The same of tiers below HBM and of links, by name.
    below: dict[str, dict[str, dict[str, float]]]
    hold: dict[str, Any]
    itl: percentiles.Histogram
    step: percentiles.Histogram
    concurrency: float
    checks: dict[str, Any]
    goodput: dict[str, int]
    #: Contexts moved to each tier, and those evicted from it before their return; see `lost`.
    lost: dict[str, dict[str, float]]
    #: What turns beyond each objective waited for; see `tails`.
    tails: dict[str, dict[str, Any]]
    space: dict[str, float]
    #: Turns that followed another, and their tokens, by whether they came back to its replica; see `routes`.
    routes: dict[str, int]


def measure(columns: Columns, totals: RunTotals, facts: Facts) -> Part:
    """Reduce one replication.

    Raises
    ------
    InputError
        The warm-up given leaves nothing to measure.
    """
    finished = columns.equals("turns", "status", "finished")
    ready = columns("turns", "ready_s")
    order = np.flatnonzero(finished)
    order = order[np.argsort(ready[order], kind="stable")]
    ttft = (columns("turns", "first_token_s") - ready)[order]
    begin, settled = warmup.cut(ready[order], ttft, warmup_s=facts.warmup_s, finite=facts.finite)
    if begin >= totals.end_s > 0:
        raise InputError(f"the run ends at {totals.end_s:g} s: nothing is left to measure", field="warmup", got=begin)
    keep = ready[order] >= begin
    order, ttft = order[keep], ttft[keep]
    chosen = np.zeros(finished.size, dtype=bool)
    chosen[order] = True

    turn = _turns(columns, order, ttft)
    timeline = ledgers.Timeline(columns, begin, totals.end_s)
    ends, lives = _trajectories(columns, begin)
    age_s, ended = checks.ages(columns, totals.end_s)
    ledger = {"turn_s": ledgers.turn_ledger(columns, chosen), "pool_byte_s": timeline.pool_ledger(),
              "gpu_s": timeline.gpu_ledger()}
    below = ledgers.below(timeline, [tier for tier in TIERS if tier in facts.tiers])
    return Part(
        totals=totals, warmup_s=begin, settled=settled, span_s=totals.end_s - begin, turns=int(finished.sum()),
        trajectories=_count(columns), turn=turn, done=_done(columns, finished, begin),
        trajectory_s=lives, trajectory_end_s=ends, age_s=age_s, ended=ended, ledger=ledger, below=below,
        hold=ledgers.held(columns, begin),
        itl=percentiles.after(totals.itl_windows, begin), step=percentiles.after(totals.step_windows, begin),
        concurrency=checks.in_system(columns, "trajectories", "start_s", ("unfinished",), begin, totals.end_s)
        / max(totals.end_s - begin, 1e-300),
        checks=checks.check(timeline, turn, columns, totals, finite=facts.finite, ledger=ledger),
        goodput=_goodput(columns, order, turn, begin, facts.slo) if facts.slo else {},
        lost=lost.measured(columns, begin, list(below["tier_byte_s"])),
        tails=tails.measured(columns, order, turn, facts.slo),
        space=space.measured(columns, timeline, totals, turn),
        routes=routes.measured(columns, chosen, turn) if totals.replicas > 1 else {},
    )


def _turns(columns: Columns, order: Array, ttft: Array) -> dict[str, Array]:
    ready, end = columns("turns", "ready_s")[order], columns("turns", "end_s")[order]
    output = columns("turns", "output_tokens")[order]
    gaps = np.where(output > 1, output - 1, np.nan)
    turn = {"ready_s": ready, "ttft_s": ttft, "turn_s": end - ready, "output_tokens": output,
            "tpot_s": (end - ready - ttft) / gaps, "first": columns("turns", "first")[order].astype(bool)}
    for name in ("prompt_tokens", "ceiling_tokens", *HIT_COLUMNS):
        turn[name] = columns("turns", name)[order]
    turn["hit_tokens"] = np.sum([turn[name] for name in HIT_COLUMNS], axis=0)
    return turn


def _done(columns: Columns, finished: Array, begin: float) -> dict[str, Array]:
    end = columns("turns", "end_s")
    rows = finished & (end >= begin)
    return {"end_s": end[rows], "output_tokens": columns("turns", "output_tokens")[rows],
            "prompt_tokens": columns("turns", "prompt_tokens")[rows]}


def _count(columns: Columns) -> dict[str, int]:
    finished = int(columns.equals("trajectories", "status", "finished").sum())
    rejected = int(columns.equals("trajectories", "status", "rejected").sum())
    return {"started": int(columns("trajectories", "trajectory").size), "finished": finished, "rejected": rejected}


def _trajectories(columns: Columns, begin: float) -> tuple[Array, Array]:
    """Return ends and lifetimes of the trajectories that finished after the warm-up."""
    start, end = columns("trajectories", "start_s"), columns("trajectories", "end_s")
    rows = columns.equals("trajectories", "status", "finished") & (end >= begin)
    return end[rows], (end - start)[rows]


def _goodput(columns: Columns, order: Array, turn: Mapping[str, Array], begin: float,
             limits: slo.Slo) -> dict[str, int]:
    """Count turns and trajectories that meet the objectives, and those that could have.

    A rejected turn or trajectory could have. A trajectory is counted when it ended after the warm-up; it meets the
    objectives when it finished in time and each of its measured turns does.
    """
    good = slo.turns_meeting(limits, turn["ttft_s"], turn["first"], turn["tpot_s"], turn["turn_s"])
    rejected = columns.equals("turns", "status", "rejected") & (columns("turns", "ready_s") >= begin)
    number = columns("turns", "trajectory")
    failed = np.concatenate([number[order][~good], number[rejected]])
    start, end = columns("trajectories", "start_s"), columns("trajectories", "end_s")
    finished = columns.equals("trajectories", "status", "finished")
    ended = (finished | columns.equals("trajectories", "status", "rejected")) & (end >= begin)
    fine = ended & finished & (end - start <= slo.limit(limits, "trajectory"))
    fine &= ~np.isin(columns("trajectories", "trajectory"), failed)
    return {"turns": int(good.sum()), "of_turns": int(good.size + rejected.sum()),
            "trajectories": int(fine.sum()), "of_trajectories": int(ended.sum())}
