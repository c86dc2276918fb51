"""Does a sweep run each point once, keep what is finished, and say what is wrong?"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pandas as pd
import pytest
from tiny_sweep import CONCURRENCY, SCENARIO

import sim
from sim.cli import main
from sim.errors import InputError
from sim.metrics import wording
from sim.report import sweeps
from sim.sweep import rows, sweeping
from sim.sweep.store import OutputError
from sim.sweep.sweeping import SweepResult


def count_runs(monkeypatch):
    done = []
    perform = sweeping.perform
    monkeypatch.setattr(sweeping, "perform", lambda task: done.append(task.key) or perform(task))
    return done


def test_one_row_a_point_and_replication(whole):
    table = whole.points
    assert len(table) == 12
    assert list(table.columns[:3]) == ["point", CONCURRENCY, "retention.policy"]
    assert table[CONCURRENCY].tolist() == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    assert set(table["status"]) == {"finished"}
    assert (table["turns"] > 0).all()
    for name in ("ttft_resumed_p95_s", "itl_p99_s", "turns_per_s", "hit_rate_total", "usd_per_trajectory", "slo_met",
                 "turn_share_decode", "pool_share_free", "gpu_share_idle", "count_evictions", "stable"):
        assert name in table
    assert table.filter(like="turn_share_").sum(axis=1).round(9).eq(1).all()
    mean = whole.mean
    assert mean["replications"].tolist() == [2] * 6
    spread = whole.interval("turns_per_s")
    assert (spread["turns_per_s_low"] <= spread["turns_per_s"]).all()
    assert "<table" in whole._repr_html_()


def test_a_row_holds_what_a_run_says(whole, scenario):
    """The k-th replication of a point is the k-th of a run of that scenario: common random numbers."""
    result = sim.run(scenario, overrides=[f"{CONCURRENCY}=3"], replications=2)
    table = whole.points.query(f"`{CONCURRENCY}` == 3 and `retention.policy` == 'keep'")
    values = result.summary["intervals"]["ttft_s.resumed.p95"]["values"]
    assert table["ttft_resumed_p95_s"].tolist() == pytest.approx(values, rel=1e-12)
    assert table["turns"].sum() == result.summary["turns"]


def test_on_disk_the_same_table_and_nothing_is_run_twice(whole, scenario, tmp_path, monkeypatch):
    out = tmp_path / "out"
    done = count_runs(monkeypatch)
    found = sim.sweep(scenario, out, jobs=1)
    pd.testing.assert_frame_equal(found.points, whole.points)
    pd.testing.assert_frame_equal(SweepResult.load(out).points, whole.points)
    assert SweepResult.load(out).axes == whole.axes
    assert len(done) == len(list((out / "runs").iterdir())) == 12
    before = (out / "points.parquet").read_bytes()
    sim.sweep(scenario, out, jobs=1)
    assert len(done) == 12
    assert (out / "points.parquet").read_bytes() == before
    scenario.write_text(SCENARIO.replace("[1, 2, 3]", "[1, 2, 3, 4]").replace("name: tiny", "name: other"))
    assert len(sim.sweep(scenario, out, jobs=1).points) == 16
    assert len(done) == 16


def test_a_broken_off_sweep_goes_on(whole, scenario, tmp_path, monkeypatch):
    out = tmp_path / "out"
    perform = sweeping.perform
    left = [5]

    def interrupted(task):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return perform(task)

    monkeypatch.setattr(sweeping, "perform", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sim.sweep(scenario, out, jobs=1)
    assert len(SweepResult.load(out).points) == 5
    left[0] = 7
    pd.testing.assert_frame_equal(sim.sweep(scenario, out, jobs=1).points, whole.points)


def test_a_failed_point_is_a_row(scenario, tmp_path, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr("sim.sweep.run.run_one", _fails_at_two)
    found = sim.sweep(scenario, out, jobs=1)
    assert found.failed == 4
    failed = found.points[found.points["status"] == "failed"]
    assert set(failed["error"]) == {"RuntimeError: two is one too many"}
    assert failed["turns_per_s"].isna().all()
    monkeypatch.undo()
    assert sim.sweep(scenario, out, jobs=1).failed == 4
    assert sim.sweep(scenario, out, jobs=1, retry=True).failed == 0


def _fails_at_two(scenario, replication, out=None):
    from sim.sweep.run import Tables, _run

    if scenario.workload.arrivals.closed.concurrency == 2:
        raise RuntimeError("two is\none too many")
    return _run(scenario, Path(), Tables(), None, replication)


def test_an_edited_scenario_is_refused_and_results_stay(whole, scenario, tmp_path):
    out = tmp_path / "out"
    sim.sweep(scenario, out, jobs=1)
    scenario.write_text(SCENARIO.replace("seed: 3", "seed: 4").replace("tokens: 100", "tokens: 200"))
    with pytest.raises(InputError, match=r"another scenario: seed 3, now 4; workload.agents.*--force") as caught:
        sim.sweep(scenario, out, jobs=1)
    assert "\n" not in str(caught.value)
    pd.testing.assert_frame_equal(SweepResult.load(out).points, whole.points)
    forced = sim.sweep(scenario, out, jobs=1, force=True)
    assert not forced.points["run"].isin(whole.points["run"]).any()
    assert len(list((out / "runs").iterdir())) == 24


def test_a_changed_trace_is_another_sweep(tmp_path):
    trace = tmp_path / "t.jsonl"
    lines = [json.dumps({"timestamp": 1000 * k, "input_length": 600, "output_length": 4, "hash_ids": [0, k]})
             for k in range(4)]
    trace.write_text("\n".join(lines) + "\n")
    base = {"model": "llama-3.1-8b", "hardware": "dgx-h100", "replicas": 1,
            "workload": {"agents": {"trace": str(trace), "format": "mooncake"}},
            "sweep": {"grid": {"engine.block_size": [16, 32]}}}
    assert len(sim.sweep(base, tmp_path / "out", jobs=1).points) == 2
    trace.write_text("\n".join(lines[:3]) + "\n")
    with pytest.raises(InputError, match=r"t\.jsonl has changed"):
        sim.sweep(base, tmp_path / "out", jobs=1)


@pytest.mark.parametrize("damage", [b"", b"PAR1 nonsense"])
def test_a_damaged_row_is_named(scenario, tmp_path, damage):
    out = tmp_path / "out"
    sim.sweep(scenario, out, jobs=1)
    row = sorted((out / "runs").glob("*/row.parquet"))[3]
    row.write_bytes(damage)
    with pytest.raises(InputError, match="damaged: remove it") as caught:
        sim.sweep(scenario, out, jobs=1)
    assert str(caught.value).startswith(str(row))
    row.unlink()
    (out / "points.parquet").write_bytes(damage)
    with pytest.raises(InputError, match="damaged"):
        SweepResult.load(out)
    assert sim.sweep(scenario, out, jobs=1).failed == 0


def test_folders_that_cannot_be_used(scenario, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file"):
        sim.sweep(scenario, tmp_path / "file", jobs=1)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes.txt is not part of a sweep"):
        sim.sweep(scenario, tmp_path / "taken", jobs=1)
    with pytest.raises(InputError, match="not a folder of a sweep"):
        SweepResult.load(tmp_path / "taken")
    for name in ("sweep.yaml", "points.parquet", "runs"):
        odd = tmp_path / f"odd-{name}"
        odd.mkdir()
        if name == "runs":
            (odd / name).write_text("x")
        else:
            (odd / name).mkdir()
        with pytest.raises(InputError, match=rf"its {name} is a (file|folder)"):
            sim.sweep(scenario, odd, jobs=1, force=True)

    def read_only(self, *_, **__):
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(OutputError, match=r"cannot write to .*: Read-only"):
        sim.sweep(scenario, tmp_path / "new", jobs=1)


def test_two_sweeps_at_once_in_one_folder_are_refused(scenario, tmp_path):
    from sim.sweep.folder import _locked

    out = tmp_path / "out"
    out.mkdir()
    with _locked(out / ".lock"), pytest.raises(InputError, match="another sweep is at work"):
        sim.sweep(scenario, out, jobs=1)


def test_kept_runs_can_be_compared(scenario, tmp_path, capsys):
    out = tmp_path / "out"
    found = sim.sweep(scenario, out, jobs=1, keep=True, replications=1)
    folders = [str(out / "runs" / run) for run in found.points["run"][:2]]
    with pytest.raises(SystemExit) as left:
        main(["compare", *folders])
    assert left.value.code == 0
    assert "same agents" in capsys.readouterr().out


def test_the_command(scenario, tmp_path, capsys):
    arguments = ["sweep", str(scenario), "-o", str(tmp_path / "out"), "--jobs", "1", "--replications", "1"]
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as left:
            main([*arguments, *more])
        assert left.value.code == 0
        said = capsys.readouterr()
        assert ("6 points, 6 runs, 0 failed" in said.out) or len(json.loads(said.out)["points"]) == 6
    with pytest.raises(SystemExit) as left:
        main([*arguments, "--set", "engine.block_size=32"])
    said = capsys.readouterr()
    assert (left.value.code, said.out) == (2, "")
    assert "engine.block_size 16, now 32" in said.err
    assert said.err.count("\n") == 1


def test_a_damaged_manifest_is_named(scenario, tmp_path):
    out = tmp_path / "out"
    sim.sweep(scenario, out, jobs=1, replications=1)
    (out / "sweep.yaml").write_text(": [")
    with pytest.raises(InputError, match=r"sweep.yaml: damaged"):
        sim.sweep(scenario, out, jobs=1, replications=1)
    assert len(sim.sweep(scenario, out, jobs=1, replications=1, force=True).points) == 6


def test_axes_of_mixed_kinds_are_text():
    assert rows._axis([1, "a", None], ).to_pylist() == ["1", "a", None]
    assert rows._axis([1, 2.0, None]).to_pylist() == [1, 2, None]
    assert rows._axis([True, False]).to_pylist() == [True, False]


@pytest.mark.parametrize("backend", ["loky", "dask", "ray"])
def test_backends_give_the_same_rows(whole, scenario, tmp_path, backend):
    """Two real workers each: processes, a dask scheduler on loopback, a local ray."""
    if backend != "loky":
        pytest.importorskip("distributed" if backend == "dask" else "ray")
    found = sim.sweep(scenario, tmp_path / "out", jobs=2, backend=backend)
    pd.testing.assert_frame_equal(found.points, whole.points)


def test_an_unknown_backend(scenario):
    with pytest.raises(InputError, match="choose from loky"):
        sim.sweep(scenario, jobs=2, backend="slurm")


def test_progress_counts_runs(scenario, tmp_path):
    told = []
    sim.sweep(scenario, tmp_path / "out", jobs=1, progress=lambda *state: told.append(state))
    assert told[0] == (0, 0, 12)
    assert told[-1] == (12, 0, 12)
    told.clear()
    sim.sweep(scenario, tmp_path / "out", jobs=1, progress=lambda *state: told.append(state))
    assert told == [(12, 0, 12)]


def test_the_table_says_whether_points_are_steady_and_how_sure_they_are(tmp_path, capsys):
    """Arrivals that nothing could serve are not steady; a notebook shows the same table."""
    text = SCENARIO.replace("5 s\n", "200 s\n", 1).replace("output: 8", "output: 400").replace(
        "closed: {concurrency: 2}", "poisson: {rate: 0.2}").replace(
        "retention: keep", "engine: {schedule: {max_seqs: 1}}\nretention: keep")
    axes = {"grid": {"workload.arrivals.poisson.rate": [0.05, 5.0]}, "replications": 3}
    found = sim.sweep(text.partition("sweep:")[0], axes=axes, jobs=1)
    assert found.mean["steady"].tolist() == ["steady", "NOT steady"]
    sweeps.show(found)
    said = capsys.readouterr().out
    headers, cells = sweeps.table(found)
    assert [row[headers.index("steady")] for row in cells] == ["yes", "NO"]
    spread = found.interval("ttft_resumed_p95_s")
    for row, mean, high in zip(cells, spread["ttft_resumed_p95_s"], spread["ttft_resumed_p95_s_high"], strict=True):
        assert row[headers.index("95 %")] == f"± {wording.percent((high - mean) / mean)}"
    shown = found._repr_html_()
    for cell in ("NO", "95 %", *cells[0], *cells[1]):
        assert cell in shown
        assert all(word in said for word in cell.split())
    one = sim.sweep(text.partition("sweep:")[0], axes=axes | {"replications": 1}, jobs=1)
    assert "95 %" not in sweeps.table(one)[0]


def test_a_point_is_as_steady_as_its_worst_replication(whole):
    changed = SweepResult(whole.points.assign(steady="steady"), whole.axes)
    changed.points.loc[3, "steady"] = "too short to tell"
    assert changed.mean["steady"].tolist()[:2] == ["steady", "too short to tell"]
    changed.points.loc[2, "steady"] = "NOT steady"
    assert changed.mean["steady"].tolist()[:2] == ["steady", "NOT steady"]
    old = SweepResult(whole.points.drop(columns="steady"), whole.axes)
    assert {row[sweeps.table(old)[0].index("steady")] for row in sweeps.table(old)[1]} == {"-"}


def test_a_sweep_that_failed_whole_still_shows(whole):
    failed = SweepResult(whole.points.assign(status="failed", error="disk"), whole.axes)
    assert "all of them failed" in failed._repr_html_()
