"""A node of GPUs: host memory, storage, links and price, with the rates measured in practice beside the peaks."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from hardware_profiles.gpus import GpuProfile
from sim.units import Bytes, BytesPerSecond, Seconds, UsdPerHour


class _Profile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class HostLink(_Profile):
    """What connects one GPU with host memory. Every GPU has its own."""

    kind: str = "custom"
    """pcie-gen4-x16, pcie-gen5-x16, pcie-gen6-x16, nvlink-c2c, ..."""
    out_Bps: BytesPerSecond = Field(gt=0)
    """Achieved bandwidth from the GPU to the host, large pieces, one way at a time."""
    in_Bps: BytesPerSecond = Field(gt=0)
    """Achieved bandwidth from the host to the GPU, likewise."""
    both_Bps: BytesPerSecond = Field(0.0, ge=0)
    """Achieved sum of both ways at once; 0 when the ways do not hinder each other."""
    peak_Bps: BytesPerSecond = Field(0.0, ge=0)
    """Peak of the datasheet, each way; kept beside the achieved rates, not used for times."""
    latency_s: Seconds = Field(1e-5, ge=0)
    """Fixed cost of a transfer."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Where each figure was read, by field."""


class NodeProfile(_Profile):
    """A server: GPUs, host memory, storage, links and a price."""

    name: str = "inline"
    """What the node is called."""
    unit: str = "node"
    """What one of it is: a server, a compute tray of a rack."""
    gpu: GpuProfile
    """Its GPUs: a catalogue name or a profile."""
    gpus: int = Field(gt=0)
    """How many of them."""
    host_dram_bytes: Bytes = Field(0.0, ge=0)
    """Host memory of the node."""
    host_dram_Bps: BytesPerSecond = Field(0.0, ge=0)
    """Peak bandwidth of it, all sockets together; caps the sum of the host links; 0 for no cap."""
    host_link: HostLink
    """Link between one GPU and the host: a catalogue name or a profile."""
    nvme_bytes: Bytes = Field(0.0, ge=0)
    """Local NVMe storage."""
    nvme_read_Bps: BytesPerSecond = Field(0.0, ge=0)
    """Sequential read bandwidth of all drives together."""
    nvme_write_Bps: BytesPerSecond = Field(0.0, ge=0)
    """Sequential write bandwidth of all drives together."""
    nic_Bps: BytesPerSecond = Field(0.0, ge=0)
    """Bandwidth of the compute network, all adapters together, each way."""
    price_usd_per_gpu_hour: UsdPerHour = Field(0.0, ge=0)
    """Price of a GPU for an hour, its share of the node included."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Where each figure was read, by field; the price's with its date."""

    @field_validator("gpu", mode="before")
    @classmethod
    def _named_gpu(cls, value: Any) -> Any:
        if isinstance(value, str):
            from hardware_profiles.catalogue import gpu

            return gpu(value)
        return value

    @field_validator("host_link", mode="before")
    @classmethod
    def _named_link(cls, value: Any) -> Any:
        if isinstance(value, str):
            from hardware_profiles.catalogue import link

            return link(value)
        return value
