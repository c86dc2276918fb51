"""The hardware catalogue: every figure has a unit and a source, and they hang together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import hardware_profiles
from hardware_profiles.gpus import GpuProfile
from hardware_profiles.nodes import HostLink, NodeProfile
from sim.errors import InputError

ROOT = Path(hardware_profiles.__file__).parent
FILES = [path for kind in ("gpus", "links", "nodes") for path in sorted((ROOT / kind).glob("*.yaml"))]
#: Fields that are no figures.
WORDS = {"name", "kind", "unit", "gpu", "host_link", "sources", "gpus"}


def leaves(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        if key == "sources":
            continue
        found |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_figure_has_a_unit_and_a_source(path: Path) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    figures = {field: value for field, value in leaves(data).items() if field not in WORDS}
    unitless = [field for field, value in figures.items() if not isinstance(value, str)]
    assert unitless == []
    named = set(data["sources"])
    assert set(figures) - named == set()
    assert named - set(figures) - {"gpus"} == set()
    assert all(len(text) > 10 for text in data["sources"].values())


@pytest.mark.parametrize("name", hardware_profiles.names("nodes"))
def test_nodes_hang_together(name: str) -> None:
    node = hardware_profiles.node(name)
    assert node.name == name
    assert node.host_dram_bytes > 0
    assert node.nvme_bytes > 0
    assert node.price_usd_per_gpu_hour > 0
    assert re.search(r"20\d\d-\d\d", node.sources["price_usd_per_gpu_hour"]), "a price needs its date"
    assert node.gpus * max(node.host_link.in_Bps, node.host_link.out_Bps) <= 1.01 * node.host_dram_Bps
    assert node.nvme_write_Bps <= node.nvme_read_Bps < node.host_dram_Bps


@pytest.mark.parametrize("name", hardware_profiles.names("gpus"))
def test_gpus_hang_together(name: str) -> None:
    gpu = hardware_profiles.gpu(name)
    assert gpu.name == name
    if gpu.hbm_reported_bytes:
        assert 0.99 < gpu.hbm_reported_bytes / gpu.hbm_bytes <= 1
    assert gpu.flops("bf16") == gpu.flops("int4") == gpu.peak_flops.bf16
    assert gpu.flops("fp8") == (gpu.peak_flops.fp8 or gpu.peak_flops.bf16)
    assert 100 < gpu.flops("bf16") / gpu.hbm_Bps < 400


@pytest.mark.parametrize("name", hardware_profiles.names("links"))
def test_links_are_slower_than_their_peak(name: str) -> None:
    link = hardware_profiles.link(name)
    assert link.kind == name
    assert max(link.out_Bps, link.in_Bps) <= link.peak_Bps
    if link.both_Bps:
        assert max(link.out_Bps, link.in_Bps) <= link.both_Bps <= link.out_Bps + link.in_Bps
    else:
        assert name.startswith(("nvme", "rdma"))


@pytest.mark.parametrize("name", hardware_profiles.names("links"))
@pytest.mark.parametrize("method", ["pieces", "staged", "zero_copy"])
def test_larger_pieces_go_faster_up_to_the_links_rate(name: str, method: str) -> None:
    link = hardware_profiles.link(name)
    if method == "zero_copy" and link.zero_copy is None:
        with pytest.raises(InputError, match="no measured rates"):
            link.achieved(1e6, "zero_copy")
        return
    rates = [link.achieved(piece, method, 3.35e12) for piece in (4e3, 3.2e4, 2.56e5, 2e6, 1e9)]
    for way in range(3):
        assert [rate[way] for rate in rates] == sorted(rate[way] for rate in rates)
    last = rates[-1]
    assert last.out_Bps <= link.out_Bps
    assert last.in_Bps <= link.in_Bps
    assert last.both_Bps <= last.out_Bps + last.in_Bps
    assert last.out_Bps >= 0.6 * link.out_Bps


def test_the_h100_link_is_the_published_curve() -> None:
    """Rates by the size of a piece, measured on an H100: each method within 5 % in the median, as the fit says."""
    from calibrate import host_link

    link = hardware_profiles.link("pcie-gen5-x16")
    for curve in host_link.published():
        fitted = host_link.fit(curve["piece_bytes"], curve["Bps"])
        method = curve["method"]
        errors = sorted(abs(link.achieved(size, method).out_Bps / rate - 1)
                        for size, rate in zip(curve["piece_bytes"], curve["Bps"], strict=True))
        assert errors[len(errors) // 2] <= 0.05
        at = link if method == "pieces" else link.zero_copy
        assert at.half_rate_bytes == pytest.approx(fitted.piece_s * fitted.Bps, rel=0.01)
    assert (link.slowdown("pieces"), link.slowdown("zero_copy")) == (0.0, 0.06)


def test_the_shipped_hardware() -> None:
    assert hardware_profiles.names("hardware") == ["dgx-a100", "dgx-b200", "dgx-h100", "dgx-h200", "gb200-nvl72",
                                                   "gh200-nvl2"]
    node = hardware_profiles.node("dgx-h100")
    assert (node.gpus, node.gpu.hbm_bytes, node.gpu.hbm_Bps) == (8, 80 * 2**30, 3.35e12)
    assert (node.host_link.out_Bps, node.host_link.both_Bps, node.host_link.peak_Bps) == (50e9, 83.4e9, 63e9)


@pytest.mark.parametrize(("kind", "name", "said"), [
    ("node", "dgx-h10", "unknown node; did you mean dgx-h100"),
    ("gpu", "H100-SXM-80GB", "did you mean h100-sxm-80gb"),
    ("model", "llama-3.1-7b", "did you mean llama-3.1-70b"),
    ("link", "morse", "known: nvlink-c2c-gb200"),
])
def test_unknown_names_say_what_is_near(kind: str, name: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        getattr(hardware_profiles, kind)(name)
    assert said in str(caught.value)
    assert str(caught.value).endswith(f"(got {name})")
    with pytest.raises(InputError, match="unknown kind"):
        hardware_profiles.names("racks")


def test_inline_nodes_take_names_or_figures() -> None:
    node = NodeProfile.model_validate({"gpu": "b200-180gb", "gpus": 2, "host_link": "pcie-gen6-x16"})
    assert isinstance(node.gpu, GpuProfile)
    assert isinstance(node.host_link, HostLink)
    own = NodeProfile.model_validate({
        "gpu": {"hbm_bytes": "192 GB", "hbm_Bps": "8 TB/s", "peak_flops": {"bf16": "2.25 PFLOP/s"}}, "gpus": 8,
        "host_link": {"out_Bps": "54 GB/s", "in_Bps": "54 GB/s"}})
    assert own.gpu.hbm_bytes == 192e9
    assert own.host_link.in_Bps == 54e9
    with pytest.raises(ValueError, match="unknown GPU"):
        NodeProfile.model_validate({"gpu": "b20", "gpus": 2, "host_link": "pcie-gen6-x16"})
