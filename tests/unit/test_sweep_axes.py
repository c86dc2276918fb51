"""Do the axes, samples and conditions of a sweep give the points one would expect, and say what is wrong?"""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.scenario.sweep_axes import check_sweep
from sim.sweep import axes, filters, points

SCENARIO = {
    "duration": 5, "warmup": 0, "model": "llama-3.1-8b", "hardware": "dgx-h100", "replicas": 1,
    "tiers": {"dram": {"capacity": "10 GiB"}},
    "workload": {"agents": {"prompt": [{"name": "p", "tokens": 100}], "turns": 1, "output": 4},
                 "arrivals": {"closed": {"concurrency": 2}}},
}


def test_grid_crosses_and_zip_steps():
    found = axes.expand({"grid": {"a": [1, 2], "b": ["x"]}, "zip": {"c": [1, 2], "d": [3, 4]}})
    assert found == [{"a": 1, "b": "x", "c": 1, "d": 3}, {"a": 1, "b": "x", "c": 2, "d": 4},
                     {"a": 2, "b": "x", "c": 1, "d": 3}, {"a": 2, "b": "x", "c": 2, "d": 4}]
    assert axes.expand({"list": [{"a": 1}, {"b": 2}]}) == [{"a": 1}, {"b": 2}]
    with pytest.raises(InputError, match="1,000,000 points"):
        axes.expand({"grid": {name: list(range(100)) for name in "abc"}})


@pytest.mark.parametrize("kind", ["latin_hypercube", "sobol"])
def test_samples_fill_their_ranges(kind):
    ranges = {"a": ["1 GiB", "2 GiB"], "b": [1, 8], "c": {"low": 1e-3, "high": 1.0, "log": True},
              "d": {"choice": ["x", "y"]}}
    found = axes.sample(kind, 64, ranges, seed=3)
    assert found == axes.sample(kind, 64, ranges, seed=3) != axes.sample(kind, 64, ranges, seed=4)
    assert all(2**30 <= point["a"] <= 2**31 and 1e-3 <= point["c"] <= 1 for point in found)
    assert {point["b"] for point in found} == set(range(1, 9))
    assert all(isinstance(point["b"], int) for point in found)
    assert sum(point["d"] == "x" for point in found) == 32
    assert sum(point["c"] < math.sqrt(1e-3) for point in found) == 32


@given(low=st.integers(1, 50), width=st.integers(1, 50), log=st.booleans())
@settings(max_examples=30)
def test_whole_numbers_stay_within_their_range(low, width, log):
    found = axes.sample("latin_hypercube", 16, {"a": {"low": low, "high": low + width, "log": log, "integer": True}})
    assert all(low <= point["a"] <= low + width for point in found)


@pytest.mark.parametrize(("condition", "expected"), [
    ("tp * pp <= 4", True), ("tp > 2 or policy == 'keep'", True), ("not policy in ['keep', 'drop']", False),
    ("capacity >= '512 GiB' and capacity < '1 TiB'", True), ("wait == '1 min'", True), ("missing_value < 3", False),
    ({"policy": ["keep", "offload"]}, True), ({"capacity": {"min": "1 TiB"}}, False), ({"tp": {"not": 2}}, False),
    ({"tp": 2, "policy": "keep"}, True), ("1 < tp <= 2", True), ("flag == true and missing_value == null", True),
])
def test_conditions(condition, expected):
    values = {"tp": 2, "pp": 2, "policy": "keep", "capacity": "512 GiB", "wait": 60, "missing_value": None,
              "flag": True}
    assert filters.holds(condition, lambda path: values.get(path, filters.MISSING)) is expected


@pytest.mark.parametrize("condition", [
    "__import__('os').system('true')", "tp.__class__", "(lambda: 1)()", "[x for x in (1,)]", "tp if tp else 1",
    "tp ** 9",
    "keep == policy", "tp <", "tp < 'x'", "'a' * 1000000000", "tp / 0 > 1", "1" * 2000, {"tp": {"least": 2}},
])
def test_conditions_execute_nothing_and_say_what_is_wrong(condition):
    values = {"tp": 2, "policy": "keep"}
    with pytest.raises(InputError) as caught:
        filters.holds(condition, lambda path: values.get(path, filters.MISSING))
    assert str(caught.value).startswith("where")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("section", "said"), [
    ({}, "needs one of"), ({"where": "tp < 2"}, "needs one of"), ({"gird": {"a": [1]}}, "grid"),
    ({"grid": {"a": 1}}, "list of values"), ({"zip": {"a": [1], "b": [1, 2]}}, "one length"),
    ({"sample": {"random": {"n": 2}}}, "latin_hypercube"),
    ({"sample": {"sobol": {"n": 0, "ranges": {"a": [1, 2]}}}}, "n"),
    ({"sample": {"sobol": {"n": 2, "ranges": {"a": [1]}}}}, "low"), ({"grid": {"a": [1]}, "where": 3}, "condition"),
    ({"grid": {"a": [1]}, "replications": 0}, "replications"), ({"grid": {"a": [1]}, "zip": {"a": [2]}}, "two forms"),
])
def test_shapes_that_are_wrong(section, said):
    with pytest.raises(InputError, match=said):
        check_sweep(section)


def test_points_are_loaded_like_overrides_and_filtered():
    section = {"grid": {"workload.arrivals.closed.concurrency": [1, 2, 4], "retention": ["keep", "offload"],
                        "tiers.dram.capacity": ["10 GiB", "20 GiB"]},
               "where": ["retention == 'offload' or capacity == '10 GiB'", "parallelism.tp * concurrency < 4"]}
    plan = points.plan(SCENARIO, (), section)
    assert [point.number for point in plan.points] == list(range(6))
    assert {point.values["tiers.dram.capacity"] for point in plan.points} == {10 * 2**30, 20 * 2**30}
    assert {point.scenario.retention.policy for point in plan.points} == {"keep", "offload"}
    assert plan.points[0].scenario.sweep is None


@pytest.mark.parametrize(("grid", "said"), [
    ({"hardware": ["dgx-h100", "dgx-h10"]}, r"sweep point 1 \(hardware=dgx-h10\).*did you mean"),
    ({"engine.block_size": [16, 0]}, "sweep point 1 .*engine.block_size"),
    ({"model": ["llama-3.1-8b", "llama-3.1-405b"]}, "sweep point 1 .*leaves no room"),
    ({"engine.blok_size": [16]}, "sweep point 0 .*unknown field"),
    ({"workload.agents": [{"trace": "nowhere.jsonl"}]}, "sweep point 0 .*nowhere"),
])
def test_a_wrong_point_is_named_before_anything_runs(grid, said):
    with pytest.raises(InputError, match=said) as caught:
        points.plan(SCENARIO, (), {"grid": grid})
    assert "\n" not in str(caught.value)


def test_no_sweep_and_no_point_left():
    with pytest.raises(InputError, match="no axes"):
        points.plan(SCENARIO)
    with pytest.raises(InputError, match="none of the 2 points"):
        points.plan(SCENARIO, (), {"grid": {"seed": [1, 2]}, "where": "seed > 2"})


HEAD = """\
duration: 5 s
model: llama-3.1-8b
hardware: dgx-h100
workload: {agents: coding-agent}
"""


@pytest.mark.parametrize(("section", "says"), [
    ("sweep:\n  grid:\n    engine.block_size:\n      - 16\n    retention.policy:\n      - keep\n      - kepp\n",
     r"{file}:11: sweep\.grid\.retention\.policy\[1\]: "
     r"retention\.policy: unknown policy; did you mean keep\? \(got kepp\)"),
    ("sweep:\n  zip:\n    engine.headroom: [0, 5 bananas]\n    engine.block_size: [16, 32]\n",
     r"{file}:7: sweep\.zip\.engine\.headroom\[1\]: engine\.headroom: "),
    ("sweep:\n  list:\n    - {{engine.block_size: 16}}\n    - {{engine.block_size: 0, seed: 3}}\n",
     r"{file}:8: sweep\.list\[1\]\.engine\.block_size: engine\.block_size: .*got 0"),
    ("sweep:\n  sample:\n    sobol:\n      n: 2\n      ranges:\n        seed: [1, 2]\n"
     "        engine.headroom: [3, 5]\n",
     r"{file}:11: sweep\.sample\.sobol\.ranges\.engine\.headroom: engine\.headroom: "),
    ("sweep:\n  grid:\n    model:\n    - llama-3.1-8b\n    - llama-3.1-405b\n", r"{file}:9: .*leaves no room"),
    ("sweep:\n  grid:\n    nodes: [1]\n    model: [llama-3.1-405b]\n",
     r"sweep point 0 \(nodes=1, model.*leaves no room"),
])
def test_a_wrong_value_is_named_where_the_file_has_it(section, says, tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(HEAD + section.replace("{{", "{").replace("}}", "}"))
    with pytest.raises(InputError) as raised:
        points.plan(path)
    assert re.match(says.replace("{file}", re.escape(str(path))), str(raised.value)), str(raised.value)
    assert "--set" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_value_from_outside_the_file_is_named_by_its_point(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(HEAD + "sweep: {grid: {seed: [1]}}\n")
    with pytest.raises(InputError, match=r"^sweep point 0 \(engine.block_size=0\)"):
        points.plan(path, section={"grid": {"engine.block_size": [0]}})
    with pytest.raises(InputError, match=r"^sweep point 0 \(seed=1, engine.block_size=0\)"):
        points.plan(path, ["sweep.grid={engine.block_size: [0]}"])
