"""The tiers below HBM in a scenario: what each holds, who goes first, where to, and how it is written and read."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from hardware_profiles import HostLink
from hardware_profiles.nodes import Method, link_named
from sim.errors import InputError
from sim.policies.eviction import Eviction, Lru
from sim.records import TIER_LABELS, TIERS
from sim.scenario import shorthand
from sim.scenario.watermarks import watermarks_in_order
from sim.units import Bytes, Fraction


class _Tier(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False,
                              defer_build=True)

    evict_to: str = "nowhere"
    """Where contexts go when it is full."""
    eviction: Annotated[Eviction, BeforeValidator(shorthand.EVICTION.expand)] = Lru()
    """Which context goes first."""
    exclusive: bool = False
    """Whether a context that has come back is dropped here, so that no block lies here and in HBM at once."""
    low_watermark: Fraction = 0.9
    """Moving contexts on stops when less than this share of the capacity is used."""
    high_watermark: Fraction = 0.95
    """It starts when more than this share is used."""
    min_load: int = Field(0, ge=0)
    """A prompt that finds fewer tokens than this below HBM computes them instead of loading them."""

    _watermarks_in_order = model_validator(mode="after")(watermarks_in_order)


class DramTier(_Tier):
    """Pinned host memory, shared by the replicas of a node."""

    capacity: Bytes = Field(0.0, ge=0)
    """Bytes it holds, per node; to be given unless `pool_ratio` is."""
    pool_ratio: Annotated[float, Field(gt=0)] | None = None
    """In place of a capacity: so many times the KV pools of the node's replicas."""
    evict_to: Literal["nowhere", "nvme", "remote"] = "nowhere"
    """Where contexts go when it is full; when left out, to the next tier below that the scenario has."""
    write: Literal["on_pause", "on_compute", "on_evict"] = "on_pause"
    """When contexts are written to it: when the retention policy offloads them; as soon as a turn has computed them
    (write-through), so that HBM can drop them at once and the link carries every block; or ahead of their eviction
    (write-back), so that the link carries only what HBM does not keep. Contiguous buffers are written `on_pause`."""
    write_ahead: Fraction = 0.1
    """With `write: on_evict`, dormant contexts are copied, those used longest ago first, while fewer blocks than this
    share of the pool are free or copied. What is needed before its copy has ended is lost, and counted."""
    min_uses: int = Field(1, ge=1)
    """With `write: on_compute`, content is written at its so-manieth use (2: only what has been found again)."""
    prompt_only: bool = False
    """With `write: on_compute`, output is written only once it has become part of a prompt."""
    unit: int = Field(1, ge=1)
    """With `write: on_compute` or `on_evict`, only whole units of so many tokens are written."""
    layout: Literal["block", "per_layer"] = "block"
    """What lies together in HBM, so what one piece of a copy is: a block with all its layers, or its keys or values in
    one layer."""
    method: Method = "pieces"
    """How pieces are copied: each by a copy of its own (DMA); gathered into a buffer in HBM and copied together; or by
    a kernel that reaches into host memory, where the link's profile has its rates."""

    @model_validator(mode="after")
    def _has_a_size(self) -> Self:
        if "capacity" not in self.model_fields_set and self.pool_ratio is None:
            raise InputError("is required", field="capacity")
        if self.capacity and self.pool_ratio is not None:
            raise InputError("stands in place of a capacity: give one of them", field="pool_ratio", got=self.pool_ratio)
        return self


class NvmeTier(_Tier):
    """Local storage of a node, below host memory."""

    capacity: Bytes = Field(ge=0)
    """Bytes it holds, per node."""
    evict_to: Literal["nowhere", "remote"] = "nowhere"
    """Where contexts go when it is full; when left out, to remote memory if the scenario has it."""
    direct: bool = False
    """Copies go between storage and GPU directly (GPUDirect Storage) instead of through host memory in pieces."""
    link: Annotated[HostLink | None, BeforeValidator(link_named)] = None
    """One drive: a link of the catalogue, or its figures; when left out, the node's own storage."""
    links: int = Field(1, ge=1)
    """How many such drives share the work."""


class RemoteTier(_Tier):
    """Memory of other machines, reached over the network and shared by all nodes: a context stored by one can be read
    by another."""

    capacity: Bytes = Field(ge=0)
    """Bytes it holds, for all nodes together."""
    evict_to: Literal["nowhere"] = "nowhere"
    """Where contexts go when it is full."""
    direct: bool = False
    """Copies go between network and GPU directly (GPUDirect RDMA) instead of through host memory in pieces."""
    link: Annotated[HostLink, BeforeValidator(link_named)] = Field("rdma-400g", validate_default=True)
    """A node's network adapter: a link of the catalogue, or its figures."""
    links: Annotated[int, Field(ge=1)] | None = None
    """How many adapters a node gives to it; when left out, as many as its network has room for."""


def _sending(tier: Any, below: str) -> Any:
    """Return a tier, as given, with where its contexts go filled in."""
    if isinstance(tier, Mapping):
        return {**tier, "evict_to": tier.get("evict_to", below)}
    if isinstance(tier, _Tier) and "evict_to" not in tier.model_fields_set:
        return tier.model_copy(update={"evict_to": below})
    return tier


class Tiers(BaseModel):
    """Tiers below HBM."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, defer_build=True)

    dram: DramTier | None = None
    """Pinned host memory."""
    nvme: NvmeTier | None = None
    """Local storage."""
    remote: RemoteTier | None = None
    """Memory elsewhere."""

    @model_validator(mode="before")
    @classmethod
    def _next_below(cls, given: Any) -> Any:
        """Let a tier that does not say where its contexts go when it is full send them to the next one below."""
        if not isinstance(given, Mapping):
            return given
        there = [name for name in TIERS if given.get(name) is not None]
        return {**given, **{upper: _sending(given[upper], lower) for upper, lower in pairwise(there)}}

    @model_validator(mode="after")
    def _targets_exist(self) -> Self:
        for name in TIERS:
            tier = getattr(self, name)
            if tier is not None and tier.evict_to != "nowhere" and getattr(self, tier.evict_to) is None:
                raise InputError(f"evicts to {TIER_LABELS[tier.evict_to]}, so tiers.{tier.evict_to} must be given",
                                 field=f"{name}.evict_to", got=tier.evict_to)
        return self
