"""A sweep of six small points that takes seconds: its text, its file, and what comes of it."""

from __future__ import annotations

import pytest

import sim

SCENARIO = """\
name: tiny
seed: 3
duration: 5 s
warmup: 0
model: llama-3.1-8b
hardware: dgx-h100
replicas: 1
retention: keep
workload:
  agents:
    prompt: [{name: p, tokens: 100, shared: all}]
    turns: 2
    output: 8
    observation: 10
    tools: {t: {wait: 0.2 s}}
  arrivals: {closed: {concurrency: 2}}
slo: {ttft: {p95: 1 s}}
sweep:
  grid:
    workload.arrivals.closed.concurrency: [1, 2, 3]
    retention.policy: [keep, release]
  replications: 2
"""
CONCURRENCY = "workload.arrivals.closed.concurrency"


@pytest.fixture
def scenario(tmp_path):
    """The file of `SCENARIO`, in a folder of the test's own."""
    path = tmp_path / "tiny.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The sweep of `SCENARIO`, run in memory."""
    path = tmp_path_factory.mktemp("whole") / "tiny.yaml"
    path.write_text(SCENARIO)
    return sim.sweep(path, jobs=1)
