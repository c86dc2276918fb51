"""What `kvplan new` writes: does it run, long enough for its agents, and say what there is to choose from?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

import sim
from sim.scenario import new_text, template_names
from sim.scenario.model import Engine
from sim.scenario.new import next_step


def written(tmp_path: Path, template: str, **sets: str):
    path = tmp_path / f"{template}.yaml"
    path.write_text(new_text(template, template))
    return sim.load(path, [f"{name.replace('__', '.')}={value}" for name, value in sets.items()])


@pytest.mark.parametrize("template", ["coding-agents", "minimal"])
def test_a_run_is_longer_than_its_agents(tmp_path, template):
    summary = sim.run(written(tmp_path, template, replications="1")).summary
    assert summary["checks"]["stable"]
    assert summary["checks"]["span_s"] > 2 * summary["trajectory_s"]["p50"]
    assert summary["trajectories"]["finished"] > summary["concurrency"]["max"]


@pytest.mark.parametrize("template", [name for name in template_names() if name != "minimal"])
def test_the_comments_name_all_there_is(template):
    """A kind that is added, or dropped, is added or dropped there."""
    from sim.policies import prediction, retention, routing

    def names(union, field):
        members = get_args(get_args(union)[0])
        return {member.model_fields[field].default for member in members}

    text = new_text("x", template)
    said = set(re.findall(r"\w+", text))
    assert names(retention.Retention, "policy") <= said
    assert names(routing.Routing, "policy") <= said
    presets = set(get_args(get_args(Engine.model_fields["preset"].annotation)[0]))
    assert "vllm" in presets
    assert presets <= said
    if "predictor" in said:
        assert names(prediction.Prediction, "kind") <= said


@pytest.mark.parametrize("template", [name for name in template_names() if name != "minimal"])
def test_the_policies_said_to_use_host_memory_do(tmp_path, template):
    """The comment on host memory names the policies that write to it, and no others."""
    from sim.policies import retention
    from sim.scenario.tier_use import unwritten

    text = re.sub(r"\s*\n\s*#\s*", " ", new_text("x", template))
    listed = set(re.findall(r"\w+", re.search(r"used only by retention (.*?) or with `write", text)[1])) - {"and", "or"}
    every = {member.model_fields["policy"].default for member in get_args(get_args(retention.Retention)[0])}
    users = {policy for policy in every
             if "dram" not in unwritten(written(tmp_path, template, retention__policy=policy))}
    assert listed == users
    for write in ("on_evict", "on_compute"):
        assert "dram" not in unwritten(written(tmp_path, template, retention__policy="keep", tiers__dram__write=write))


@pytest.mark.parametrize("template", template_names())
def test_what_to_do_next_is_one_line(template):
    said = next_step(Path("mine.yaml"), template)
    assert said.startswith("wrote mine.yaml (")
    assert said.endswith("kvplan run mine.yaml" if template == "replay" else "then kvplan run mine.yaml (simulated)")
    assert "\n" not in said
    assert "kvplan run 'my own.yaml'" in next_step(Path("my own.yaml"), template)
