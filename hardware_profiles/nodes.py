"""A node of GPUs: host memory, storage, links and price, with the rates measured in practice beside the peaks."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from hardware_profiles.gpus import GpuProfile
from sim.errors import InputError
from sim.units import Bytes, BytesPerSecond, Fraction, Seconds, UsdPerHour

#: How the pieces of a context are copied.
Method = Literal["pieces", "staged", "zero_copy"]


class Rates(NamedTuple):
    """Bytes a second away from the GPU, towards it, and both ways at once."""

    out_Bps: float
    in_Bps: float
    both_Bps: float


class _Profile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ZeroCopy(_Profile):
    """Copies by a kernel on the GPU that reads and writes the other end in place."""

    Bps: BytesPerSecond = Field(gt=0)
    """Achieved bandwidth, large pieces, one way at a time."""
    half_rate_bytes: Bytes = Field(0.0, ge=0)
    """Size of a contiguous piece that reaches half of the bandwidth (Hockney's n_1/2)."""
    both_Bps: BytesPerSecond = Field(0.0, ge=0)
    """Achieved sum of both ways at once; 0 when the ways do not hinder each other."""
    step_slowdown: Fraction = 0.0
    """Share by which steps take longer while such a copy runs, since the kernel takes cores from them."""


class HostLink(_Profile):
    """A way between two places: a GPU and host memory (every GPU has its own), host memory and a drive or a network."""

    kind: str = "custom"
    """pcie-gen4-x16, nvlink-c2c-gh200, nvme-gen5-x4, rdma-400g, ..."""
    out_Bps: BytesPerSecond = Field(gt=0)
    """Achieved bandwidth away from the GPU (a drive's writes), large pieces, one way at a time."""
    in_Bps: BytesPerSecond = Field(gt=0)
    """Achieved bandwidth towards the GPU (a drive's reads), likewise."""
    both_Bps: BytesPerSecond = Field(0.0, ge=0)
    """Achieved sum of both ways at once; 0 when the ways do not hinder each other."""
    peak_Bps: BytesPerSecond = Field(0.0, ge=0)
    """Peak of the datasheet, each way; kept beside the achieved rates, not used for times."""
    latency_s: Seconds = Field(1e-5, ge=0)
    """Fixed cost of a transfer."""
    half_rate_bytes: Bytes = Field(0.0, ge=0)
    """Size of a contiguous piece that reaches half of the bandwidth (Hockney's n_1/2) when every piece is a copy of its
    own (DMA)."""
    step_slowdown: Fraction = 0.0
    """Share by which steps take longer while such a copy (DMA) runs."""
    zero_copy: ZeroCopy | None = None
    """The same by a copy kernel, where it was measured."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Where each figure was read, by field."""

    def achieved(self, piece_bytes: float, method: Method = "pieces", hbm_Bps: float = math.inf) -> Rates:
        """Return the rates out, in, and of both ways at once, for pieces of a size.

        Parameters
        ----------
        piece_bytes
            Contiguous bytes n on one GPU, which reach ``B n / (n + n_1/2)``; infinite for the limit of large ones.
        method
            `pieces`: a copy of its own for each (DMA). `zero_copy`: a kernel over all of them. `staged`: gathered into
            a buffer in HBM, which costs a read and a write of HBM, and then copied as one.
        hbm_Bps
            Bandwidth of the GPU's HBM, for `staged`.

        Raises
        ------
        InputError
            The profile has no rates for the method.
        """
        both = self.both_Bps or math.inf
        if method == "staged":
            out, into = (1.0 / (1.0 / rate + 2.0 / hbm_Bps) for rate in (self.out_Bps, self.in_Bps))
            return Rates(out, into, min(both, out + into))
        if method == "zero_copy":
            kernel = self.zero_copy
            if kernel is None:
                raise InputError(f"{self.kind} has no measured rates for it", got=method)
            rate = kernel.Bps * _share(piece_bytes, kernel.half_rate_bytes)
            return Rates(rate, rate, min(kernel.both_Bps or math.inf, 2.0 * rate))
        share = _share(piece_bytes, self.half_rate_bytes)
        out, into = self.out_Bps * share, self.in_Bps * share
        return Rates(out, into, min(both, out + into))

    def slowdown(self, method: Method) -> float:
        """Return the share by which steps take longer while a copy by that method runs."""
        if method == "zero_copy" and self.zero_copy is not None:
            return self.zero_copy.step_slowdown
        return self.step_slowdown


def _share(piece_bytes: float, half_rate_bytes: float) -> float:
    return 1.0 if math.isinf(piece_bytes) else piece_bytes / (piece_bytes + half_rate_bytes)


def link_named(value: Any) -> Any:
    """Let a catalogue name stand for the link of that name."""
    if isinstance(value, str):
        from hardware_profiles.catalogue import link

        return link(value)
    return value


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
    host_link: Annotated[HostLink, BeforeValidator(link_named)]
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
