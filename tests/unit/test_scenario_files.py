"""Do the files a scenario names count from its folder, and do overrides replace agents of another kind?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sim.errors import InputError
from sim.scenario import dump, load
from sim.sweep.points import plan
from sim.timing import measured_profile

HEAD = "model: llama-3.1-8b\nhardware: dgx-h100\n"
MIX = "workload.agents={mix: [{agents: chat}, {weight: 2, agents: coding-agent}]}"


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of files, beside the working directory, which holds others of the same names."""
    folder, here = tmp_path / "there", tmp_path / "here"
    for place, turns in ((folder, 5), (here, 9)):
        place.mkdir()
        (place / "agent.yaml").write_text(f"turns: {turns}\ntools: {{read: {{wait: 3 s}}}}\n")
    shutil.copy(measured_profile.folder() / "h100_sxm" / "vllm-0.24.json", folder / "mine.json")
    monkeypatch.chdir(here)
    return folder


def turns(scenario: object) -> float:
    return scenario.workload.agents.turns.value  # type: ignore[attr-defined, no-any-return]


def test_an_agents_file_counts_from_the_scenarios_folder(there: Path) -> None:
    file = there / "scenario.yaml"
    file.write_text(HEAD + "workload: {agents: agent.yaml}\n")
    assert turns(load(file)) == 5
    assert turns(load(file, ["workload.agents=agent.yaml"])) == 9  # an override counts from here
    assert turns(load(file, ["workload.agents.turns=7"])) == 7
    assert load(file, ["workload.agents.turns=7"]).workload.agents.tools == load(file).workload.agents.tools  # type: ignore[union-attr]
    assert load(dump(load(file))) == load(file)
    file.write_text(HEAD + "workload: {agents: none.yaml}\n")
    with pytest.raises(InputError, match=r"there/none\.yaml.*cannot be read"):
        load(file)


def test_a_measured_profile_counts_from_the_scenarios_folder(there: Path) -> None:
    file = there / "scenario.yaml"
    file.write_text(HEAD + "timing: {measured: mine.json}\nworkload: {agents: chat}\n")
    assert load(file).timing.measured == str(there / "mine.json")
    with pytest.raises(InputError, match=r"here/mine\.json"):
        load(file, ["timing.measured=mine.json"])
    assert load(file, ["timing={measured: h100_sxm/vllm-0.24}"]).timing.measured == "h100_sxm/vllm-0.24"


@pytest.mark.parametrize("sweep", [
    "{grid: {workload.agents: [agent.yaml, chat]}}", "{list: [{workload.agents: agent.yaml}, {workload.agents: chat}]}",
    "{zip: {workload.agents: [agent.yaml, chat], timing.measured: [mine.json, mine.json]}}",
    "{grid: {workload: [{agents: agent.yaml}, {agents: chat}]}}"])
def test_so_do_those_among_the_values_of_a_sweep(there: Path, sweep: str) -> None:
    file = there / "scenario.yaml"
    file.write_text(f"{HEAD}workload: {{agents: coding-agent}}\nsweep: {sweep}\n")
    first, second = (point.scenario for point in plan(file).points)
    assert turns(first) == 5
    assert second.workload.agents == "chat"


@pytest.mark.parametrize("agents", ["{turns: 5}", "coding-agent", "{trace: somewhere}", "agent.yaml"])
def test_a_mix_or_a_trace_takes_the_place_of_other_agents(there: Path, agents: str) -> None:
    file = there / "scenario.yaml"
    file.write_text(HEAD + f"workload: {{agents: {agents}}}\n")
    assert [kind.weight for kind in load(file, [MIX]).workload.agents.mix] == [1, 2]  # type: ignore[union-attr]
    replayed = load(file, [MIX, "workload.agents={trace: /x, limit: 3}"]).workload.agents
    assert (replayed.trace, replayed.limit) == (Path("/x"), 3)  # type: ignore[union-attr]


@pytest.mark.parametrize("agents", ["{turns: 5}", "coding-agent", "{trace: somewhere}", "{mix: [{agents: chat}]}"])
def test_agents_written_whole_take_the_place_of_those_there(agents: str) -> None:
    whole = load(HEAD + f"workload: {{agents: {agents}, arrivals: {{closed: {{concurrency: 3}}}}}}\n",
                 ["workload.agents={turns: 7, tools: {read: {wait: 1 s}}}"])
    alone = load(HEAD + "workload: {agents: {turns: 7, tools: {read: {wait: 1 s}}}}\n").workload.agents
    assert whole.workload.agents == alone
    assert whole.workload.arrivals.closed.concurrency == 3  # type: ignore[union-attr]
    merged = load(HEAD + "workload: {agents: {turns: 5, output: 9}}\n", ["workload={agents: {turns: 7}}"])
    assert (turns(merged), merged.workload.agents.output.value) == (7, 9)  # type: ignore[union-attr]


def test_a_field_of_a_spec_does_not_change_the_kind(there: Path) -> None:
    """Nobody who sets one field of an agent means to throw the trace away: it is an error."""
    for agents in ("{trace: somewhere, limit: 4}", "{mix: [{agents: chat}]}"):
        with pytest.raises(InputError, match=r"workload.agents.turns: unknown field"):
            load(HEAD + f"workload: {{agents: {agents}}}\n", ["workload.agents.turns=5"])
    kept = load(HEAD + "workload: {agents: {trace: /x, limit: 4}}\n", ["workload.agents.trace=/y"]).workload.agents
    assert (kept.trace, kept.limit) == (Path("/y"), 4)  # type: ignore[union-attr]
