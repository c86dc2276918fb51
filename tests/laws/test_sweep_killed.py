"""A sweep killed at random times resumes to the identical table."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCENARIO = """\
seed: 3
duration: 2 s
warmup: 0
model: llama-3.1-8b
hardware: dgx-h100
replicas: 1
workload:
  agents: {{prompt: [{{name: p, tokens: 100}}], turns: 2, output: 4, observation: 10, tools: {{t: {{wait: 0.2 s}}}}}}
  arrivals: {{closed: {{concurrency: 2}}}}
sweep:
  grid:
    seed: [{seeds}]
    workload.arrivals.closed.concurrency: [1, 2, 3, 4]
"""


def command(scenario: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "sim", "sweep", str(scenario), "-o", str(out), "--jobs", "2", "--json"]


def finished(out: Path) -> int:
    return len(list(out.glob("runs/*/row.parquet")))


@pytest.mark.parametrize(("points", "kills"), [
    (48, 2), pytest.param(200, 5, marks=pytest.mark.study)])
def test_killed_sweeps_resume_to_the_identical_table(tmp_path, points, kills):
    scenario = tmp_path / "tiny.yaml"
    scenario.write_text(SCENARIO.format(seeds=", ".join(map(str, range(points // 4)))))
    rng, out = random.Random(11), tmp_path / "killed"
    before = 0
    for kill in range(kills):
        process = subprocess.Popen(command(scenario, out), cwd=ROOT, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        goal = min(before + rng.randint(1, points // (kills + 1)), points - 1)
        deadline = time.monotonic() + 120
        while finished(out) < goal and process.poll() is None and time.monotonic() < deadline:
            time.sleep(rng.random() * 0.02)
        assert process.poll() is None, "it ended before it could be killed"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert before <= goal <= finished(out), kill
        before = finished(out)
    assert before < points
    rows = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/row.parquet")}
    subprocess.run(command(scenario, out), cwd=ROOT, check=True, capture_output=True)
    assert all(path.stat().st_mtime_ns == when for path, when in rows.items())
    subprocess.run(command(scenario, tmp_path / "whole"), cwd=ROOT, check=True, capture_output=True)
    assert finished(out) == points
    assert (out / "points.parquet").read_bytes() == (tmp_path / "whole" / "points.parquet").read_bytes()
