"""Does every Python snippet of the README and the docs run as it is written?

Each runs alone, in a folder where the scenarios it names lie in small copies: fewer agents, seconds instead of hours.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import sim

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SNIPPETS = [pytest.param(text, id=f"{page.stem}-{number}") for page in PAGES for number, text in enumerate(
    re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))]

AGENT = {"prompt": [{"name": "own", "tokens": 500}], "turns": 3, "output": 100, "observation": 30,
         "tools": {"tool": {"wait": {"exponential": {"mean": "2 s"}}}}}
#: One turn at a time: a handful of agents is all that it serves in time, so that searches end soon.
OWN = {"model": "llama-3.1-70b", "hardware": "dgx-h100", "parallelism": {"tp": 8}, "duration": "30 s", "warmup": 0,
       "engine": {"schedule": {"max_seqs": 1}}, "retention": "keep", "slo": {"ttft_resumed": {"p95": 1.0}},
       "workload": {"agents": AGENT, "arrivals": {"closed": {"concurrency": 2}}},
       "sweep": {"grid": {"engine.block_size": [16, 32]}, "replications": 2}}


def small(path: Path) -> dict:
    """A scenario of the repository with its model and policies, but few small agents and little time."""
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    tree |= {"duration": "20 s", "warmup": 0, "replications": 1,
             "workload": {"agents": AGENT, "arrivals": {"closed": {"concurrency": 2}}}}
    for axes in tree.get("sweep", {}).values():
        axes.update({name: values[:2] for name, values in axes.items()})
    return tree


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "scenarios").mkdir()
    for path in sorted((ROOT / "scenarios").glob("*.yaml")):
        if path.stem in {name for snippet in SNIPPETS for name in re.findall(r"scenarios/(\w+)\.yaml",
                                                                              snippet.values[0])}:
            (tmp_path / "scenarios" / path.name).write_text(yaml.safe_dump(small(path)))
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump(OWN))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    from sim.sweep import pool

    each = pool.each
    monkeypatch.setattr(pool, "each", lambda work, tasks, jobs=None, backend="loky": each(work, tasks, 1))
    return tmp_path


def test_there_are_snippets():
    assert len(SNIPPETS) >= 6


@pytest.mark.parametrize("text", SNIPPETS)
def test_a_snippet_runs(text, folder):
    import matplotlib.pyplot as plt

    exec(compile(text, "snippet", "exec"), {"__name__": "__main__"})
    plt.close("all")


def test_bills_of_a_result_are_those_of_the_command(folder, capsys):
    import json

    from sim.cli import main

    result = sim.run("scenario.yaml", "out")
    with pytest.raises(SystemExit):
        main(["bill", "out", "--price", "claude-sonnet-4.5", "--ttl", "1 h", "--json"])
    told = json.loads(capsys.readouterr().out)
    for read in (result, sim.Result.load("out")):
        frame = read.bill("claude-sonnet-4.5", ttl="1 h")
        assert list(frame["name"]) == ["self-hosted", "claude-sonnet-4.5"]
        assert list(frame["usd"]) == [row["usd"] for row in told]
    assert frame["ttl_s"].iloc[1] == 3600
    assert len(result.bill()) > len(frame)


@pytest.mark.parametrize(("prices", "ttl", "says"), [
    (("gpt-99",), None, "choose from"), (("claude-sonnet-4.5",), "7 min", "written for 300 s, 3600 s"),
    ((), "soon", "ttl: "), (("gpt-5",), -1, "above 0")])
def test_a_wrong_bill_is_one_line(folder, prices, ttl, says):
    result = sim.run("scenario.yaml")
    with pytest.raises(sim.InputError, match=says) as raised:
        result.bill(*prices, ttl=ttl)
    assert "\n" not in str(raised.value)
