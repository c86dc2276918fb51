"""Does every damaged file of a run's folder give one line that names it, and exit 2, whatever is asked of it?"""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest

import sim
from sim.cli import main
from sim.sweep import store

RUN = {"seed": 3, "duration": 60, "warmup": 5, "model": "llama-3.1-8b", "hardware": "dgx-h100", "replicas": 1,
       "engine": {"pool": "12 GiB"}, "tiers": {"dram": {"capacity": "8 GiB"}}, "retention": "offload",
       "workload": {"agents": "coding-agent", "arrivals": {"closed": {"concurrency": 4}}}}
#: File -> verbs that read it.
READ_BY = {"run.yaml": ("run", "compare", "report"), "summary.json": ("compare", "report", "trace", "bill"),
           "steps.json": ("report",), "turns.parquet": ("compare", "report", "trace", "bill"),
           "trajectories.parquet": ("compare", "trace"), "pauses.parquet": ("report", "trace"),
           "moves.parquet": ("report", "trace"), "timeline.parquet": ("report", "trace")}


def _other_columns(path):
    if path.suffix == ".parquet":
        pd.DataFrame({"a": [1]}).to_parquet(path)
    else:
        path.write_text('{"a": 1}\n')


def _other_types(path):
    if path.suffix == ".parquet":
        pd.read_parquet(path).astype(str).to_parquet(path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(dict.fromkeys(json.loads(path.read_text()), "x")))
    else:
        path.write_text("seed: x\n")


DAMAGES = {"truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
           "garbage": lambda path: path.write_bytes(b"\x00\xff nonsense" * 30),
           "empty": lambda path: path.write_bytes(b""),
           "missing": lambda path: path.unlink(), "a folder": lambda path: (path.unlink(), path.mkdir()),
           "other columns": _other_columns, "other types": _other_types}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    sim.run(RUN, folder)
    return folder


def asked(verb, folder, whole, out):
    """Return the command line that asks `verb` of a folder."""
    more = {"compare": [str(whole)], "report": ["-o", str(out / "r.html")], "trace": ["-o", str(out / "t.json")]}
    return [verb, str(folder), *more.get(verb, [])]


def test_every_file_is_read_by_a_verb():
    assert set(store.FILES) - set(READ_BY) == {"address_space.parquet"}  # Python only: Result.address_space


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", READ_BY)
def test_a_damaged_file_is_one_line(whole, tmp_path, capsys, name, damage):
    broken = tmp_path / "broken"
    shutil.copytree(whole, broken)
    DAMAGES[damage](broken / name)
    for verb in READ_BY[name]:
        with pytest.raises(SystemExit) as ended:
            main(asked(verb, broken, whole, tmp_path))
        status, said = ended.value.code, capsys.readouterr().err.strip()
        if (verb, name, damage) == ("compare", "run.yaml", "truncated"):
            continue  # what `compare` asks of it, the agents, may be whole in the first half
        assert status == 2, (verb, said)
        assert len(said.splitlines()) == 1, (verb, said)
        assert name in said or (name, damage) == ("summary.json", "missing"), (verb, said)
    assert not list(tmp_path.glob("*.html")) + list(tmp_path.glob("*.json"))


def test_the_address_space_is_checked_too(whole, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(whole, broken)
    _other_columns(broken / "address_space.parquet")
    with pytest.raises(sim.InputError, match=r"address_space\.parquet: has no column replication"):
        _ = sim.Result.load(broken).address_space
