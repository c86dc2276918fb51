"""Is a place that cannot take results refused in one line before any work, and is nothing half written?"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sim.cli import main
from sim.errors import InputError
from sim.writing import check_place, whole_file

SCENARIO = """model: llama-3.1-8b
hardware: dgx-h100
duration: 5
workload:
  agents: {turns: 2, tools: {bash: {wait: 1 s}}}
  arrivals: {closed: {concurrency: 1}}
sweep: {grid: {engine.block_size: [16, 32]}}
"""


@pytest.fixture
def kvplan(tmp_path, capsys):
    (tmp_path / "a.yaml").write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "plain").write_text("mine", encoding="utf-8")

    def run(*arguments):
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return left.value.code, said.out, said.err
    return run


@pytest.fixture
def no_work(monkeypatch):
    """Fail where a verb starts to work."""
    from sim.engine import simulation

    def working(*_, **__):
        raise AssertionError("work was done before the place was looked at")

    monkeypatch.setattr(simulation, "simulate", working)


PLACES = ["plain/x", "plain/x/y", "/proc/x", "n" * 300, "gone/../plain/x"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("verb", [
    ["run", "a.yaml", "-o"], ["sweep", "a.yaml", "--jobs", "1", "-o"],
    ["workload", "convert", "chat", "--trajectories", "3", "-o"], ["workload", "show", "chat", "-o"],
    ["workload", "fit", "t.jsonl", "-o"],
], ids=lambda verb: " ".join(verb[:2]))
def test_a_place_that_takes_nothing_is_bad_input(verb, place, kvplan, no_work, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jsonl").write_text("", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    status, out, err = kvplan(*verb, place)
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert "cannot be written" in err
    assert place[:40] in err
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "plain").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("verb", ["report", "trace"])
@pytest.mark.parametrize("place", [*PLACES, "gone/x"])
def test_nor_do_reports_and_traces_start(verb, place, kvplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert kvplan("run", "a.yaml", "-o", "out")[0] == 0
    status, _, err = kvplan(verb, "out", "-o", place)
    assert (status, err.count("\n")) == (2, 1), err
    assert "--output: cannot be written" in err


@pytest.mark.parametrize("name", ["plain/x", "/proc/x", "gone/x", "n" * 300])
def test_new_names_a_place_that_takes_nothing(name, kvplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = kvplan("new", name)
    assert (status, err.count("\n")) == (2, 1), err


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_read_only_folder_is_bad_input(kvplan, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    status, _, err = kvplan("run", tmp_path / "a.yaml", "-o", tmp_path / "locked" / "out")
    assert status == 2
    assert "Permission denied" in err


@pytest.mark.parametrize(("number", "kind"), [(errno.EROFS, InputError), (errno.EACCES, InputError),
                                              (errno.ENOSPC, OSError), (errno.EIO, OSError)])
def test_a_path_at_fault_is_told_from_a_full_disk(number, kind, tmp_path, monkeypatch):
    def refused(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(kind) as caught:
        check_place(tmp_path / "out", folder=True)
    assert os.strerror(number) in str(caught.value)


def test_a_place_that_will_do_is_left_as_it_was(tmp_path):
    check_place(tmp_path / "a" / "b", folder=True, make_parents=True)
    check_place(tmp_path / "a.json")
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="is a folder"):
        check_place(tmp_path)
    with pytest.raises(InputError, match="its folder does not exist"):
        check_place(tmp_path / "a" / "b")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")])
def test_a_file_is_whole_or_as_it_was(stop, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("before", encoding="utf-8")

    def write():
        with whole_file(path) as partial:
            partial.write_text("half", encoding="utf-8")
            raise stop

    with pytest.raises((KeyboardInterrupt, OSError)):
        write()
    assert [(each.name, each.read_text(encoding="utf-8")) for each in tmp_path.iterdir()] == [("a.txt", "before")]


def test_a_fit_does_not_replace_what_it_reads(kvplan, tmp_path):
    trace = tmp_path / "t.jsonl"
    assert kvplan("workload", "convert", "chat", "--trajectories", 3, "-o", trace)[0] == 0
    before = Path(trace).read_bytes()
    assert kvplan("workload", "fit", trace, "-o", trace, "--force")[0] == 2
    assert kvplan("workload", "fit", trace, "-o", tmp_path / "a.yaml", "--picture", trace, "--force")[0] == 2
    assert kvplan("workload", "fit", trace, "-o", tmp_path / "a.png")[0] == 2
    assert trace.read_bytes() == before
