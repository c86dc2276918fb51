"""Hardware and models as data: every figure with its unit and its source, one YAML file each."""

from hardware_profiles.catalogue import gpu, link, model, names, node
from hardware_profiles.gpus import GpuProfile, PeakFlops
from hardware_profiles.models import ModelProfile
from hardware_profiles.nodes import HostLink, NodeProfile

__all__ = [
    "GpuProfile", "HostLink", "ModelProfile", "NodeProfile", "PeakFlops", "gpu", "link", "model", "names", "node",
]
