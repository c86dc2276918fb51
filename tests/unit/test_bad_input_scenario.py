"""Is every mistake in a scenario answered by one clear line with its place, and never by a traceback?"""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.scenario import load

GOOD = """model: llama-3.1-70b
hardware: dgx-h100
workload:
  agents: {turns: 5, tools: {bash: {wait: 3 s}}}
"""


def complaint(source: Any, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        load(source, overrides)
    text = str(caught.value)
    assert all(line.strip() for line in text.split("\n"))
    assert "Input should" not in text
    assert "pydantic" not in text
    return text


@pytest.mark.parametrize(("line", "says"), [
    ("seed: off", "seed: expected a whole number (got off)"),
    ("seed: true", "seed: expected a number (got true)"),
    ("seed: 1.5", "seed: expected a whole number (got 1.5)"),
    ("seed: -1", "seed: must be greater than or equal to 0 (got -1)"),
    ("seed: 12:30", "seed: expected a whole number (got 12:30)"),
    ("seed: 0x10", "seed: expected a whole number (got 0x10)"),
    ("seed: null", "seed: expected a whole number (got null)"),
    ("sed: 1", "sed: unknown field; did you mean seed? (got 1)"),
    ("name: 5", "name: expected text (quote it) (got 5)"),
    ("name: ''", "name: must have at least 1 character (got '')"),
    ("1: 2", "[1]: a field's name must be text (got 1)"),
    ("duration: 12:30", "duration: expected a time like 45 s, 100 ms, 2 h (got 12:30)"),
    ("duration: 3 GB", "duration: 'GB' is no unit of a time; write it like 45 s, 100 ms, 2 h (got 3 GB)"),
    ("engine: {step_overhead: -1 ms}", "engine.step_overhead: must be greater than or equal to 0 (got -1 ms)"),
    ("engine: {step_overhead: .inf}", "engine.step_overhead: expected a finite number (got .inf)"),
    ("timing: {roofline: {step_overhead_s: 1 ms}}", "timing.roofline.step_overhead_s: unknown field; choose from"),
    ("duration: -3 s", "duration: must be greater than 0 (got -3 s)"),
    ("duration: .inf", "duration: expected a finite number (got .inf)"),
    ("duration: .nan", "duration: expected a finite number (got .nan)"),
    ("duration: 1e999", "duration: expected a finite number (got 1e999)"),
    ("duration: [1]", "duration: expected a time like 45 s, 100 ms, 2 h (got [1])"),
    ("warmup: soon", "warmup: expected auto or a time like 45 s, 100 ms, 2 h (got soon)"),
    ("warmup: -3", "warmup: must be >= 0 (got -3)"),
    ("warmup: 2 h\nduration: 5400", "warmup: must be shorter than the duration, 5400 s, or nothing is left to measure "
     "(got 7200 s)"),
    ("weights_dtype: fp32", "weights_dtype: unknown value; choose from bf16, fp16, fp8, nvfp4, int4 (got fp32)"),
    ("parallelism: 8", "parallelism: expected a mapping (got 8)"),
    ("parallelism: {tp: 0}", "parallelism.tp: must be greater than or equal to 1 (got 0)"),
    ("parallelism: {dp: 2}", "parallelism.dp: unknown field; choose from tp, pp (got 2)"),
    ("engine: vllm", "engine: expected a mapping (got vllm)"),
    ("engine: {preset: vlm}", "engine.preset: unknown value; did you mean vllm? (got vlm)"),
    ("engine: {preset: [vllm]}", "engine.preset: unknown value; did you mean vllm? (got [vllm])"),
    ("engine: {allocator: buddi}", "engine.allocator.kind: unknown kind; did you mean buddy? (got buddi)"),
    ("engine: {blocksize: 16}", "engine.blocksize: unknown field; did you mean block_size? (got 16)"),
    ("engine: {memory_utilization: 92}", "engine.memory_utilization: must be less than or equal to 1 (got 92)"),
    ("engine: {pool: 80 Gb}", "engine.pool: 'Gb' is in bits"),
    ("engine: {schedule: chunkd}", "engine.schedule.policy: unknown policy; did you mean chunked? (got chunkd)"),
    ("engine: {schedule: {order: fcsf}}", "engine.schedule.order: unknown value; did you mean fcfs? (got fcsf)"),
    ("engine: {schedule: {token_budget: true}}", "engine.schedule.token_budget: expected a number (got true)"),
    ("engine: {prefix_cache: {enabled: maybe}}", "engine.prefix_cache.enabled: expected true or false (got maybe)"),
    ("engine: {prefix_cache: {low_watermark: 0.5, high_watermark: 0.1}}",
     "engine.prefix_cache.low_watermark: must not exceed high_watermark, which is 0.1 (got 0.5)"),
    ("retention: kepp", "retention.policy: unknown policy; did you mean keep? (got kepp)"),
    ("retention: [keep]", "retention: expected a mapping (got [keep])"),
    ("retention: {policy: drop, mu_hbm: 2}", "retention.mu_hbm: unknown field; choose from"),
    ("retention: {policy: break_even, mu_hbm: -2}", "retention.mu_hbm: must be greater than 0 (got -2)"),
    ("retention: {predictor: lernd}", "retention.predictor.kind: unknown kind; did you mean learned? (got lernd)"),
    ("retention: offload", "retention.policy: offloads contexts, so tiers.dram must be given (got offload)"),
    ("routing: stiky", "routing.policy: unknown policy; did you mean sticky? (got stiky)"),
    ("timing: {measured: h999}", "timing.measured: "),
    ("timing: {roofline: {mode: min}}", "timing.roofline.mode: unknown value; choose from max, sum (got min)"),
    ("tiers: {tape: {capacity: 1 TB}}", "tiers.tape: unknown field; choose from dram, nvme, remote"),
    ("tiers: {remote: {capacity: 1 TB, evict_to: dram}}", "tiers.remote.evict_to: unknown value; choose from nowhere"),
    ("tiers: {remote: {capacity: 1 TB, link: rdma}}", "tiers.remote.link: unknown link; did you mean rdma-"),
    ("tiers: {nvme: {capacity: 1 TB, evict_to: remote}}",
     "tiers.nvme.evict_to: evicts to remote memory, so tiers.remote must be given (got remote)"),
    ("tiers: {dram: {}}", "tiers.dram.capacity: is required"),
    ("tiers: {dram: 1 TiB}", "tiers.dram: expected a mapping (got 1 TiB)"),
    ("tiers: {dram: {capacity: 1 TiB, evict_to: nvme}}",
     "tiers.dram.evict_to: evicts to NVMe, so tiers.nvme must be given (got nvme)"),
    ("slo: {ttft_resum: {p95: 2 s}}", "slo.ttft_resum: unknown name; did you mean ttft_resumed"),
    ("slo: {itl: {p42: 2 s}}",
     "slo.itl.p42: unknown name; choose from mean, p50, p90, p95, p99, turns, trajectories (got p42)"),
    ("slo: {itl: 3 s}", "slo.itl: expected a mapping (got 3 s)"),
    ("slo: {itl: {p99: 0 s}}", "slo.itl.p99: must be greater than 0 (got 0 s)"),
    ("sweep: {}", "sweep: needs one of grid, zip, list"),
    ("sweep: {gird: {seed: [1]}}", "sweep.gird: unknown field; did you mean grid?"),
    ("sweep: {grid: {seed: 1}}", "sweep.grid.seed: expected a list of values (got 1)"),
    ("sweep: {grid: {seed: []}}", "sweep.grid.seed: expected a list of values (got [])"),
    ("sweep: {zip: {seed: [1], nodes: [1, 2]}}", "sweep.zip: lists must be of one length, they have [1, 2]"),
    ("sweep: {list: {seed: [1]}}", "sweep.list: expected a list of points"),
    ("model: x", "model: given twice, first in line 1"),
    ("a: b: c", "not valid YAML: a colon where none may be; indent alike, and quote text that holds ': '"),
    ("\tseed: 1", "not valid YAML: a tab; indent with spaces"),
    ("seed: @1", "not valid YAML: while scanning for the next token"),
    ("seed: *one", "not valid YAML: found undefined alias 'one'"),
    ("seed: !!python/object:os.system x", "seed: this YAML tag is not allowed (got !!python/object:os.system)"),
    ("seed: !!int x", "seed: no such number (got x)"),
    ("seed: " + "9" * 5000, "seed: no such number (got 999"),
    ("<<: {seed: 1}", "merge keys (<<) are not supported; write the fields out"),
    ("? [a]", "a field's name must be text (got a list or mapping)"),
    ("null: 3", "a field's name must be text (got null)"),
    ("seed: &a [*a]", "nested more than 64 deep (or an alias that holds itself)"),
    ("seed: \x07", "character U+0007 is not allowed in YAML"),
])
def test_one_line_with_its_place(line: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(GOOD + line + "\n")
    text = complaint(file)
    assert text.startswith(f"{file}:5: {says}"), text
    assert "\n" not in text
    assert complaint(GOOD + line + "\n").startswith(f"line 5: {says}")


@pytest.mark.parametrize(("old", "new", "says"), [
    ("llama-3.1-70b", "lama-3.1-70b", "line 1: model: unknown model; did you mean llama-3.1-70b"),
    ("llama-3.1-70b", "5", "line 1: model: expected a catalogue name or a mapping of fields (got 5)"),
    ("dgx-h100", "dgx-h10", "line 2: hardware: unknown hardware; did you mean dgx-h100"),
    ("{turns: 5, tools: {bash: {wait: 3 s}}}", "codin-agent", "line 4: workload.agents: unknown agents; "),
    ("turns: 5", "trnus: 5", "line 4: workload.agents.trnus: unknown field; did you mean turns? (got 5)"),
    ("wait: 3 s", "wait: 3 GB", "line 4: workload.agents.tools.bash.wait: 'GB' is no unit of a time"),
    ("turns: 5", "turns: {lognormal: {median: x, sigma: 1}}",
     "line 4: workload.agents.turns.lognormal.median: expected a number (got x)"),
    ("{turns: 5, tools: {bash: {wait: 3 s}}}", "{trace: 5}", "line 4: workload.agents.trace: expected a path (got 5)"),
    ("{turns: 5, tools: {bash: {wait: 3 s}}}", "{trace: x, format: mooncak}",
     "line 4: workload.agents.format: unknown value; did you mean mooncake? (got mooncak)"),
])
def test_catalogues_and_workload(old: str, new: str, says: str) -> None:
    text = complaint(GOOD.replace(old, new))
    assert text.startswith(says), text
    assert "\n" not in text


def test_all_problems_in_order_of_lines() -> None:
    text = complaint("model: lama-3.1-8b\nhardware: dgx-h100\nseed: x\nengine: {block_size: 0}\n")
    assert text.split("\n") == [
        "workload: is required",
        "line 1: model: unknown model; did you mean llama-3.1-8b or llama-3.1-70b? (got lama-3.1-8b)",
        "line 3: seed: expected a whole number (got x)",
        "line 4: engine.block_size: must be greater than or equal to 1 (got 0)",
    ]


@pytest.mark.parametrize(("override", "says"), [
    ("seed", "--set seed: expected FIELD=VALUE"),
    ("=3", "--set =3: expected a dotted path"),
    ("a..b=3", "--set a..b=3: expected a dotted path"),
    ("sede=3", "--set sede=3: sede: unknown field; did you mean seed or sweep? (got 3)"),
    ("seed=x", "--set seed=x: seed: expected a whole number (got x)"),
    ("seed=", "--set seed=: seed: expected a whole number (got null)"),
    ("seed=[1", "--set seed=[1: not valid YAML: "),
    ("seed=1\nseed: 2", "--set seed=1 seed: 2: not valid YAML: "),
    ("seed.x=3", "--set seed.x=3: seed: expected a whole number (got {x: 3})"),
    ("retention.polcy=keep", "--set retention.polcy=keep: retention.polcy: unknown field; did you mean policy?"),
    ("retention.policy=kep", "--set retention.policy=kep: retention.policy: unknown policy; did you mean keep?"),
    ("hardware.gpuz=4", "--set hardware.gpuz=4: hardware.gpuz: unknown field; did you mean gpu or gpus? (got 4)"),
    ("engine.preset=none", "--set engine.preset=none: engine.preset: unknown value"),
    ("parallelism={tp: 2, tp: 2}", "--set parallelism={tp: 2, tp: 2}: given twice"),
    ("workload=5", "--set workload=5: workload: expected a mapping (got 5)"),
    ("duration=3 GB", "--set duration=3 GB: duration: 'GB' is no unit of a time"),
])
def test_overrides_say_which_one(override: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(GOOD)
    for source in (file, GOOD):
        text = complaint(source, "nodes=2", override)
        assert text.startswith(says), text
        assert "\n" not in text


def test_an_override_into_an_unknown_name() -> None:
    assert complaint(GOOD.replace("dgx-h100", "dgx-h999"), "hardware.gpus=4").startswith(
        "--set hardware.gpus=4: hardware: unknown node; ")
    assert "is not a mapping" in complaint(GOOD + "seed: 3", "seed.x=3")


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "quick.yaml"
    assert complaint(file) == f"{file}: no such file"
    assert complaint(tmp_path / "no" / "such.yaml").endswith("such.yaml: no such file")
    file.write_text("")
    assert complaint(file) == f"{file}: is empty"
    assert complaint(tmp_path / "quik.yaml").endswith("quik.yaml: no such file; did you mean quick.yaml?")
    file.write_text("# only a comment\n")
    assert complaint(file) == f"{file}: is empty"
    file.write_text("- a\n- b\n")
    assert complaint(file) == f"{file}: expected a mapping of fields"
    file.write_text("model\n")
    assert complaint(file) == f"{file}: expected a mapping of fields"
    file.write_bytes(b"name: a\nseed: \xff\n")
    assert complaint(file) == f"{file}:2: is not UTF-8 text"
    file.write_bytes("name: a\n".encode("utf-16"))
    assert complaint(file) == f"{file}:1: is not UTF-8 text"
    file.write_bytes(b"PK\x03\x04\x00\x00")
    assert "is not allowed in YAML" in complaint(file)
    file.write_text("a: 1\n---\nb: 2\n")
    assert complaint(file) == f"{file}:2: not valid YAML: more than one document"
    file.write_text("#" * 1_100_000)
    assert "is it a scenario?" in complaint(file)
    assert complaint(tmp_path) == f"{tmp_path}: is a folder; give a scenario file"
    assert complaint("/dev/null") == "/dev/null: is no regular file"
    assert complaint("a\0b").endswith("null byte")
    assert "cannot be read" in complaint("x" * 5000)


def test_bombs() -> None:
    levels = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    assert "more than 200000 values" in complaint("a0: &a0 [x]\n" + levels)
    assert complaint("a: " + "[" * 5000 + "\n") == "nested too deeply"
    assert "nested more than 64 deep" in complaint("a: " + "[" * 80 + "]" * 80 + "\n")


def test_mappings_from_python() -> None:
    assert complaint({}).split("\n") == ["model: is required", "hardware: is required", "workload: is required"]
    assert complaint({"seed": 1, 2: 3}).startswith("model: is required\n")
    base = {"model": "llama-3.1-8b", "hardware": "dgx-h100", "workload": {"agents": {"turns": 5}}}
    assert complaint({**base, "duration": math.nan}) == "duration: expected a finite number (got nan)"
    assert complaint({**base, "engine": {"schedule": {"max_seqs": object}}}).startswith("engine.schedule.max_seqs: ")
    assert complaint({**base, "sweep": {"grid": {"seed": [math.inf]}}}) == (
        "sweep.grid.seed[0]: expected a finite number (got inf)")


yaml_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(
        ["keep", "1 GB", "3 s", "vllm", "chunked", "off", "llama-3.1-8b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["policy", "kind", "dram", "capacity", "predictor", "schedule", "grid", "closed", "itl", "p99",
                         "roofline", "trace", "eviction", "prefix_cache", "preset"])
        | st.text(max_size=5) | st.integers(),
        inner, max_size=3), max_leaves=8)


@settings(max_examples=200)
@given(st.sampled_from(["engine", "retention", "tiers", "workload", "slo", "sweep", "timing", "routing", "model",
                        "hardware", "seed", "duration", "warmup", "name", "parallelism", "engine.schedule",
                        "engine.prefix_cache", "retention.predictor", "workload.agents", "workload.arrivals"]),
       yaml_values)
def test_whatever_stands_in_a_field_loads_or_is_explained(field: str, value: Any) -> None:
    data: dict[str, Any] = {"model": "llama-3.1-8b", "hardware": "dgx-h100", "workload": {"agents": {"turns": 5}}}
    outer, _, inner = field.partition(".")
    data[outer] = {**data.get(outer, {}), inner: value} if inner else value
    with contextlib.suppress(InputError):
        load(data)


@settings(max_examples=200)
@given(st.text(st.characters(codec="utf-8"), max_size=60) | st.text("ab:-{}[],&*!|>'\"#%@` \n\t?~0.1e", max_size=40))
def test_whatever_text_loads_or_is_explained(text: str) -> None:
    with pytest.raises(InputError) as caught:
        load(text + "\n")
    assert str(caught.value)
