"""Does a killed benchmark go on where it stopped, and does it run with torch, numpy and PyYAML alone?"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from calibrate import bench, blocks, measure
from calibrate.clock import Clock
from calibrate.plan import TINY, TINY_SHARD, points
from calibrate.read_samples import read
from calibrate.samples import SampleFile, key_of, lines

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "calibrate.bench", "--model", "llama-3.1-8b", "--device", "cpu"]

#: Everything but the three libraries a GPU box has, and what those need, is made unimportable.
ALONE = """
import importlib.metadata as metadata
import re
import sys

def plain(name):
    return re.sub("[-_.]+", "-", name).lower()

def needed(name, found):
    if plain(name) not in found:
        try:
            asked = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            return found
        found.add(plain(name))
        for line in asked:
            if "extra ==" not in line:
                needed(re.match(r"[A-Za-z0-9._-]+", line).group(), found)
    return found

there = set()
for name in ("torch", "numpy", "PyYAML"):
    needed(name, there)
tops = metadata.packages_distributions()
gone = {top for top, owners in tops.items() if not there & {plain(owner) for owner in owners}}
gone |= {"sim", "workloads", "hardware_profiles"}
assert {"pandas", "scipy", "pydantic", "simpy"} <= gone and not {"torch", "numpy", "yaml"} & gone

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in gone:
            raise ImportError(name + " is not on this box")
sys.meta_path.insert(0, Refuse())
from calibrate.bench import main
raise SystemExit(main(sys.argv[1:]))
"""


def start(output: Path, *more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([*COMMAND, "--budget", "60s", "-o", str(output), *more], cwd=ROOT, text=True,
                            stderr=subprocess.DEVNULL)


def samples(path: Path) -> list[dict]:
    return [line for line in lines(path) if "key" in line]


def test_a_killed_benchmark_neither_repeats_nor_loses_points(tmp_path):
    output = tmp_path / "samples.jsonl"
    running = start(output)
    limit = time.monotonic() + 60
    while time.monotonic() < limit and (not output.exists() or len(output.read_bytes().splitlines()) < 8):
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = [line["key"] for line in samples(output)]
    assert len(before) >= 5
    with output.open("a") as file:
        file.write('{"key": "torn')
    assert subprocess.run([*COMMAND, "--budget", "90s", "-o", str(output)], cwd=ROOT, check=False,
                          capture_output=True).returncode == 0
    after = [line["key"] for line in samples(output)]
    assert after[:len(before)] == before
    assert len(set(after)) == len(after)
    kernels = {json.loads(key)[1]["kernel"] for key in after}
    assert kernels >= {"linear", "decode_attention", "prefill_attention", "swap", "copy_blocks", "all_reduce"}
    wanted = {json.dumps(point, sort_keys=True) for point in points(TINY_SHARD, TINY)}
    measured = {json.dumps(json.loads(key)[1], sort_keys=True) for key in after}
    assert wanted <= measured


def test_it_runs_where_only_torch_numpy_and_yaml_are(tmp_path):
    output = tmp_path / "samples.jsonl"
    done = subprocess.run([sys.executable, "-c", ALONE, "--model", "llama-3.1-8b", "--tp", "1", "--device", "cpu",
                           "--points", "6", "--budget", "60s", "-o", str(output)], cwd=ROOT, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, *rest = list(lines(output))
    assert first["device"] == "cpu"
    assert first["planning"] is False
    assert "not for planning" in first["note"]
    assert len(rest) == 6
    assert all("us" in line or "skipped" in line for line in rest)
    assert "6 measured now" in done.stderr


def test_the_session_script_measures_and_reports_from_any_folder(tmp_path):
    done = subprocess.run(["sh", str(ROOT / "calibrate" / "gpu_session.sh"), "llama-3.1-8b", "1", "s.jsonl"],
                          cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
                          env={**os.environ, "PYTHON": sys.executable, "SECONDS_TO_SPEND": "9"})
    assert done.returncode == 0, done.stderr
    assert len(samples(tmp_path / "s.jsonl")) > 5
    assert "of a copy" in done.stdout


def test_a_gpu_that_is_unusable_ends_the_process_and_the_next_goes_on_behind_the_point(tmp_path, monkeypatch):
    from calibrate import measure

    real, path = measure.Bench.run, tmp_path / "s.jsonl"
    asked = []

    def run(self, point, backend):
        asked.append(key_of(point, backend))
        if len(asked) == 3:
            module = next(module for module in self.backends[point["kernel"]] if backend == module.NAME)
            monkeypatch.setattr(module, "prepare", broken)
        return real(self, point, backend)

    def broken(problem):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be ...")

    monkeypatch.setattr(measure.Bench, "run", run)
    assert bench.run("llama-3.1-8b", 1, 60.0, path, device="cpu") == bench.BROKEN
    monkeypatch.undo()
    before = samples(path)
    assert [line["key"] for line in before] == asked
    assert len(before) == 3
    assert "illegal memory access" in before[-1]["skipped"]
    assert bench.run("llama-3.1-8b", 1, 60.0, path, device="cpu", most=4) == 0
    after = samples(path)
    assert len(after) == 7
    assert len({line["key"] for line in after}) == 7
    assert "broken" not in json.dumps(after)


def test_the_budget_ends_it(tmp_path):
    assert bench.run("llama-3.1-8b", 1, 0.0, tmp_path / "s.jsonl", device="cpu") == 0
    assert not samples(tmp_path / "s.jsonl")


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("10min", 600.0), ("1.5 h", 5400.0), ("30", 30.0)])
def test_a_budget_is_a_time(text, seconds):
    assert bench.seconds(text) == seconds


def test_a_bad_budget_or_model_is_bad_input(tmp_path, capsys):
    assert bench.main(["--model", "llama-3.1-8b", "--budget", "soon", "-o", str(tmp_path / "s")]) == 2
    assert bench.main(["--model", "nobody", "-o", str(tmp_path / "s")]) == 2
    assert "expected a time" in capsys.readouterr().err


def test_a_torn_line_is_cut_off_and_what_was_done_is_known(tmp_path):
    path = tmp_path / "s.jsonl"
    first = SampleFile(path)
    first.write({"key": key_of({"kernel": "linear"}, "torch"), "us": 1.0})
    first.close()
    with path.open("a") as file:
        file.write('{"key": "x", "us"')
    again = SampleFile(path)
    assert again.done == {key_of({"kernel": "linear"}, "torch")}
    again.write({"key": "y"})
    again.close()
    assert [line["key"] for line in lines(path)][1] == "y"


def test_block_sizes_measured_here_become_a_table(tmp_path):
    wanted = [point for point in points(TINY_SHARD, TINY) if point["kernel"] == "decode_attention"]
    other = [point for point in wanted if point["block"] != TINY.blocks[0]]
    assert all({**point, "block": TINY.blocks[0]} in wanted for point in other), "each has one to be compared with"
    kit = measure.Bench(torch.device("cpu"), Clock(torch.device("cpu"), most_s=0.02))
    path = tmp_path / "samples.jsonl"
    file = SampleFile(path)
    file.write(measure.provenance(torch.device("cpu"), "test"))
    for point in wanted:
        file.write({"key": key_of(point, "gather+sdpa"), "backend": "gather+sdpa", "point": point,
                    **kit.run(point, "gather+sdpa")})
    file.close()
    found = blocks.ratios(read(path))
    assert len(found) == len(other)
    table = blocks.fit(found)
    assert table["blocks"] == sorted(TINY.blocks)
    assert 0.0 < table["efficiency"][0] <= table["efficiency"][1] == 1.0
    assert len(list(blocks.held_out(found))) >= len(other)
