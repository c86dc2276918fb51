"""More of one resource, everything else as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.scenario.model import Scenario

#: By how much a resource is relieved.
FACTOR = 1.25

#: resource -> what is turned up
WORDS = {
    "memory": "KV pool of a replica", "compute": "peak arithmetic", "hbm_bandwidth": "HBM bandwidth",
    "host_link": "link to host memory", "dram": "DRAM tier", "interconnect": "links between GPUs",
    "step_overhead": "fixed cost of a step", "batch_slots": "schedule.max_seqs",
}


def resources(scenario: Scenario) -> list[str]:
    """Return the resources a scenario uses, and that can be relieved.

    Measured step times hold for the hardware they were measured on: there compute, HBM bandwidth and the links between
    GPUs are left out.
    """
    timed = getattr(scenario.timing, "measured", None) is None
    names = ["memory", *(["compute", "hbm_bandwidth"] if timed else [])]
    if scenario.tiers.dram is not None and scenario.retention.policy not in ("keep", "release", "drop"):
        names += ["host_link", "dram"]
    if not timed:
        return [*names, "batch_slots"]
    if scenario.parallelism.tp * scenario.parallelism.pp > 1:
        names.append("interconnect")
    if getattr(getattr(scenario.timing, "roofline", None), "step_overhead_s", 0.0) > 0:
        names.append("step_overhead")
    return [*names, "batch_slots"]


def relieve(scenario: Scenario, resource: str, factor: float = FACTOR) -> Scenario:
    """Return the scenario with `factor` times as much of one resource.

    Parameters
    ----------
    resource
        A key of `WORDS`.
    """
    from sim.scenario.deployment import deploy

    if resource == "memory":
        pool = deploy(scenario).pool_bytes * factor
        return scenario.model_copy(update={"engine": scenario.engine.model_copy(update={"pool": pool})})
    if resource == "batch_slots":
        schedule = scenario.engine.schedule
        wider = schedule.model_copy(update={"max_seqs": int(schedule.max_seqs * factor)})
        return scenario.model_copy(update={"engine": scenario.engine.model_copy(update={"schedule": wider})})
    if resource == "step_overhead":
        roofline = scenario.timing.roofline
        quicker = roofline.model_copy(update={"step_overhead_s": roofline.step_overhead_s / factor})
        return scenario.model_copy(update={"timing": scenario.timing.model_copy(update={"roofline": quicker})})
    node = deploy(scenario).node
    update: dict[str, Any] = {}
    if resource == "dram":
        assert scenario.tiers.dram is not None
        larger = scenario.tiers.dram.model_copy(update={"capacity": scenario.tiers.dram.capacity * factor})
        update["tiers"] = scenario.tiers.model_copy(update={"dram": larger})
        node = node.model_copy(update={"host_dram_bytes": node.host_dram_bytes * factor})
    elif resource == "host_link":
        link = node.host_link
        wider_link = {name: getattr(link, name) * factor for name in ("out_Bps", "in_Bps", "both_Bps")}
        node = node.model_copy(update={"host_link": link.model_copy(update=wider_link),
                                       "host_dram_Bps": node.host_dram_Bps * factor})
    elif resource == "compute":
        peaks = node.gpu.peak_flops
        faster = peaks.model_copy(update={name: getattr(peaks, name) * factor for name in type(peaks).model_fields})
        node = node.model_copy(update={"gpu": node.gpu.model_copy(update={"peak_flops": faster})})
    else:
        name = {"hbm_bandwidth": "hbm_Bps", "interconnect": "nvlink_Bps"}[resource]
        node = node.model_copy(update={"gpu": node.gpu.model_copy(update={name: getattr(node.gpu, name) * factor})})
    return scenario.model_copy(update={**update, "hardware": node})
