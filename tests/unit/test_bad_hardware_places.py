"""Do errors found only when hardware and model are put together say where the scenario wrote what is wrong?"""

from __future__ import annotations

from pathlib import Path

import pytest

import sim
from sim.scenario.deployment import deploy
from sim.sweep.run import check

BASE = """\
model: llama-3.1-70b
hardware: dgx-h100
parallelism:
  tp: 8
  pp: 1
replicas: 1
engine:
  block_size: 16
  allocator: paged
tiers:
  dram:
    capacity: 1 TiB
    method: pieces
  nvme:
    capacity: 10 TB
weights_dtype: bf16
timing: {roofline: {mfu: 0.5}}
workload:
  agents: {turns: 5, tools: {bash: {wait: 3 s}}}
"""
#: what is written instead -> the line it stands in, the field that is named, and a part of the reason
WRONG = [
    ("  tp: 8\n", "  tp: 1\n", 3, "parallelism", "leaves no room for KV"),
    ("  tp: 8\n", "  tp: 7\n", 4, "parallelism.tp", "must divide the 64 attention heads"),
    ("  tp: 8\n  pp: 1\n", "  tp: 1\n  pp: 81\n", 3, "parallelism", "needs 81 GPUs"),
    ("replicas: 1\n", "replicas: 2\n", 6, "replicas", "room for 1 replica"),
    ("capacity: 1 TiB", "capacity: 9 TiB", 12, "tiers.dram.capacity", "GiB of host memory"),
    ("capacity: 10 TB", "capacity: 999 TB", 15, "tiers.nvme.capacity", "TB of local storage"),
    ("  block_size: 16\n", "  pool: 1 MB\n", 8, "engine.pool", "does not hold one block"),
    ("allocator: paged", "allocator: {kind: static, s_max: 90000000}", 9, "engine.allocator.s_max", "does not fit"),
    ("weights_dtype: bf16\ntiming: {roofline: {mfu: 0.5}}",
     "weights_dtype: nvfp4\ntiming: {measured: h100_sxm/vllm-0.24}", 16, "weights_dtype", "has matrix products in"),
]


def complaint(path: Path, *overrides: str) -> str | None:
    try:
        check(sim.load(path, overrides))
    except sim.InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("old", "new", "line", "field", "says"), WRONG)
def test_the_line_of_the_field_is_named(old, new, line, field, says, tmp_path):
    path = tmp_path / "s.yaml"
    assert old in BASE
    path.write_text(BASE.replace(old, new))
    text = complaint(path)
    if text is None:
        pytest.fail(f"nothing is wrong with {new!r}")
    assert text.startswith(f"{path}:{line}: {field}: "), text
    assert says in text
    assert "\n" not in text
    with pytest.raises(sim.InputError) as wrong:
        sim.run(path)
    assert str(wrong.value) == text


def test_an_override_is_named_instead(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(BASE)
    assert complaint(path) is None
    assert complaint(path, "parallelism.tp=7").startswith("--set parallelism.tp=7: parallelism.tp: must divide")
    path.write_text(BASE.replace("  tp: 8\n", "").replace("  pp: 1\n", "").replace("parallelism:\n", ""))
    assert complaint(path).startswith(f"{path}: parallelism: ")  # written nowhere: the file at least


def test_a_scenario_is_the_same_wherever_it_was_written(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(BASE)
    one, other = sim.load(path), sim.load("\n" + BASE)
    assert one == other
    assert one.model_copy(update={"nodes": 2}) != other
    moved = one.model_copy(update={"replicas": 2})
    with pytest.raises(sim.InputError, match=r"s\.yaml:6: replicas: "):
        deploy(moved)  # a copy still knows
