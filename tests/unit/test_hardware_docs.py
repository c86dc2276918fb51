"""docs/hardware.md is in step with the YAML files, and says of each figure how well it is founded."""

from __future__ import annotations

from pathlib import Path

import pytest

import hardware_profiles
from hardware_profiles.reference import hardware_page, standing

PAGE = Path(hardware_profiles.__file__).parent.parent / "docs" / "hardware.md"


def test_the_page_is_generated() -> None:
    assert PAGE.read_text(encoding="utf-8") == hardware_page(), "python -m hardware_profiles.reference docs/hardware.md"


def test_every_profile_and_figure_is_on_the_page() -> None:
    page = hardware_page()
    for kind in ("gpus", "nodes", "links", "models"):
        assert all(f"\n### {name}\n" in page for name in hardware_profiles.names(kind))
    node = hardware_profiles.node("dgx-h100")
    section = page.split("\n### dgx-h100\n")[1].split("\n### ")[0]
    assert all(f"`{field}`" in section and source in section for field, source in node.sources.items())


def test_prices_are_the_users_to_set() -> None:
    assert "Set your own" in hardware_page()
    nodes = [hardware_profiles.node(name) for name in hardware_profiles.names("nodes")]
    assert all("set your own" in node.sources["price_usd_per_gpu_hour"] for node in nodes)


@pytest.mark.parametrize(("source", "said"), [
    ("assumed, set your own", "assumed"), ("derived: twice PCIe Gen5", "derived"),
    ("counted from the shapes in config.json", "derived"), ("not verified", "no"), ("NVIDIA/nvbandwidth#24", "yes"),
])
def test_standing(source: str, said: str) -> None:
    assert standing(source) == said
