"""Does the command line keep its contract: verbs, streams, statuses?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sim.cli import main

SCENARIO = """\
name: small
seed: 3
duration: 10 min
warmup: 0
model: llama-3.1-8b
hardware: dgx-h100
workload:
  agents: coding-agent
  arrivals: {closed: {concurrency: 8}}
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def kvplan(capsys, engine, monkeypatch):
    """Run the command in this process with the stand-in for the engine: status, stdout, stderr."""
    import workloads

    module = ModuleType("sim.engine.simulation")
    module.simulate = engine.fake_simulate
    module.run_length_s = lambda scenario: scenario.duration
    monkeypatch.setitem(sys.modules, "sim.engine.simulation", module)
    monkeypatch.setattr(workloads, "build", lambda config, base: None)

    def call(*arguments):
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        streams = capsys.readouterr()
        return left.value.code, streams.out, streams.err

    return call


def in_a_process(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "sim", *arguments], capture_output=True, text=True, cwd=ROOT,
                          timeout=60, check=False, **options)


def test_help_imports_nothing_heavy():
    code = ("import sys\nfrom sim.cli import main\n"
            "try:\n    main(['--help'])\nexcept SystemExit as left:\n    status = left.code\n"
            "heavy = {'numpy', 'pandas', 'pyarrow', 'pydantic', 'scipy', 'matplotlib', 'pint', 'yaml', 'tqdm'}\n"
            "assert not heavy & set(sys.modules), heavy & set(sys.modules)\nassert status == 0")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    for verb in ("new", "check", "explain", "run", "sweep", "size", "bill", "compare", "hardware", "model", "workload"):
        assert verb in done.stdout


def test_importing_sim_imports_nothing_heavy():
    code = ("import sys, sim\nassert not {'numpy', 'pandas', 'pyarrow', 'pydantic'} & set(sys.modules)\n"
            "assert 'run' in dir(sim)")
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_run_prints_a_summary_and_writes_files(kvplan, scenario, tmp_path):
    status, out, err = kvplan("run", scenario, "-o", tmp_path / "out", "--set", "seed=4", "--replications", 2)
    assert status == 0
    assert "small, llama-3.1-8b on 1 x dgx-h100" in out
    assert "TTFT, resumed" in out
    assert str(tmp_path / "out") in err
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["checks"]["replications"] == 2
    assert "seed: 4" in (tmp_path / "out" / "run.yaml").read_text()
    status, out, _ = kvplan("run", tmp_path / "out", "--json")
    assert status == 0
    assert json.loads(out)["turns"] == summary["turns"]


def test_run_refuses_a_taken_folder_before_it_works(kvplan, scenario, tmp_path):
    kvplan("run", scenario, "-o", tmp_path / "out")
    status, out, err = kvplan("run", scenario, "-o", tmp_path / "out")
    assert (status, out) == (2, "")
    assert "--force" in err
    assert kvplan("run", scenario, "-o", tmp_path / "out", "--force")[0] == 0


def test_vary_prints_one_table(kvplan, scenario, tmp_path):
    status, out, _ = kvplan("run", scenario, "--vary", "retention.policy=keep,drop,release", "-o", tmp_path / "runs")
    assert status == 0
    for word in ("keep", "drop", "release", "retention.policy varied", "TTFT, resumed, p95"):
        assert word in out
    folders = [tmp_path / "runs" / name for name in ("keep", "drop", "release")]
    status, out, _ = kvplan("compare", *folders)
    assert status == 0
    assert "drop against keep, same agents" in out
    status, out, _ = kvplan("compare", *folders, "--json")
    assert set(json.loads(out)["summaries"]) == {"keep", "drop", "release"}
    status, _, err = kvplan("run", scenario, "--vary", "retention.policy=keep,nonsense")
    assert status == 2
    assert "nonsense" in err


@pytest.mark.parametrize(("arguments", "said"), [
    (["bogus"], "bogus"), (["run"], "SCENARIO"), (["run", "no.yaml"], "no.yaml"), (["run", "x", "--bogus"], "--bogus"),
    (["run", "x.yaml", "--seed", "q"], "q"), (["check"], "SCENARIO"), (["compare", "x"], "two folders"),
    (["compare", "x", "y"], "not a folder of a run"), (["hardware", "show", "dgx-h10"], "dgx-h100"),
    (["model", "show", "nope"], "unknown model"), (["new", "x", "--template", "nope"], "nope"),
])
def test_bad_input_is_status_2_and_one_line(kvplan, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    status, out, err = kvplan(*arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_bad_field_is_named_with_its_line(kvplan, scenario):
    scenario.write_text(SCENARIO.replace("duration: 10 min", "duration: soon"))
    status, out, err = kvplan("run", scenario)
    assert (status, out) == (2, "")
    assert err.startswith(f"{scenario}:3: duration: ")
    assert "(got soon)" in err


def test_check_prints_the_resolved_scenario(kvplan, scenario, tmp_path):
    status, out, _ = kvplan("check", scenario, "--set", "engine.block_size=32")
    assert status == 0
    assert "block_size: 32" in out
    (tmp_path / "again.yaml").write_text(out)
    assert kvplan("check", tmp_path / "again.yaml")[1] == out
    status, out, _ = kvplan("check", "--schema")
    assert "properties" in json.loads(out)
    status, _, err = kvplan("check", scenario, "--set", "model=llama-3.1-405b", "--set", "hardware=gh200-nvl2")
    assert status == 2
    assert err


def test_new_writes_a_scenario_that_checks(kvplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, _ = kvplan("new", "mine")
    assert (status, out.count("\n")) == (0, 1)
    assert "wrote mine.yaml" in out
    assert "kvplan run mine.yaml" in out
    assert kvplan("check", "mine.yaml")[0] == 0
    assert kvplan("new", "mine")[0] == 2
    assert kvplan("new", "mine", "--force")[0] == 0


@pytest.mark.parametrize("arguments", [["hardware", "list"], ["hardware", "show", "dgx-h100"],
                                       ["hardware", "show", "h100-sxm-80gb"], ["model", "list"],
                                       ["model", "show", "llama-3.1-70b"], ["workload", "list"], ["version"],
                                       ["--version"]])
def test_catalogues(kvplan, arguments):
    status, out, err = kvplan(*arguments)
    assert (status, err) == (0, "")
    assert out
    assert "…" not in out


def test_a_model_is_imported(kvplan, tmp_path):
    config = ROOT / "tests" / "unit" / "configs" / "llama-3.1-8b.json"
    status, out, _ = kvplan("model", "import", config)
    assert status == 0
    assert "n_layers: 32" in out
    assert kvplan("model", "import", tmp_path / "none.json")[0] == 2


def test_an_interrupt_is_130_and_a_full_disk_is_1(kvplan, scenario, tmp_path, monkeypatch):
    from sim.report import runs
    from sim.sweep import store

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "run", interrupted)
    assert kvplan("run", scenario)[::2] == (130, "kvplan: interrupted\n")

    def full(*_, **__):
        raise store.OutputError("cannot write to out: No space left on device")

    monkeypatch.setattr(runs, "run", full)
    assert kvplan("run", scenario)[::2] == (1, "kvplan: cannot write to out: No space left on device\n")


def test_progress_is_drawn_on_a_terminal_only(monkeypatch, capsys):
    import io

    from sim.report import progress

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    with progress.bar("quiet") as told:
        assert told is None
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "DELAY_S", 0.0)
    with progress.bar("loud") as told:
        told(300.0, 7, 600.0)
        told(600.0, 9, 600.0)
    with progress.bar("trace") as told:
        told(300.0, 7, None)
    assert "loud" in terminal.getvalue()
    assert capsys.readouterr().out == ""


def test_a_reader_that_leaves_is_no_error():
    with subprocess.Popen([sys.executable, "-m", "sim", "check", "--schema"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(30)


def test_python_dash_m_sim_is_the_command():
    assert in_a_process("version").stdout.count(".") == 2
    assert in_a_process("nonsense").returncode == 2
