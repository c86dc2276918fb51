"""More of one resource, everything else as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.records import TIER_LABELS
from sim.scenario.tier_use import unwritten

if TYPE_CHECKING:
    from hardware_profiles import HostLink, NodeProfile
    from sim.scenario.model import Scenario

#: By how much a resource is relieved.
FACTOR = 1.25

#: Tiers with a link of their own.
_LOWER = tuple(name for name in TIER_LABELS if name != "dram")
#: resource -> what is turned up
WORDS = {
    "memory": "KV pool of a replica", "compute": "peak arithmetic", "hbm_bandwidth": "HBM bandwidth",
    "host_link": "link to host memory", "dram": "DRAM tier", "interconnect": "links between GPUs",
    "step_overhead": "fixed cost of a step", "batch_slots": "schedule.max_seqs",
    **{name: f"{TIER_LABELS[name]} tier" for name in _LOWER},
    **{f"{name}_link": f"bandwidth of {TIER_LABELS[name]}" for name in _LOWER},
}
#: resource -> what more of it means to whoever pays
BUY = {
    "memory": "GPUs with more memory, more GPUs a replica, or KV in fewer bits", "compute": "GPUs with more FLOP/s",
    "hbm_bandwidth": "GPUs with faster memory", "host_link": "a faster link from GPU to host", "dram": "host memory",
    "interconnect": "a faster link between GPUs", "step_overhead": "a faster engine or CPU",
    "batch_slots": "nothing: set engine.schedule.max_seqs",
    **{name: f"more {TIER_LABELS[name]}" for name in _LOWER},
    **{f"{name}_link": f"a faster way to {TIER_LABELS[name]}" for name in _LOWER},
}


class Binds(NamedTuple):
    """A resource or None, how that is known (``relief``, ``ledger`` or ``unclear``), and why."""

    resource: str | None
    by: str
    why: str


def binds(rows: Sequence[Mapping[str, Any]], ledger: Mapping[str, Any], *, answer: float | None, low: float | None,
          high: float | None) -> Binds:
    """Return what binds: the resource whose relief gives most, beyond chance.

    Where reliefs were measured, they decide. Ledgers name a resource only where none was: what they point to may be
    slow without being in the way.

    Parameters
    ----------
    rows
        Reliefs as `SizeResult.reliefs` has them; empty when none was measured.
    ledger
        The `binds` of a summary.
    answer, low, high
        The answer without relief, and its interval.
    """
    if not rows:
        return Binds(ledger["resource"], "ledger", ledger["why"])
    clear = sorted((row for row in rows if row["clear"] and row["gain"] > 0), key=lambda row: -row["gain"])
    if clear:
        best = clear[0]
        return Binds(best["resource"], "relief", ledger["why"] if ledger["resource"] == best["resource"] else "")
    maybe = [str(row["what"]) for row in rows if row["gain"] > 0]
    if maybe:
        return Binds(None, "unclear", f"more of {' or '.join(maybe)} may help, but by no more than chance could: "
                                      "give more replications or a longer duration")
    if answer is None or high is None or not low or high - low > max(1.0, 0.1 * answer):
        return Binds(None, "unclear", "no relief moves the answer by more than its interval is wide: give more "
                                      "replications or a longer duration")
    return Binds(None, "unclear", f"{FACTOR - 1:.0%} more of any single resource changes nothing: several bind at "
                                  "once, or what binds is none of them, like the agents' own waits or one long prompt")


def resources(scenario: Scenario) -> list[str]:
    """Return the resources a scenario uses, and that can be relieved.

    Measured step times hold for the hardware they were measured on: there compute, HBM bandwidth and the links between
    GPUs are left out.
    """
    timed = getattr(scenario.timing, "measured", None) is None
    names = ["memory", *(["compute", "hbm_bandwidth"] if timed else [])]
    unused = unwritten(scenario)
    tiers = [name for name in TIER_LABELS if getattr(scenario.tiers, name) is not None and name not in unused]
    if tiers:
        names.append("host_link")
        names += [resource for tier in tiers for resource in (tier, f"{tier}_link") if resource in WORDS]
    if timed and scenario.parallelism.tp * scenario.parallelism.pp > 1 and _node(scenario).gpu.nvlink_Bps:
        names.append("interconnect")
    if scenario.engine.step_overhead > 0:
        names.append("step_overhead")
    return [*names, "batch_slots"]


def relieve(scenario: Scenario, resource: str, factor: float = FACTOR) -> Scenario:
    """Return the scenario with `factor` times as much of one resource.

    Parameters
    ----------
    resource
        A key of `WORDS`.
    """
    if resource in ("memory", "batch_slots", "step_overhead"):
        return scenario.model_copy(update={"engine": _engine(scenario, resource, factor)})
    tier = resource.removesuffix("_link")
    if tier in TIER_LABELS:
        return _tier(scenario, tier, resource != tier, factor)
    return scenario.model_copy(update={"hardware": _hardware(_node(scenario), resource, factor)})


def _node(scenario: Scenario) -> NodeProfile:
    from sim.scenario.deployment import deploy

    return deploy(scenario).node


def _scaled(model: Any, factor: float, *names: str) -> Any:
    """Return a copy of a profile with some of its figures multiplied."""
    return model.model_copy(update={name: getattr(model, name) * factor for name in names})


def _engine(scenario: Scenario, resource: str, factor: float) -> Any:
    from sim.scenario.deployment import deploy

    engine, pool = scenario.engine, deploy(scenario).pool_bytes
    if resource == "memory":
        return engine.model_copy(update={"pool": pool * factor})
    if resource == "step_overhead":
        return engine.model_copy(update={"step_overhead": engine.step_overhead / factor})
    wider = engine.schedule.model_copy(update={"max_seqs": int(engine.schedule.max_seqs * factor)})
    # Activations of more sequences would come out of the pool, which is another resource.
    return engine.model_copy(update={"schedule": wider, "pool": pool})


def _hardware(node: NodeProfile, resource: str, factor: float) -> NodeProfile:
    """Return a node of which the links to host memory or a figure of the GPU are better."""
    if resource == "host_link":
        wider: NodeProfile = _scaled(node, factor, "host_dram_Bps")
        return wider.model_copy(update={"host_link": _wider(node.host_link, factor)})
    gpu = node.gpu
    if resource == "compute":
        peaks = _scaled(gpu.peak_flops, factor, *type(gpu.peak_flops).model_fields)
        return node.model_copy(update={"gpu": gpu.model_copy(update={"peak_flops": peaks})})
    name = {"hbm_bandwidth": "hbm_Bps", "interconnect": "nvlink_Bps"}[resource]
    return node.model_copy(update={"gpu": _scaled(gpu, factor, name)})


def _wider(link: HostLink, factor: float) -> HostLink:
    """Return a link with more bandwidth, by copies and by a kernel."""
    wider: HostLink = _scaled(link, factor, "out_Bps", "in_Bps", "both_Bps")
    if link.zero_copy is None:
        return wider
    return wider.model_copy(update={"zero_copy": _scaled(link.zero_copy, factor, "Bps", "both_Bps")})


def _tier(scenario: Scenario, name: str, bandwidth: bool, factor: float) -> Scenario:
    """Return the scenario with a larger tier, or one whose own link is wider; the node is made to hold it."""
    tier, node = getattr(scenario.tiers, name), _node(scenario)
    if not bandwidth:
        by_ratio = getattr(tier, "pool_ratio", None) is not None
        tier = _scaled(tier, factor, "pool_ratio" if by_ratio else "capacity")
        node = _scaled(node, factor, *(field for field in (f"host_{name}_bytes", f"{name}_bytes")
                                       if field in type(node).model_fields))
    elif tier.link is not None:
        tier = tier.model_copy(update={"link": _wider(tier.link, factor)})
    else:
        node = _scaled(node, factor, f"{name}_write_Bps", f"{name}_read_Bps")
    tiers = scenario.tiers.model_copy(update={name: tier})
    return scenario.model_copy(update={"tiers": tiers, "hardware": node})
