"""The summary of a run: one mapping, whose keys are a contract."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics import binds, checks, cost, intervals, ledgers, lost, percentiles, routes, slo, space, tails
from sim.metrics.measure import HIT_COLUMNS, Facts, Part
from sim.records import TIERS

#: Counts every summary has, zero or not; the engine may add others.
COUNTS = ("evictions", "forced_evictions", "preemptions", "rejections", "deadlocks_broken", "cow_copies")
#: Labels named as the ones that cost most recomputed tokens.
BREAKERS = 10


def summarise(parts: Sequence[Part], facts: Facts, wall_s: float) -> dict[str, Any]:
    """Combine replications into a summary: SI units, None where a figure does not apply.

    Distributions pool the turns of all replications; counts, ledgers and money add up; rates and means over time are
    weighted by each replication's measured span. `turns`, `trajectories` and `counts` are of whole runs, everything
    else of the time after the warm-up.

    Parameters
    ----------
    parts
        At least one replication.
    facts
        What is not in the records.
    wall_s
        Wall-clock seconds the simulation took.
    """
    span = sum(part.span_s for part in parts)
    ttft, first = _join(parts, "ttft_s"), _join(parts, "first")
    counts = _counts(parts)
    ledger = ledgers.add(part.ledger for part in parts)
    ledger_below = ledgers.add(part.below for part in parts)
    prompt, output = (int(sum(part.done[name].sum() for part in parts)) for name in ("prompt_tokens", "output_tokens"))
    lives = np.concatenate([part.trajectory_s for part in parts])
    summary: dict[str, Any] = {
        "turns": sum(part.turns for part in parts),
        "trajectories": ledgers.add(part.trajectories for part in parts),
        "ttft_s": {"first": percentiles.of_samples(ttft[first]), "resumed": percentiles.of_samples(ttft[~first]),
                   "all": percentiles.of_samples(ttft)},
        "itl_s": percentiles.of_histogram(percentiles.merge(part.itl for part in parts)),
        "tpot_s": percentiles.of_samples(_join(parts, "tpot_s")),
        "turn_s": percentiles.of_samples(_join(parts, "turn_s")),
        "trajectory_s": percentiles.of_samples(lives),
        "throughput": {
            "turns_per_s": _over(sum(part.done["end_s"].size for part in parts), span),
            "trajectories_per_s": _over(lives.size, span),
            "output_tokens_per_s": _over(output, span),
            "prompt_tokens_per_s": _over(prompt, span),
        },
        "goodput": None,
        "hit_rate": _hit_rate(parts, facts),
        "counts": counts,
        "ledger": {**ledger, **ledger_below},
        "unused_tiers": _unused(ledger_below, facts),
        "lost_contexts": lost.summary([part.lost for part in parts], ledger_below.get("tier_byte_s", {}), facts.keeps),
        "routing": routes.summary([part.routes for part in parts], parts[0].totals.replicas),
        "allocation": space.summary(parts),
        "blocks": None,
        "over_hbm_bytes": facts.over_hbm_bytes,
        "hold_GB_s": ledgers.add(part.hold for part in parts),
        "concurrency": {"mean": _over(sum(part.concurrency * part.span_s for part in parts), span),
                        "max": max(part.totals.alive_max for part in parts)},
        "binds": None,
        "cost": cost.cost(gpus=facts.gpus, price_usd_per_gpu_hour=facts.price_usd_per_gpu_hour, span_s=span,
                          trajectories=lives.size, prompt_tokens=prompt, output_tokens=output),
        "breakers": _breakers(parts),
        "prediction_error": _prediction(parts),
        "checks": {**_checks(parts), **_life(parts, facts), "closed_load": facts.closed},
        "intervals": intervals.intervals(parts, facts.seed),
        "band": parts[0].totals.band or None,
        "wall_s": wall_s,
        "events": sum(part.totals.events for part in parts),
    }
    summary["blocks"] = _blocks(facts, summary["allocation"]["request_tokens"])
    if facts.slo:
        summary["goodput"] = _goodput(parts, facts, summary, span)
    tail = tails.worst([part.tails for part in parts], (summary["goodput"] or {}).get("objectives", []))
    summary["binds"] = binds.binds(ledger=ledger, bound_s=_added(parts, "bound_s"), counts=counts, tail=tail)
    return summary


def _blocks(facts: Facts, tokens: int | None) -> dict[str, float | int | None] | None:
    """Return what the block size means to a turn of `tokens`; None for contiguous buffers."""
    if not facts.block_tokens:
        return None
    entries = None if tokens is None else -(-tokens // facts.block_tokens)
    return {"block_tokens": facts.block_tokens, "table_entries": entries,
            "attention_efficiency": facts.attention_efficiency, "copy_efficiency": facts.copy_efficiency}


def _join(parts: Sequence[Part], name: str) -> NDArray[Any]:
    return np.concatenate([part.turn[name] for part in parts])


def _over(amount: float, whole: float) -> float | None:
    return float(amount) / float(whole) if whole else None


def _counts(parts: Sequence[Part]) -> dict[str, int]:
    total = Counter(dict.fromkeys(COUNTS, 0))
    for part in parts:
        total.update(part.totals.counts)
    return dict(total)


def _added(parts: Sequence[Part], name: str) -> dict[str, float]:
    return ledgers.add(getattr(part.totals, name) for part in parts)


def _unused(below: dict[str, Any], facts: Facts) -> dict[str, str]:
    """Return the tiers that nothing was written to in the measured span, each with why."""
    uses = below.get("tier_byte_s", {})
    return {tier: why for tier, why in facts.if_empty.items() if tier in uses
            and sum(amount for use, amount in uses[tier].items() if use != "free") <= 1e-12 * sum(uses[tier].values())}


def _hit_rate(parts: Sequence[Part], facts: Facts) -> dict[str, float | None]:
    """Return shares of prompt tokens: one denominator for all of them."""
    sums = {name: float(sum(part.turn[name].sum() for part in parts))
            for name in ("prompt_tokens", "ceiling_tokens", "hit_tokens", *HIT_COLUMNS)}
    prompt = sums["prompt_tokens"]
    rate = {"total": _over(sums["hit_tokens"], prompt),
            "hbm": _over(sums["hit_hbm_tokens"], prompt)}
    for tier in TIERS:
        rate[tier] = _over(sums.get(f"hit_{tier}_tokens", 0.0), prompt) if tier in facts.tiers else None
    return rate | {"ceiling": _over(sums["ceiling_tokens"], prompt)}


def _goodput(parts: Sequence[Part], facts: Facts, summary: dict[str, Any], span: float) -> dict[str, Any]:
    total = ledgers.add(part.goodput for part in parts)
    reached = {"turns": _over(total["turns"], total["of_turns"]),
               "trajectories": _over(total["trajectories"], total["of_trajectories"])}
    rows = slo.objectives(facts.slo, summary) + slo.shares(facts.slo, reached)
    verdicts = [row["met"] for row in rows if row["met"] is not None]
    return {**reached,
            "turns_per_s": _over(total["turns"], span), "trajectories_per_s": _over(total["trajectories"], span),
            "met": all(verdicts) if verdicts else None, "objectives": rows}


def _breakers(parts: Sequence[Part]) -> list[dict[str, Any]]:
    tokens = _added(parts, "breakers")
    ranked = sorted(tokens.items(), key=lambda item: (-item[1], item[0]))[:BREAKERS]
    return [{"span": label, "recomputed_tokens": int(amount)} for label, amount in ranked if amount > 0]


def _prediction(parts: Sequence[Part]) -> dict[str, float]:
    names = sorted({name for part in parts for name in part.totals.prediction_error})
    given = {name: [part.totals.prediction_error[name] for part in parts if name in part.totals.prediction_error]
             for name in names}
    return {name: float(np.mean(values)) for name, values in given.items()}


def _life(parts: Sequence[Part], facts: Facts) -> dict[str, Any]:
    """Return what half of the trajectories take, and whether that is more than was measured of a run without end."""
    ages_s, ended = (np.concatenate([getattr(part, name) for part in parts]) for name in ("age_s", "ended"))
    median = checks.median_life(ages_s, ended)
    span_s = sum(part.span_s for part in parts) / len(parts)
    short = not facts.finite and bool(ages_s.size) and (median is None or median > span_s)
    return {"trajectory_median_s": median, "shorter_than_trajectories": short}


def _checks(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the worst over replications; times are means."""
    stable = [part.checks["stable"] for part in parts]
    little = [part.checks["little_residual"] for part in parts if part.checks["little_residual"] is not None]
    residuals = [part.checks["ledger_residual"] for part in parts]
    return {
        "stable": False if False in stable else (None if None in stable else True),
        "little_residual": max(little, default=None),
        "alive_residual": max(part.checks["alive_residual"] for part in parts),
        "warmup_s": float(np.mean([part.warmup_s for part in parts])),
        "warmup_settled": all(part.settled for part in parts),
        "span_s": float(np.mean([part.span_s for part in parts])),
        "turns_measured": int(sum(part.turn["ready_s"].size for part in parts)),
        "ledger_residual": {name: max(row[name] for row in residuals) for name in residuals[0]},
        "replications": len(parts),
    }
