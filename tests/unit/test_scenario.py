"""Does a scenario load as written, with its presets, overrides and shorthands, and survive being written out?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sim import scenario
from sim.errors import InputError
from sim.policies.prediction import Constant, Oracle
from sim.policies.retention import BreakEven, Drop, Keep, Release
from sim.policies.routing import Sticky
from sim.policies.schedule import Unbatched
from sim.scenario import dump, load
from sim.scenario.model import Scenario, Timing
from sim.units import GiB, TiB

ROOT = Path(__file__).parents[2]
BASE = """
model: llama-3.1-70b
hardware: dgx-h100
retention: {policy: break_even, mu_hbm: 2}
tiers: {dram: {capacity: 1 TiB}}
workload:
  agents: {turns: 5, tools: {bash: {wait: 3 s}}}
  arrivals: {closed: {concurrency: 4}}
"""


def loaded(*overrides: str, more: str = "") -> Scenario:
    result = load(BASE + more, overrides)
    assert load(dump(result)) == result
    return result


def test_defaults() -> None:
    plain = load("model: llama-3.1-8b\nhardware: dgx-h100\nworkload: {agents: {turns: 5}}")
    assert (plain.name, plain.seed, plain.replications) == ("scenario", 0, 1)
    assert (plain.duration, plain.warmup) == (None, "auto")
    assert (plain.weights_dtype, plain.kv_dtype, plain.nodes, plain.replicas) == ("bf16", "bf16", 1, None)
    assert (plain.parallelism.tp, plain.parallelism.pp) == (1, 1)
    assert plain.engine.block_size == 16
    assert plain.engine.runtime == 2 * GiB
    assert plain.retention == Release()
    assert plain.timing == Timing()
    assert plain.tiers.dram is None
    assert plain.slo == {}


def test_quantities_are_si() -> None:
    one = loaded(more="duration: 2 h\nwarmup: 5 min\nslo: {itl: {p99: 100 ms}}\nengine: {pool: 80 GiB, headroom: 5 %}")
    assert (one.duration, one.warmup, one.slo) == (7200.0, 300.0, {"itl": {"p99": 0.1}})
    assert (one.engine.pool, one.engine.headroom) == (80.0 * GiB, 0.05)
    assert one.tiers.dram is not None
    assert one.tiers.dram.capacity == TiB


def test_shorthands() -> None:
    one = loaded("retention=keep", more="routing: sticky\ntiming: roofline\n"
                 "engine: {schedule: unbatched, prefix_cache: {eviction: lru}}")
    assert (one.retention, one.routing, one.engine.schedule) == (Keep(), Sticky(), Unbatched())
    assert not loaded("engine.prefix_cache=false").engine.prefix_cache.enabled
    assert not loaded("engine.prefix_cache.enabled=off").engine.prefix_cache.enabled
    assert loaded("retention.predictor=oracle").retention.predictor == Oracle()


def test_python_values_take_shorthands_too() -> None:
    one = Scenario.model_validate({"model": "llama-3.1-8b", "hardware": "dgx-h100", "retention": "drop",
                                   "engine": {"schedule": {"token_budget": 4096}},
                                   "workload": {"agents": {"turns": 2}}})
    assert one.retention == Drop()
    assert one.engine.schedule.policy == "chunked"


def test_frozen() -> None:
    with pytest.raises(ValidationError):
        loaded().seed = 3  # type: ignore[misc]


def test_overrides_take_units_and_win_in_order() -> None:
    one = loaded("duration=2 h", "duration=3 h", "engine.block_size=32", "workload.arrivals.closed.concurrency=8")
    assert (one.duration, one.engine.block_size) == (10800.0, 32)
    assert one.workload.arrivals is not None
    assert one.workload.arrivals.closed is not None
    assert one.workload.arrivals.closed.concurrency == 8


def test_override_of_a_policy_keeps_only_what_it_shares() -> None:
    assert loaded("retention.policy=drop").retention == Drop()
    assert loaded("retention.policy=drop", "retention.policy=break_even").retention == BreakEven()
    assert loaded("retention.predictor.kind=constant", "retention.predictor.wait=3 s").retention == BreakEven(
        mu_hbm=2, predictor=Constant(wait=3))


def test_override_replaces_an_exclusive_choice() -> None:
    arrivals = loaded("workload.arrivals.poisson.rate=0.2/s").workload.arrivals
    assert arrivals is not None
    assert arrivals.closed is None
    assert arrivals.poisson is not None
    assert arrivals.poisson.rate == 0.2


def test_override_reaches_into_a_catalogue_name() -> None:
    node = loaded("hardware.gpus=4", "hardware.gpu.hbm_bytes=100 GB").hardware
    assert not isinstance(node, str)
    assert (node.name, node.gpus, node.gpu.hbm_bytes) == ("dgx-h100", 4, 100e9)
    model = loaded("model.n_layers=40").model
    assert not isinstance(model, str)
    assert model.n_layers == 40


def test_override_of_nothing_removes() -> None:
    assert loaded("tiers.dram=null").tiers.dram is None


def test_trace_paths_count_from_the_file_or_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    file = folder / "replay.yaml"
    file.write_text("model: llama-3.1-8b\nhardware: dgx-h100\nworkload: {agents: {trace: traces}}")
    monkeypatch.chdir(tmp_path)
    assert load(file).workload.agents.trace == folder / "traces"  # type: ignore[union-attr]
    assert load(file, ["workload.agents.trace=mine"]).workload.agents.trace == tmp_path / "mine"  # type: ignore[union-attr]
    assert load(dump(load(file))) == load(file)
    assert load(BASE, ["workload.agents.trace=/a"]).workload.agents.trace == Path("/a")  # type: ignore[union-attr]


@pytest.mark.parametrize(("name", "expected"), [
    ("vllm", {"block_size": 16, "memory_utilization": 0.92, "headroom": 0, "token_budget": 8192, "max_seqs": 1024,
              "order": "fcfs", "reserve": "chunk", "tail": "truncate", "granularity": "block", "insert": "on_chunk"}),
    ("sglang", {"block_size": 1, "small_blocks": "free", "token_budget": 8192, "order": "fcfs", "reserve": "prompt",
                "granularity": "node"}),
    ("trtllm", {"block_size": 32, "memory_utilization": 0.9, "reserve": "prompt_and_output", "tail": "cow"}),
])
def test_presets(name: str, expected: dict[str, Any]) -> None:
    engine = loaded(f"engine.preset={name}").engine
    flat = {**engine.model_dump(), **engine.schedule.model_dump(), **engine.prefix_cache.model_dump()}
    assert {key: flat[key] for key in expected} == expected
    bare = load({"model": "llama-3.1-8b", "hardware": "dgx-h100", "engine": {"preset": name},
                 "workload": {"agents": {"turns": 5}}})
    assert bare.retention == Release()


def test_every_preset_is_offered() -> None:
    from sim.scenario import preset

    assert set(preset.names()) == {"vllm", "sglang", "trtllm", "lmcache", "hicache"}


def test_a_scenario_overrides_its_preset() -> None:
    one = loaded(more="engine: {preset: trtllm, block_size: 64, schedule: {max_seqs: 7},\n"
                      "         prefix_cache: {tail: truncate}}")
    assert (one.engine.block_size, one.engine.memory_utilization) == (64, 0.9)
    assert (one.engine.schedule.max_seqs, one.engine.schedule.reserve) == (7, "prompt_and_output")
    assert one.engine.prefix_cache.tail == "truncate"
    assert one.retention == BreakEven(mu_hbm=2)
    assert loaded("engine.preset=vllm", "engine.schedule=unbatched").engine.schedule == Unbatched(max_seqs=1024)


def test_sources(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode())
    assert load(file) == load(str(file)) == load(BASE) == load(yaml.safe_load(BASE))


def test_sweep_is_kept_as_it_is() -> None:
    sweep = {"grid": {"seed": [1, 2], "retention.policy": ["keep", "drop"]}, "zip": {"nodes": [1, 2]},
             "list": [{"model": "llama-3.1-8b"}]}
    assert loaded(f"sweep={sweep}").sweep == sweep


def test_schema_is_its_documentation() -> None:
    schema = scenario.json_schema()
    assert schema["properties"]["seed"]["description"] == "Root of all random streams."
    assert schema["additionalProperties"] is False
    for name, part in schema["$defs"]["Engine"]["properties"].items():
        assert part.get("description"), name


@pytest.mark.parametrize("template", scenario.template_names())
def test_templates_load(template: str) -> None:
    for name in ("mine", "off", "a: b # 'c'"):
        assert load(scenario.new_text(name, template)).name == name


def test_templates_offered() -> None:
    assert {"coding-agents", "minimal", "replay"} <= set(scenario.template_names())
    with pytest.raises(InputError, match="did you mean minimal"):
        scenario.new_text("x", "minimum")
    with pytest.raises(InputError, match="printable"):
        scenario.new_text("a\nb")


@pytest.mark.parametrize("file", sorted((ROOT / "scenarios").glob("*.yaml")), ids=lambda file: file.stem)
def test_scenarios_that_ship_load(file: Path) -> None:
    assert load(dump(load(file))) == load(file)


times = st.floats(min_value=1e-3, max_value=1e7)
sizes = st.floats(min_value=1, max_value=1e15)


@settings(max_examples=60)
@given(st.fixed_dictionaries({
    "model": st.sampled_from(["llama-3.1-8b", "qwen3-32b"]),
    "hardware": st.sampled_from(["dgx-h100", "gh200-nvl2"]),
    "workload": st.fixed_dictionaries({
        "agents": st.sampled_from([{"turns": 5}, {"trace": "/tmp/x"}, {"tools": {"1e6": {"wait": {"uniform": {
            "low": 1, "high": 2}}}, "off": {}}}]),
        "arrivals": st.sampled_from([{"closed": {"concurrency": 3}}, {"gamma": {"rate": "0.2/s", "cv": 2}}])}),
}, optional={
    "name": st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1) | st.sampled_from(
        ["off", "1e6", "12:30", "null", "~", "010", "2024-01-01", "=", "<<", "0x1f", "1_0", ".5", "y", "- a", "a: b"]),
    "seed": st.integers(min_value=0, max_value=2**64),
    "duration": times, "warmup": times | st.just("auto"), "replicas": st.integers(1, 9),
    "engine": st.fixed_dictionaries({}, optional={
        "preset": st.sampled_from(["vllm", "sglang", "trtllm", "lmcache", "hicache"]), "pool": sizes,
        "activations": sizes,
        "max_trajectories": st.integers(1, 99), "schedule": st.sampled_from(["chunked", {"max_seqs": 3}, "monolithic"]),
        "prefix_cache": st.booleans()}),
    "tiers": st.sampled_from([{"dram": {"capacity": "1 TiB"}}, {"dram": None}]),
    "retention": st.sampled_from(["keep", {"policy": "break_even", "mu_dram": 0.3}, {"predictor": "oracle"}]),
    "slo": st.dictionaries(st.sampled_from(["itl", "ttft"]), st.dictionaries(st.sampled_from(["p50", "p99"]), times)),
    "sweep": st.just({"grid": {"seed": [1, 2.5, "off", None, True]}}),
}))
def test_what_is_written_out_loads_back_equal(data: dict[str, Any]) -> None:
    try:
        one = load(data)
    except InputError as error:
        assume("warmup: must be shorter" not in str(error))
        raise
    text = dump(one)
    assert load(text) == one
    assert dump(load(text)) == text
    assert yaml.safe_load(text)["name"] == one.name  # a YAML 1.1 reader sees the same
