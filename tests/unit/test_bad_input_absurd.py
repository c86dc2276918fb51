"""Are sizes that no machine could simulate refused at once, with their bound?"""

from __future__ import annotations

import pandas as pd
import pytest

from sim.cli import main
from sim.errors import InputError
from sim.scenario import load
from sim.sweep import pool, store
from workloads.readers.otel_spans import attributes

BASE = {"model": "llama-3.1-8b", "hardware": "dgx-h100"}
FILE = """model: llama-3.1-8b
hardware: dgx-h100
duration: 60
workload:
  agents: {turns: 2, tools: {bash: {wait: 3 s}}}
"""


def scenario(agents=None, arrivals=None, **fields):
    workload = {"agents": agents or {"turns": 5}, "arrivals": arrivals or {"closed": {"concurrency": 2}}}
    return {**BASE, "workload": workload, **fields}


@pytest.mark.parametrize(("data", "field", "bound"), [
    (scenario(agents={"turns": 10_000_000}), "workload.agents.turns", "100,000"),
    (scenario(agents={"turns": {"lognormal": {"median": 1e9, "sigma": 1}}}), "workload.agents.turns", "100,000"),
    (scenario(agents={"turns": 5, "branching": {"probability": 0.5, "children": 1e7}}), "branching.children",
     "100,000"),
    (scenario(arrivals={"closed": {"concurrency": 100_000_000}}), "arrivals.closed.concurrency", "10000000"),
    (scenario(arrivals={"poisson": {"rate": "1e9/s"}}), "arrivals.poisson.rate", "1000000"),
    (scenario(arrivals={"gamma": {"rate": 1e9, "cv": 2}}), "arrivals.gamma.rate", "1000000"),
    (scenario(duration="1e300 s"), "duration", "1000000000"),
    (scenario(nodes=10_001), "nodes", "10000"),
    (scenario(engine={"pool": 1e19}), "engine.pool", "must be less than or equal to 1"),
    (scenario(engine={"allocator": {"kind": "growth", "factor": 1.001}}), "engine.allocator.factor", "1.01"),
])
def test_an_absurd_size_is_refused_with_its_bound(data, field, bound):
    with pytest.raises(InputError) as caught:
        load(data)
    text = str(caught.value)
    assert field in text
    assert bound in text
    assert "\n" not in text
    assert "(got " in text


@pytest.mark.parametrize("data", [
    scenario(agents={"turns": 100_000}), scenario(arrivals={"closed": {"concurrency": 10_000_000}}, duration=60),
    scenario(arrivals={"poisson": {"rate": 1e6}}, duration=60), scenario(duration=1e9), scenario(nodes=10_000),
    scenario(agents={"turns": {"pareto": {"scale": 1, "alpha": 1.1}}}),
    scenario(engine={"pool": 1e18}), scenario(engine={"allocator": {"kind": "growth", "factor": 1.01}}),
])
def test_a_size_at_its_bound_is_accepted(data):
    load(data)


@pytest.mark.parametrize(("data", "names"), [
    (scenario(arrivals={"poisson": {"rate": 1e6}}, duration=1e6), "arrivals.poisson.rate 1e+06"),
    (scenario(arrivals={"ramp": {"end": 1e6, "over": 1}}, duration=1e6), "arrivals.ramp.end 1e+06"),
    (scenario(arrivals={"closed": {"concurrency": 10_000_000}}, duration=1e6), "arrivals.closed.concurrency 1e+07"),
    (scenario(agents="chat", arrivals={"poisson": {"rate": 1e4}}, duration=1e9), "arrivals.poisson.rate 10000"),
])
def test_a_product_that_would_never_end_names_both_fields(data, names):
    with pytest.raises(InputError) as caught:
        load(data)
    text = str(caught.value)
    assert text.startswith("duration: ")
    assert names in text
    assert "\n" not in text


@pytest.mark.parametrize(("fields", "field"), [
    ({"engine": {"schedule": {"policy": "chunked", "max_seqs": 10**400}}}, "engine.schedule.max_seqs"),
    ({"parallelism": {"tp": 10**39}}, "parallelism.tp"), ({"parallelism": {"pp": 20_000}}, "parallelism.pp"),
    ({"replicas": 20_000}, "replicas"), ({"warmup": "1e10 s"}, "warmup"), ({"seed": 10**40}, "seed"),
    ({"agents": {"turns": 2, "output": 1e15}}, "workload.agents.output"),
    ({"agents": {"turns": 2, "tools": {"a": {"wait": "1e15 s"}}}}, "wait"),
    ({"engine": {"preset": "vllm", "headroom": {}}}, "engine.headroom"),
    ({"engine": {"preset": "vllm", "schedule": {"max_seqs": {}}}}, "max_seqs"),
])
def test_a_number_beyond_all_use_or_none_at_all_is_named(fields, field):
    with pytest.raises(InputError) as caught:
        load(scenario(**fields))
    text = str(caught.value)
    assert field in text
    assert "\n" not in text


def test_a_seed_of_128_bits_is_fine():
    assert load(scenario(seed=2**128 - 1)).seed == 2**128 - 1


def test_a_wrong_value_under_vary_is_placed_in_the_file(tmp_path, capsys):
    path = tmp_path / "a.yaml"
    path.write_text(FILE + "vary:\n  retention: [release, kepp]\n", encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        main(["run", str(path)])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{path}:7: vary.retention")
    assert "did you mean keep? (got kepp)" in said
    assert "--set" not in said


@pytest.mark.parametrize("jobs", ["0", "-5"])
@pytest.mark.parametrize("verb", ["sweep", "size"])
def test_fewer_than_one_job_is_refused(verb, jobs, tmp_path, capsys):
    path = tmp_path / "a.yaml"
    path.write_text(FILE, encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        main([verb, str(path), "--jobs", jobs, *(["-o", str(tmp_path / "out")] if verb == "sweep" else [])])
    assert left.value.code == 2
    assert "jobs" in capsys.readouterr().err
    with pytest.raises(InputError, match="1 or more"):
        list(pool.each(abs, [1], int(jobs)))


@pytest.mark.parametrize("verb", [["bill"], ["compare", "."]])
def test_a_file_in_place_of_a_run_is_named_as_one(verb, tmp_path, capsys):
    path = tmp_path / "a.yaml"
    path.write_text(FILE, encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        main([verb[0], str(path), *verb[1:]])
    assert left.value.code == 2
    assert capsys.readouterr().err == f"is a file; give the folder of a run (got {path})\n"


def test_a_damaged_table_is_named(tmp_path):
    path = tmp_path / "turns.parquet"
    with pytest.raises(InputError, match=r"turns\.parquet: missing"):
        store.read_table(path)
    path.write_bytes(b"PAR1 no table")
    with pytest.raises(InputError, match=r"turns\.parquet: cannot be read"):
        store.read_table(path)
    pd.DataFrame({"a": [1]}).to_parquet(path)
    assert store.read_table(path, ["a"])["a"].tolist() == [1]
    with pytest.raises(InputError, match=r"turns\.parquet: has no column b: not a table of a run"):
        store.read_table(path, ["b"])


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff\xfe", b"[1]"])
def test_damaged_histograms_are_named(content, tmp_path):
    if content is not None:
        (tmp_path / "steps.json").write_bytes(content)
    with pytest.raises(InputError, match=r"steps\.json: "):
        store.read_steps(tmp_path)


@pytest.mark.parametrize("key", [["a"], {"a": 1}, True])
def test_an_attribute_key_that_is_no_text_is_named(key):
    with pytest.raises(InputError, match="key: "):
        attributes({"attributes": [{"key": key, "value": {"intValue": 1}}]})


@pytest.mark.parametrize("key", [None, 5, "other"])
def test_an_attribute_with_another_key_is_left_aside(key):
    assert attributes({"attributes": [{"key": key, "value": {"intValue": 1}}]}) == {}
