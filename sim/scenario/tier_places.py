"""What a scenario's tiers get of the hardware: bytes, and the links that are their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from hardware_profiles import HostLink, NodeProfile
from sim.errors import InputError
from sim.units import GiB

if TYPE_CHECKING:
    from sim.scenario.model import Scenario

#: Time a drive takes to answer when nothing else is said of it.
DRIVE_LATENCY_S = 1e-4


class TierPlace(NamedTuple):
    """A tier's bytes on a node, and its own link: away from the GPUs and towards them; 0 for host memory."""

    capacity_bytes: float
    out_Bps: float = 0.0
    in_Bps: float = 0.0
    latency_s: float = 0.0


def places(scenario: Scenario, node: NodeProfile, pool_bytes: float) -> dict[str, TierPlace]:
    """Return what each tier of a scenario has, by name.

    Parameters
    ----------
    scenario
        Its tiers are looked at.
    node
        One node.
    pool_bytes
        KV pools of the node's replicas together.

    Raises
    ------
    InputError
        A tier is larger than what the node has.
    """
    return {name: make(tier, node, pool_bytes) for name, make in _MAKERS.items()
            if (tier := getattr(scenario.tiers, name)) is not None}


def _dram(tier: Any, node: NodeProfile, pool_bytes: float) -> TierPlace:
    capacity = tier.capacity if tier.pool_ratio is None else tier.pool_ratio * pool_bytes
    if node.host_dram_bytes and capacity > node.host_dram_bytes:
        field = "capacity" if tier.pool_ratio is None else "pool_ratio"
        raise InputError(f"{node.name} has {node.host_dram_bytes / GiB:.0f} GiB of host memory",
                         field=f"tiers.dram.{field}", got=f"{capacity / GiB:.0f} GiB")
    return TierPlace(float(int(capacity)))


def _nvme(tier: Any, node: NodeProfile, _pool_bytes: float) -> TierPlace:
    if tier.link is not None:
        return _over(tier.capacity, tier.link, tier.links)
    if tier.capacity > node.nvme_bytes:
        raise InputError(f"{node.name} has {node.nvme_bytes / 1e12:.2f} TB of local storage",
                         field="tiers.nvme.capacity", got=f"{tier.capacity / 1e12:.2f} TB")
    if tier.capacity and not (node.nvme_write_Bps and node.nvme_read_Bps):
        raise InputError(f"{node.name} does not say how fast its storage is; give tiers.nvme.link",
                         field="tiers.nvme.capacity", got=f"{tier.capacity / 1e12:.2f} TB")
    return TierPlace(tier.capacity, node.nvme_write_Bps, node.nvme_read_Bps, DRIVE_LATENCY_S)


def _remote(tier: Any, node: NodeProfile, _pool_bytes: float) -> TierPlace:
    link: HostLink = tier.link
    if tier.links is not None:
        return _over(tier.capacity, link, tier.links)
    peak_Bps = link.peak_Bps or max(link.out_Bps, link.in_Bps)
    if tier.capacity and not node.nic_Bps:
        raise InputError(f"{node.name} does not say how fast its network is; give tiers.remote.links",
                         field="tiers.remote.capacity", got=f"{tier.capacity / 1e12:.2f} TB")
    return _over(tier.capacity, link, node.nic_Bps / peak_Bps)


def _over(capacity: float, link: HostLink, count: float) -> TierPlace:
    return TierPlace(capacity, count * link.out_Bps, count * link.in_Bps, link.latency_s)


_MAKERS: dict[str, Callable[[Any, NodeProfile, float], TierPlace]] = {"dram": _dram, "nvme": _nvme, "remote": _remote}
