"""Ctrl-C in a sweep with workers: one line, exit status 130, and what has finished stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

SCENARIO = """
name: interrupted
duration: 300
warmup: 0
model: llama-3.1-8b
hardware: dgx-h100
workload: {agents: coding-agent, arrivals: {closed: {concurrency: 4}}}
sweep: {grid: {seed: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}}
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be held back here")
def test_ctrl_c_leaves_no_traceback_and_loses_nothing(tmp_path):
    (tmp_path / "s.yaml").write_text(SCENARIO)
    sweep = subprocess.Popen([sys.executable, "-m", "sim", "sweep", "s.yaml", "-o", "out", "--jobs", "2"], cwd=tmp_path,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    runs = tmp_path / "out" / "runs"
    end_s = time.monotonic() + 120.0
    while not (runs.exists() and any(not path.name.startswith(".") for path in runs.iterdir())):
        assert time.monotonic() < end_s
        assert sweep.poll() is None
        time.sleep(0.02)
    os.killpg(sweep.pid, signal.SIGINT)
    _, said = sweep.communicate(timeout=60)
    assert sweep.returncode == 130
    assert said.strip().splitlines()[-1] == "kvplan: interrupted"
    assert "Traceback" not in said
    kept = {path.name for path in runs.iterdir() if not path.name.startswith(".")}
    again = subprocess.run([sys.executable, "-m", "sim", "sweep", "s.yaml", "-o", "out", "--jobs", "2"], cwd=tmp_path,
                           capture_output=True, text=True, timeout=120, check=True)
    assert "Traceback" not in again.stderr
    assert kept <= {path.name for path in runs.iterdir()}
    assert (tmp_path / "out" / "points.parquet").exists()
