"""What binds: the resource whose shortage the ledgers show most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sim.records import TURN_CAUSES

if TYPE_CHECKING:
    from sim.metrics.tails import Tail

#: What bound a step (as the timing model says) -> the resource behind it.
BEHIND = {"compute": "compute", "weights": "hbm_bandwidth", "kv": "hbm_bandwidth", "memory": "hbm_bandwidth",
          "communication": "interconnect", "overhead": "step_overhead"}

#: What resources are called.
RESOURCES = {"memory": "memory (KV blocks)", "compute": "compute", "hbm_bandwidth": "HBM bandwidth",
             "host_link": "host link", "interconnect": "GPU interconnect", "step_overhead": "step overhead",
             "none": "nothing", None: "unknown"}

#: Below this share of busy GPU time, with turns hardly waiting, nothing binds.
BUSY = 0.5
#: Turns hardly wait below this share of their time.
WAITING = 0.05
#: Share of the pool, free or dormant, below which memory is short.
ROOM = 0.1


def binds(*, ledger: Mapping[str, Mapping[str, float]], bound_s: Mapping[str, float],
          counts: Mapping[str, int], tail: Tail | None = None) -> dict[str, Any]:
    """Name the resource that binds, say why in one sentence, and give every resource's score.

    A score is the share of the turns' time that the resource accounts for, so scores sum to 1:

    - `memory`: waiting for blocks, preemption, and (when memory is short) the share of step time that goes into
      recomputing what it did not hold, which delays every turn;
    - `host_link`: waiting for a reload;
    - the rest is spent in steps or waiting for them, and is divided by what bound the steps: `compute`,
      `hbm_bandwidth` (weights and KV reads), `interconnect`, `step_overhead`.

    The highest score binds. `none` does when GPUs are mostly idle and turns hardly wait: then the load, not a
    resource, sets the pace.

    Where an objective is missed (`tail`), what binds is what the turns beyond it wait for, however most turns fare:
    scores are shares of their time, and time in their own prefill is divided by what bound prefill.
    """
    time = _shares(tail.cause_s if tail is not None else ledger["turn_s"])
    gpu = _shares(ledger["gpu_s"])
    pool = _shares(ledger["pool_byte_s"])
    if not time:
        return {"resource": None, "why": "no turn finished in the measured span", "scores": {}}
    time = dict.fromkeys(TURN_CAUSES, 0.0) | time
    room = pool.get("free", 0.0) + pool.get("dormant_reused", 0.0) + pool.get("dormant_wasted", 0.0)
    forced = sum(counts.get(name, 0) for name in ("evictions", "forced_evictions", "preemptions"))
    short = room < ROOM or forced > 0
    busy = 1.0 - gpu.get("idle", 0.0)
    bound = _shares(bound_s) or {"compute": 1.0}
    again = gpu.get("recompute", 0.0) / busy if busy > 0 and short else 0.0
    scores = _scores(time, again, short=short)
    rest = max(1.0 - scores["memory"] - scores["host_link"], 0.0)
    own = time["prefill"] + (0.0 if short else time["recompute"]) if tail is not None else 0.0
    prefill = (gpu.get("prefill", 0.0) + gpu.get("recompute", 0.0)) / busy if busy > 0 else 0.0
    for part, terms in ((min(own, rest), _of_prefill(bound, prefill)), (max(rest - own, 0.0), bound)):
        for term, share in terms.items():
            name = BEHIND.get(term, term)
            scores[name] = scores.get(name, 0.0) + part * share
    resource = max(scores, key=lambda name: scores[name])
    if tail is not None:
        why = _why_missed(tail, time)
        if resource == "memory" and again > WAITING:
            why += f"; {again:.0%} of the steps' time goes into what memory did not hold, which delays all that wait"
        return {"resource": resource, "why": why, "scores": scores}
    waits = time["queue_blocks"] + time["queue_budget"] + time["preemption"]
    if busy < BUSY and waits < WAITING and not counts.get("rejections", 0):
        resource = "none"
    return {"resource": resource, "why": _why(resource, time, gpu, pool, bound, counts), "scores": scores}


def _scores(time: Mapping[str, float], again: float, *, short: bool) -> dict[str, float]:
    """Return the scores of what turns wait for outside steps; `again` is the share of step time that recomputes."""
    scores = dict.fromkeys(("memory", "host_link", "compute", "hbm_bandwidth", "interconnect", "step_overhead"), 0.0)
    blocked = time["queue_blocks"] + time["preemption"]
    steps = max(1.0 - blocked - time["reload"], 0.0)
    scores["memory"] = blocked + max(steps * again, time["recompute"] if short else 0.0)
    scores["host_link"] = time["reload"]
    return scores


def _of_prefill(bound: Mapping[str, float], prefill: float) -> Mapping[str, float]:
    """Return by what prefill is bound, when all step time is bound by `bound` and prefill takes a share of it.

    Arithmetic is put down to prefill first: a chunk of a prompt does as much for each byte read as no decode step
    does. What prefill takes beyond it is divided as the rest of all step time is.
    """
    if prefill <= 0:
        return bound
    inside = min(bound.get("compute", 0.0), prefill)
    others = {term: share for term, share in bound.items() if term != "compute"}
    whole = sum(others.values())
    left = (prefill - inside) / prefill
    return {"compute": 1.0 - left if whole > 0 else 1.0,
            **{term: left * share / whole for term, share in others.items() if whole > 0}}


def _shares(ledger: Mapping[str, float]) -> dict[str, float]:
    whole = sum(ledger.values())
    return {name: value / whole for name, value in ledger.items()} if whole > 0 else {}


def _why_missed(tail: Tail, time: Mapping[str, float]) -> str:
    """Return what the turns beyond a missed objective wait for, the most first."""
    from sim.metrics.wording import LABELS, percent, seconds

    ranked = sorted(((share, name) for name, share in time.items() if share >= 0.02), reverse=True)
    spent = ", ".join(f"{percent(share)} {LABELS[name]}" for share, name in ranked)
    turns = "turn" if tail.turns == 1 else f"{tail.turns:,} turns"
    some = "turns" if tail.objective.endswith(".mean") else f"the slowest {turns}"
    return (f"{tail.objective} is {seconds(tail.value_s)}, {seconds(tail.limit_s)} are allowed, and the time that "
            f"{some} spend{'s' if tail.turns == 1 and some != 'turns' else ''} is {spent}")


def _why(resource: str, time: Mapping[str, float], gpu: Mapping[str, float], pool: Mapping[str, float],
         bound: Mapping[str, float], counts: Mapping[str, int]) -> str:
    busy = f"{1 - gpu.get('idle', 0.0):.0%}"
    if resource == "none":
        waits = time["queue_blocks"] + time["queue_budget"] + time["preemption"]
        return (f"GPUs are busy {busy} of the time and turns queue for {waits:.1%} of theirs: "
                "this load leaves every resource with room")
    if resource == "memory":
        running = 1 - gpu.get("idle", 0.0)
        again = gpu.get("recompute", 0.0) / running if running > 0 else 0.0
        forced = counts.get("forced_evictions", 0)
        return (f"turns spend {time['queue_blocks'] + time['preemption']:.0%} of their time waiting for blocks and "
                f"{again:.0%} of busy GPU time recomputes what was not held; pauses pin {pool.get('kept', 0.0):.0%} of "
                f"the pool ({forced:,} were forced out), {pool.get('free', 0.0):.0%} is free")
    if resource == "host_link":
        return f"turns spend {time['reload']:.0%} of their time waiting for KV to return over the host link"
    terms = [term for term in bound if BEHIND.get(term, term) == resource]
    share = sum(bound[term] for term in terms)
    queue = time["queue_budget"] + time["interference"]
    reads = {"hbm_bandwidth": "HBM reads of weights and KV", "compute": "arithmetic",
             "interconnect": "communication between GPUs", "step_overhead": "the fixed cost of a step"}
    return (f"GPUs are busy {busy} of the time, {reads.get(resource, resource)} set {share:.0%} of step time, "
            f"and turns spend {queue:.0%} of theirs waiting for others' steps")
