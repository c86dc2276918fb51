"""Do searches, envelopes and comparisons say plainly what they cannot give?"""

from __future__ import annotations

import pytest

import sim
from sim.cli import main
from sim.errors import InputError

AGENT = {"prompt": [{"name": "p", "tokens": 100}], "turns": 1, "output": 50}
BASE = {"duration": "20 s", "warmup": 0, "model": "llama-3.1-8b", "hardware": "dgx-h100", "retention": "keep",
        "workload": {"agents": AGENT, "arrivals": {"poisson": {"rate": 1.0}}}, "slo": {"ttft": {"p95": "2 s"}}}


def test_replicas_when_none_would_do(tmp_path, capsys):
    from sim.scenario import dump

    path = tmp_path / "never.yaml"
    path.write_text(dump(sim.load(BASE | {"slo": {"ttft": {"p95": 1e-9}}})))  # no step is that short
    with pytest.raises(SystemExit) as left:
        main(["size", str(path), "--find", "replicas", "--no-relief", "--jobs", "1"])
    said = " ".join(capsys.readouterr().out.split())
    assert left.value.code == 0
    assert "no number of replicas tried meets the objectives: ttft.p95" in said
    assert "no load tried" not in said
    assert "no number of replicas tried surely does" in said
    assert "surely do binds" not in said
    assert "None" not in said
    assert "nothing tried" not in said


def test_a_rate_when_none_would_do(tmp_path, capsys):
    """The search ends before the rate is so low that nothing arrives."""
    from sim.scenario import dump

    path = tmp_path / "never.yaml"
    long = {"agents": AGENT | {"prompt": [{"name": "p", "tokens": 30000}]}, "arrivals": {"poisson": {"rate": 1.0}}}
    path.write_text(dump(sim.load(BASE | {"replicas": 1, "workload": long, "slo": {"ttft": {"p95": 1e-9}}})))
    with pytest.raises(SystemExit) as left:
        main(["size", str(path), "--find", "rate", "--jobs", "1"])
    assert left.value.code == 0
    assert "no load tried meets the objectives: ttft.p95" in " ".join(capsys.readouterr().out.split())


def test_a_front_needs_simulated_costs():
    frame = sim.envelope(BASE, contexts=[8192], sharing=[0], waits=[2], hardware=["dgx-h100"], simulate=False, jobs=1)
    with pytest.raises(InputError, match=r"no trajectories_per_h, usd_per_trajectory.*simulate=True"):
        sim.pareto(frame)


def test_comparing_runs_whose_tables_a_sweep_did_not_keep(tmp_path, capsys):
    from sim.sweep.sweeping import sweep

    sweep(BASE | {"duration": "5 s"}, tmp_path / "sw", axes={"grid": {"retention.policy": ["keep", "release"]}},
          jobs=1)
    folders = sorted(str(path) for path in (tmp_path / "sw" / "runs").iterdir())
    with pytest.raises(SystemExit) as left:
        main(["compare", *folders])
    assert left.value.code == 2
    assert "--keep" in capsys.readouterr().err
