"""Does a sweep survive what goes wrong around it: a full disk, a folder it may not write, an edit while it runs?"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from tiny_sweep import SCENARIO

import sim
from sim.cli import main
from sim.errors import InputError
from sim.sweep import sweeping
from sim.sweep.sweeping import SweepResult

ROOT = Path(__file__).parents[2]


def in_a_process(before: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    code = f"{before}\nfrom sim.cli import main\nmain({[str(argument) for argument in arguments]!r})"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120,
                          check=False)


def test_a_full_disk_ends_the_sweep_and_keeps_what_is_there(whole, scenario, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    import pyarrow.parquet as pq

    write, left = pq.write_table, [4]

    def full(*arguments, **options):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(*arguments, **options)

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(SystemExit) as left_with:
        main(["sweep", str(scenario), "-o", str(out), "--jobs", "1"])
    said = capsys.readouterr()
    assert (left_with.value.code, said.out, said.err.count("\n")) == (1, "", 1)
    assert "No space left" in said.err
    assert len(list(out.glob("runs/*/row.parquet"))) == 4
    assert not list(out.rglob(".*parquet*"))
    monkeypatch.undo()
    pd.testing.assert_frame_equal(sim.sweep(scenario, out, jobs=1).points, whole.points)


def test_a_real_limit_of_file_size_is_one_line_and_what_was_there_stays(whole, scenario, tmp_path):
    out = tmp_path / "out"
    first = in_a_process("", "sweep", scenario, "-o", out, "--jobs", 1)
    assert first.returncode == 0, first.stderr
    for row in sorted(out.glob("runs/*/row.parquet"))[5:]:
        row.unlink()
    kept = {path: path.read_bytes() for path in out.rglob("*.parquet")}
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"
    stopped = in_a_process(limit, "sweep", scenario, "-o", out, "--jobs", 1)
    assert (stopped.returncode, stopped.stdout, stopped.stderr.strip().count("\n")) == (1, "", 0)
    assert "File too large" in stopped.stderr
    assert {path: path.read_bytes() for path in out.rglob("*.parquet")} == kept
    assert in_a_process("", "sweep", scenario, "-o", out, "--jobs", 1).returncode == 0
    pd.testing.assert_frame_equal(SweepResult.load(out).points, whole.points)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder in which nobody may write")
def test_a_folder_nobody_may_write(scenario):
    with pytest.raises(InputError, match=r"cannot be written: .*\(got /proc/kvplan\)") as caught:
        sim.sweep(scenario, "/proc/kvplan", jobs=1)
    assert "\n" not in str(caught.value)


def test_a_scenario_edited_while_it_runs_changes_nothing_until_the_next_start(whole, scenario, tmp_path, monkeypatch):
    out, perform, edited = tmp_path / "out", sweeping.perform, SCENARIO.replace("tokens: 100", "tokens: 200")

    def editing(task):
        scenario.write_text(edited)
        return perform(task)

    monkeypatch.setattr(sweeping, "perform", editing)
    pd.testing.assert_frame_equal(sim.sweep(scenario, out, jobs=1).points, whole.points)
    assert scenario.read_text() == edited
    with pytest.raises(InputError, match="another scenario"):
        sim.sweep(scenario, out, jobs=1)
    pd.testing.assert_frame_equal(SweepResult.load(out).points, whole.points)
