"""What binds: the resource whose shortage the ledgers show most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
          counts: Mapping[str, int]) -> dict[str, Any]:
    """Name the resource that binds, say why in one sentence, and give every resource's score.

    A score is the share of the turns' time that the resource accounts for, so scores sum to 1:

    - `memory`: waiting for blocks, preemption, and (when memory is short) the share of step time that goes into
      recomputing what it did not hold, which delays every turn;
    - `host_link`: waiting for a reload;
    - the rest is spent in steps or waiting for them, and is divided by what bound the steps: `compute`,
      `hbm_bandwidth` (weights and KV reads), `interconnect`, `step_overhead`.

    The highest score binds. `none` does when GPUs are mostly idle and turns hardly wait: then the load, not a
    resource, sets the pace.
    """
    time = _shares(ledger["turn_s"])
    gpu = _shares(ledger["gpu_s"])
    pool = _shares(ledger["pool_byte_s"])
    if not time:
        return {"resource": None, "why": "no turn finished in the measured span", "scores": {}}
    room = pool.get("free", 0.0) + pool.get("dormant_reused", 0.0) + pool.get("dormant_wasted", 0.0)
    forced = sum(counts.get(name, 0) for name in ("evictions", "forced_evictions", "preemptions"))
    short = room < ROOM or forced > 0
    scores = dict.fromkeys(("memory", "host_link", "compute", "hbm_bandwidth", "interconnect", "step_overhead"), 0.0)
    blocked = time["queue_blocks"] + time["preemption"]
    busy = 1.0 - gpu.get("idle", 0.0)
    again = gpu.get("recompute", 0.0) / busy if busy > 0 and short else 0.0
    steps = max(1.0 - blocked - time["reload"], 0.0)
    scores["memory"] = blocked + max(steps * again, time["recompute"] if short else 0.0)
    scores["host_link"] = time["reload"]
    rest = max(1.0 - scores["memory"] - scores["host_link"], 0.0)
    bound = _shares(bound_s) or {"compute": 1.0}
    for term, share in bound.items():
        name = BEHIND.get(term, term)
        scores[name] = scores.get(name, 0.0) + rest * share
    resource = max(scores, key=lambda name: scores[name])
    waits = time["queue_blocks"] + time["queue_budget"] + time["preemption"]
    if busy < BUSY and waits < WAITING and not counts.get("rejections", 0):
        resource = "none"
    return {"resource": resource, "why": _why(resource, time, gpu, pool, bound, counts), "scores": scores}


def _shares(ledger: Mapping[str, float]) -> dict[str, float]:
    whole = sum(ledger.values())
    return {name: value / whole for name, value in ledger.items()} if whole > 0 else {}


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
