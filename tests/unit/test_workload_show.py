"""Does `kvplan workload show` tell and draw what an agent does?"""

from pathlib import Path

import pytest

import workloads
from sim.cli import main

TRACES = Path(__file__).parents[1] / "data" / "traces"


def run(*arguments):
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return left.value.code


@pytest.mark.parametrize("name", [*workloads.library_names(), "sessions", "kvplan.jsonl", "mooncake.jsonl"])
def test_text_and_picture(name, tmp_path, capsys):
    source = name if name in workloads.library_names() else TRACES / name
    picture = tmp_path / "x.png"
    assert run("workload", "show", source, "--trajectories", 5, "-o", picture) == 0
    told = capsys.readouterr().out
    assert "longest prompt" in told
    if name in workloads.library_names():
        assert "Sources" in told
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000


def test_the_spec_itself(capsys):
    assert run("workload", "show", "rag-chat", "--spec") == 0
    assert "prompt:" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "says"), [
    (["nope"], "no agent of the library"), (["chat", "-o", "x.nope"], "no picture"),
    (["chat", "-o", "/nowhere/x.png"], "cannot be written"), (["chat", "--trajectories", "0"], "at least 1"),
    (["chatt", "--spec"], "no agent of the library"),
])
def test_what_is_wrong_is_one_line(arguments, says, capsys):
    assert run("workload", "show", *arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
