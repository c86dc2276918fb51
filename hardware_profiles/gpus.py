"""A GPU as far as memory and time depend on it: figures from its datasheet."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from hardware_profiles.dtypes import COMPUTE_FORMATS
from sim.units import Bytes, BytesPerSecond, Flops


class _Profile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PeakFlops(_Profile):
    """Dense matrix throughput by number format, in FLOP/s; 0 where the hardware has none."""

    bf16: Flops = Field(gt=0)
    """16-bit (bf16 and fp16)."""
    fp8: Flops = Field(0.0, ge=0)
    """8-bit floating point."""
    fp4: Flops = Field(0.0, ge=0)
    """4-bit floating point (NVFP4)."""


class GpuProfile(_Profile):
    """One GPU."""

    name: str = "inline"
    """What the GPU is called."""
    hbm_bytes: Bytes = Field(gt=0)
    """HBM. Vendors print "80 GB" for 80 GiB: the driver reports 0.4 to 1 % less than that (see `hbm_reported_bytes`),
    which belongs to `engine.runtime`."""
    hbm_reported_bytes: Bytes = Field(0.0, ge=0)
    """What nvidia-smi reports, for comparison; 0 if not known."""
    hbm_Bps: BytesPerSecond = Field(gt=0)
    """Peak bandwidth of HBM."""
    peak_flops: PeakFlops
    """Dense matrix throughput by number format, without sparsity."""
    nvlink_Bps: BytesPerSecond = Field(0.0, ge=0)
    """Peak bandwidth to the other GPUs, each way; 0 without NVLink (then GPUs talk over the host link)."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Where each figure was read, by field."""

    def flops(self, weights_dtype: str) -> float:
        """Return the peak FLOP/s of matrix products whose weights are `weights_dtype`.

        Formats the GPU cannot multiply are unpacked to 16 bits first and run at that rate.
        """
        for fmt in COMPUTE_FORMATS[weights_dtype]:
            rate = float(getattr(self.peak_flops, fmt))
            if rate > 0:
                return rate
        return self.peak_flops.bf16
