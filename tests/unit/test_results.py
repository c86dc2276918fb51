"""Are results collected, written, read back and refused as promised?"""

from __future__ import annotations

import errno
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sim
from sim.errors import InputError
from sim.metrics import collect
from sim.metrics.collect import Columns, Tables
from sim.metrics.paired import paired
from sim.records import TABLES
from sim.report import compare as comparing
from sim.report import tables as printing
from sim.report.reference import results_page
from sim.sweep import store, variants

SCENARIO = {"name": "small", "seed": 3, "duration": 600, "warmup": 0, "model": "llama-3.1-8b", "hardware": "dgx-h100",
            "workload": {"agents": "coding-agent", "arrivals": {"closed": {"concurrency": 8}}}}


@pytest.fixture
def faked(engine, monkeypatch):
    """Let `sim.run` call the stand-in instead of the engine."""
    import sys
    from types import ModuleType

    import workloads

    module = ModuleType("sim.engine.simulation")
    module.simulate = engine.fake_simulate
    module.run_length_s = lambda scenario: scenario.duration
    monkeypatch.setitem(sys.modules, "sim.engine.simulation", module)
    monkeypatch.setattr(workloads, "build", lambda config, base: None)
    return engine


def filled(engine, folder=None, replications=1):
    tables = Tables(folder)
    for number in range(replications):
        tables.begin(number)
        engine.fake_simulate(engine.fake_scenario(), None, tables, number)
    tables.close()
    return tables


@pytest.mark.parametrize("chunk", [7, 20_000])
def test_a_table_in_memory_on_disk_and_spilled_is_the_same(engine, tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(collect, "CHUNK_ROWS", chunk)
    memory, disk = filled(engine, replications=2), filled(engine, tmp_path, replications=2)
    monkeypatch.setattr(collect, "SPILL_ROWS", 50)
    spilled = filled(engine, replications=2)
    assert memory._scratch is None
    assert spilled._scratch is not None
    for table in TABLES:
        frame = memory.frame(table)
        assert list(frame.columns) == ["replication", *TABLES[table]]
        pd.testing.assert_frame_equal(frame, disk.frame(table))
        pd.testing.assert_frame_equal(frame, spilled.frame(table))
    for number in (0, 1):
        frame = memory.frame("turns").query("replication == @number")
        for tables in (memory, disk, spilled):
            columns = Columns(tables, number)
            np.testing.assert_array_equal(columns("turns", "ready_s"), frame["ready_s"])
            np.testing.assert_array_equal(columns("turns", "tool"), frame["tool"].to_numpy())
            np.testing.assert_array_equal(columns.equals("turns", "status", "finished"), frame["status"] == "finished")


def test_columns_have_the_types_that_are_documented(engine, tmp_path):
    import pyarrow.parquet as pq

    filled(engine, tmp_path)
    for table, columns in TABLES.items():
        schema = pq.read_schema(tmp_path / f"{table}.parquet")
        found = {field.name: str(field.type).replace("double", "float64") for field in schema}
        assert found == {"replication": "int32", **{name: kind for name, (kind, _) in columns.items()}}


def test_the_page_of_results_is_in_step():
    page = Path(__file__).parents[2] / "docs" / "results.md"
    assert page.read_text(encoding="utf-8") == results_page(), "run python -m sim.report.reference docs/results.md"


def test_a_run_writes_the_files_of_the_contract(faked, tmp_path):
    out = tmp_path / "new" / "run"
    result = sim.run(SCENARIO, out, replications=2)
    assert sorted(path.name for path in out.iterdir()) == sorted(store.FILES)
    assert sorted(path.name for path in out.parent.iterdir()) == ["run"]
    assert out.stat().st_mode & 0o777 == 0o777 & ~_umask()
    assert json.loads((out / "summary.json").read_text()) == result.summary
    assert set(result.turns["replication"]) == {0, 1}
    steps = json.loads((out / "steps.json").read_text())
    assert set(steps["itl"]) == {"low_s", "high_s", "weight", "seconds"}
    assert "<table>" in result._repr_html_()
    back = sim.Result.load(out)
    pd.testing.assert_frame_equal(back.turns, result.turns)
    assert back.summary == result.summary
    assert back.scenario.replications == 2


def _umask():
    import os

    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_run_yaml_runs_again_and_gives_the_same_bytes(faked, tmp_path):
    sim.run(SCENARIO, tmp_path / "a", seed=5)
    sim.run(tmp_path / "a", tmp_path / "b")
    sim.run(tmp_path / "a" / "run.yaml", tmp_path / "c")
    for name in store.FILES:
        if name != "summary.json":
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    one, two = (json.loads((tmp_path / run / "summary.json").read_text()) for run in "ac")
    assert one | {"wall_s": 0} == two | {"wall_s": 0}
    text = (tmp_path / "a" / "run.yaml").read_text()
    assert "seed_entropy:" in text
    assert "hardware_profiles/models/llama-3.1-8b.yaml: " in text


def test_saving_from_memory_equals_writing_along(faked, tmp_path):
    result = sim.run(SCENARIO)
    assert result.folder is None
    result.save(tmp_path / "saved")
    sim.run(SCENARIO, tmp_path / "along")
    for table in TABLES:
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "saved" / f"{table}.parquet"),
                                      pd.read_parquet(tmp_path / "along" / f"{table}.parquet"))
    sim.Result.load(tmp_path / "along").save(tmp_path / "copy")
    assert (tmp_path / "copy" / "turns.parquet").read_bytes() == (tmp_path / "along" / "turns.parquet").read_bytes()


def test_a_folder_is_refused_unless_it_is_a_run_and_forced(faked, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    sim.run(SCENARIO, out)
    with pytest.raises(InputError, match="--force"):
        sim.run(SCENARIO, out)
    sim.run(SCENARIO, out, seed=9, force=True)
    assert sim.Result.load(out).scenario.seed == 9
    (out / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        sim.run(SCENARIO, out, force=True)
    assert (out / "notes.txt").read_text() == "mine"
    assert sim.Result.load(out).scenario.seed == 9
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="is a file"):
        sim.run(SCENARIO, file)
    with pytest.raises(InputError, match="not a folder of a run"):
        sim.Result.load(tmp_path)


@pytest.mark.parametrize("existing", [False, True])
def test_a_failed_run_leaves_nothing(faked, tmp_path, monkeypatch, existing):
    out = tmp_path / "out"
    if existing:
        sim.run(SCENARIO, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()} if existing else None

    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store, "write_json", full)
    with pytest.raises(store.OutputError, match=r"cannot write to .*out: No space left on device"):
        sim.run(SCENARIO, out, force=True)
    assert [path.name for path in tmp_path.iterdir()] == (["out"] if existing else [])
    if existing:
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_place_that_cannot_be_written_is_one_line(faked, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written: .*file is a file") as caught:
        sim.run(SCENARIO, tmp_path / "file" / "out")
    assert "\n" not in str(caught.value)


def test_json_takes_no_nan():
    assert store.plain({1: [np.float64("nan"), np.int32(3), math.inf, (True, None)]}) == {"1": [None, 3, None,
                                                                                               [True, None]]}


def test_runs_of_the_same_agents_are_paired(faked, tmp_path, engine, monkeypatch):
    sim.run(SCENARIO, tmp_path / "a")
    monkeypatch.setattr(engine, "PREFILL_S", 0.5)
    sim.run(SCENARIO, tmp_path / "b")
    sim.run(SCENARIO, tmp_path / "c", seed=11)
    found = comparing.compare([tmp_path / name for name in "abc"])
    rows = {row["latency"]: row for row in found.differences["b"]}
    assert rows["turn"]["difference_s"] > 0.1
    assert rows["turn"]["sure"]
    assert rows["turn"]["low_s"] < rows["turn"]["difference_s"] < rows["turn"]["high_s"]
    assert rows["trajectory"]["pairs"] > 10
    assert set(found.unpaired) == {"c"}
    same = sim.Result.load(tmp_path / "a")
    frames = (same.turns, same.trajectories)
    assert {row["difference_s"] for row in paired(frames, frames, 0.0)} == {0.0}
    assert not any(row["sure"] for row in paired(frames, frames, 1e9))


def test_tables_read_well_in_a_pipe(faked, tmp_path, capsys):
    results = {name: sim.run(SCENARIO, seed=seed).summary for name, seed in
               (("keep", 1), ("a-rather-long-name-of-a-variant", 2), ("drop", 3), ("offload", 4), ("break_even", 5))}
    printing.show_summary("one run", results["keep"])
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 100
    for word in ("TTFT, resumed", "trajectories alive", "KV pool", "GPU time", "time of turns", "binds", "cost",
                 "steady?", "95 % interval"):
        assert word in text
    printing.show_compared("several", list(results.items()))
    text = capsys.readouterr().out
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 100
    for name in results:
        assert name in text


def test_wide_rows_break_at_words_and_go_on_in_a_further_table(capsys):
    interval = "3.27 min to 4.54 min"
    heads = ["", "p50", "95 % interval", "recomputing", *(f"a column {n}" for n in range(12))]
    printing.show_rows([["break_even", "1.23 s", interval, "18%", *(f"{n}.25 min" for n in range(12))]], headers=heads)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    assert "3.27 min to" in text
    assert "recomputing" in text
    assert all(f"{n}.25 min" in text for n in range(12))
    assert text.count("break_even") == 2  # each table says whose figures these are
    printing.show_rows([["break_even", "1.23 s", interval]], headers=heads[:3])
    narrow = capsys.readouterr().out.splitlines()
    assert "95 % interval" in narrow[0]
    assert interval in narrow[2]


def test_the_axis_of_a_variation():
    assert variants.axis("retention.policy=keep,drop") == ("retention.policy", ["keep", "drop"])
    assert variants.axis("retention={policy: keep, x: [1,2]},drop")[1] == ["{policy: keep, x: [1,2]}", "drop"]
    assert variants.axis("name='a,b',c")[1] == ["'a,b'", "c"]
    for bad in ("retention.policy", "=a,b", "a=", "a=b,,c", "a=b,b", "a=[1,2"):
        with pytest.raises(InputError, match="--vary"):
            variants.axis(bad)
    assert variants.folders(Path("out"), ["keep", "{a: 1}"]) == [Path("out/keep"), Path("out/a-1")]
    assert variants.folders(Path("o"), ["a b", "a-b"]) == [Path("o/0-a-b"), Path("o/1-a-b")]
    assert variants.folders(None, ["x"]) == [None]


def test_the_engine_and_the_summary_agree(tmp_path):
    spec = SCENARIO | {"duration": 300, "warmup": 60, "replications": 2, "retention": "keep",
                       "slo": {"ttft_resumed": {"p95": 2.0}}}
    seen: list[tuple[float, int, float | None]] = []
    result = sim.run(spec, tmp_path / "out", progress=lambda *state: seen.append(state))
    found = result.summary
    assert max(found["checks"]["ledger_residual"].values()) < 1e-9
    assert found["checks"]["alive_residual"] < 1e-9
    assert found["turns"] == (result.turns["status"] == "finished").sum()
    assert found["trajectories"]["started"] == len(result.trajectories)
    measured = result.turns[(result.turns["status"] == "finished") & (result.turns["ready_s"] >= 60)]
    ttft = (measured["first_token_s"] - measured["ready_s"])[~measured["first"]]
    assert found["ttft_s"]["resumed"]["p95"] == pytest.approx(ttft.quantile(0.95))
    hits = (measured["hit_hbm_tokens"] + measured["hit_dram_tokens"]).sum()
    assert found["hit_rate"]["total"] == pytest.approx(hits / measured["prompt_tokens"].sum())
    assert found["goodput"]["turns"] is not None
    assert not seen or seen[-1][2] == 600


def test_the_metrics_of_a_trace_are_of_all_of_it():
    trace = Path(__file__).parents[1] / "data"
    traces = sorted(trace.rglob("*.jsonl"))
    if not traces:
        pytest.skip("no small trace at hand")
    spec = SCENARIO | {"workload": {"agents": {"trace": str(traces[0])}}, "warmup": "auto"}
    del spec["duration"]
    found = sim.run(spec).summary
    assert found["checks"]["warmup_s"] == 0
    assert found["checks"]["turns_measured"] == found["turns"]
    assert found["checks"]["little_residual"] < 1e-6
