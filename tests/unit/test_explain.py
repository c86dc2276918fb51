"""`explain`: the figures agree with the deployment, cover what was promised, and need nothing heavy."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

import sim.scenario
from sim.analytic.break_even import break_even_wait_s
from sim.scenario.deployment import deploy
from sim.scenario.explain import explain

BASE: dict[str, Any] = {"model": "llama-3.1-70b", "hardware": "dgx-h100", "parallelism": {"tp": 8},
                        "workload": {"agents": "coding-agent"}}


def explained(**changes: Any) -> tuple[dict[str, Any], dict[tuple[str, str], Any]]:
    found = explain(sim.scenario.load(BASE | changes))
    return found, {(row.section, row.quantity): row.value for row in found["rows"]}


def test_figures_of_the_chapters_node() -> None:
    found, values = explained(engine={"pool": "525.99476736 GB"})
    assert values["model", "KV of a token"] == 327_680
    assert values["model", "trajectory of 32k"] == pytest.approx(10.737e9, rel=1e-4)
    fits = "trajectories that fit"
    assert [values[fits, f"{size} each"] for size in ("8k", "32k", "128k")] == [195, 48, 12]
    assert values[fits, "32k each, 24k shared by all"] > 3.9 * 48
    assert values["hardware", "ridge point"] == pytest.approx(989.4 / 3.35)
    assert found["binds"] == "KV pool"


def test_pauses_compare_reload_with_recompute_and_give_break_even_waits() -> None:
    _, values = explained(retention={"policy": "break_even", "mu_hbm": 1.0, "mu_dram": 0.5, "stall_allowance": "1 s"},
                          tiers={"dram": {"capacity": "1 TiB", "method": "staged"}})
    reload = values["pauses", "32k: reload from DRAM"]
    assert reload == pytest.approx(10.737e9 / 400e9 + 2 * 10.737e9 / (8 * 3.35e12), rel=1e-3)  # gathered, then copied
    assert values["pauses", "32k: recompute / reload from DRAM"] == values["pauses", "32k: recompute"] / reload
    assert values["pauses", "32k: break-even wait, DRAM"] == pytest.approx(break_even_wait_s(2 * reload, 1, 0.5, 1))
    assert values["trajectories that fit", "32k each, in DRAM"] == 102


def test_tiers_are_looked_at_where_the_scenario_has_them() -> None:
    _, alone = explained(tiers={"dram": {"capacity": "1 TiB"}})
    assert not any("NVMe" in what or "remote" in what for _, what in alone)
    found, values = explained(nodes=2, retention="offload", tiers={
        "dram": {"capacity": "1 TiB"}, "nvme": {"capacity": "2 TB"}, "remote": {"capacity": "10 TB"}})
    assert values["pauses", "32k: break-even wait, NVMe"] > values["pauses", "32k: break-even wait, DRAM"]
    each = 32_768 * 327_680
    fits = {tier: values["trajectories that fit", f"32k each, in {tier}"] for tier in ("DRAM", "NVMe", "remote memory")}
    assert fits == {"DRAM": 2 * 102, "NVMe": 2 * (2 * 10**12 // each), "remote memory": 10**13 // each}
    assert not any("would stay empty" in sentence for sentence in found["assumptions"])


def test_a_tier_that_nothing_writes_to_is_said_before_the_run() -> None:
    found, _ = explained(retention="keep", tiers={"dram": {"capacity": "1 TiB"}})
    (said,) = [sentence for sentence in found["assumptions"] if "would stay empty" in sentence]
    assert "tiers.dram.write to on_evict" in said


def test_the_scenarios_own_agents_are_looked_at() -> None:
    agents = {"prompt": [{"name": "all", "tokens": 50_000}], "turns": 1, "output": 1000}
    found, values = explained(workload={"agents": agents})
    mean = values["this scenario's agents", "context of a turn, mean"]
    assert 50_000 <= mean <= 51_000
    assert values["this scenario's agents", "turns of an agent, mean"] == 1
    (fit,) = [value for (section, what), value in values.items() if section == "trajectories that fit"
              and what.endswith("(these agents) each")]
    assert fit == deploy(sim.scenario.load(BASE)).pool_bytes // (-(-mean // 16) * 16 * 327_680)
    assert "these agents" in found["context"]


def test_agents_that_cannot_be_read_leave_the_rest(tmp_path) -> None:
    found, values = explained(workload={"agents": {"trace": str(tmp_path / "none.jsonl"), "format": "mooncake"}})
    assert any("not looked at" in sentence and "does not exist" in sentence for sentence in found["assumptions"])
    assert values["trajectories that fit", "32k each"] > 0


def test_prices_that_do_not_favour_the_tier_never_break_even() -> None:
    _, values = explained(retention={"policy": "break_even", "mu_hbm": 1.0, "mu_dram": 1.0})
    assert values["pauses", "8k: break-even wait, DRAM"] == math.inf


@pytest.mark.parametrize(("changes", "binds"), [
    ({"engine": {"schedule": {"policy": "chunked", "max_seqs": 4}}}, "max_seqs"),
    ({"engine": {"max_trajectories": 2}}, "max_trajectories"),
    ({"slo": {"itl": {"p99": "10 ms"}}}, "itl objective"),
    ({}, "KV pool"),
])
def test_what_binds_first(changes: dict[str, Any], binds: str) -> None:
    assert explained(**changes)[0]["binds"] == binds


@pytest.mark.parametrize(("model", "hardware", "tp"), [
    ("qwen3-32b", "gh200-nvl2", 2), ("deepseek-v3", "dgx-b200", 8), ("gpt-oss-20b", "dgx-a100", 1),
    ("qwen3-next-80b-a3b", "gb200-nvl72", 4), ("mixtral-8x22b", "dgx-h200", 8),
])
def test_every_kind_of_model_and_node(model: str, hardware: str, tp: int) -> None:
    scenario = sim.scenario.load(BASE | {"model": model, "hardware": hardware, "parallelism": {"tp": tp},
                                         "weights_dtype": "fp8"})
    found = explain(scenario)
    place = deploy(scenario)
    values = {(row.section, row.quantity): row.value for row in found["rows"]}
    assert values["pool", "KV pool of a replica"] == place.pool_bytes
    assert all(row.section and row.quantity and row.formula for row in found["rows"])
    assert not any(isinstance(row.value, float) and math.isnan(row.value) for row in found["rows"])
    shown = [row.quantity for row in found["rows"] if row.section == "trajectories that fit"]
    assert all("128k" not in text for text in shown) == (place.model.context_limit < 131_072)


def test_needs_nothing_heavy() -> None:
    code = ("import sys, sim.scenario; from sim.scenario.explain import explain;"
            f"explain(sim.scenario.load({BASE!r}));"
            "heavy = ('pandas', 'pyarrow', 'matplotlib', 'scipy.stats', 'simpy', 'torch');"
            "print([name for name in heavy if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("block", "dram", "said"), [
    (16, {}, "pieces of 655,360 bytes a GPU, at 79% of the host link's rate."),
    (16, {"layout": "per_layer"}, "pieces of 4,096 bytes a GPU, at 2% of the host link's rate."),
    (1, {"layout": "per_layer"}, "pieces of 256 bytes a GPU, at 0% of the host link's rate; no link was measured with"),
    (1, {"layout": "per_layer", "method": "staged"}, "gathered in HBM and copied together, at 97%"),
])
def test_the_pieces_of_copies_are_stated(block: int, dram: dict, said: str) -> None:
    found, _ = explained(engine={"block_size": block}, tiers={"dram": {"capacity": "1 TiB", **dram}})
    assert any(said in sentence for sentence in found["assumptions"])


def test_what_these_agents_share_is_what_their_prompts_share():
    """A system prompt that all have counts once, a repository of a group and a task do not."""
    scenario = sim.load({
        "model": "llama-3.1-8b", "hardware": "dgx-h100", "workload": {"agents": {
            "prompt": [{"name": "system", "tokens": 6000, "shared": "all"},
                       {"name": "repository", "tokens": 4000, "shared": "group", "groups": {"count": 2}},
                       {"name": "task", "tokens": 2000}],
            "turns": 1, "output": 100}, "arrivals": {"closed": {"concurrency": 4}}}})
    rows = {row.quantity: row for row in explain(scenario)["rows"]}
    assert rows["first tokens that all share"].value == 6000
    own = next(row for name, row in rows.items() if "these agents" in name and "shared by all" in name)
    assert "5.9k shared" in own.quantity
    alone = next(row for name, row in rows.items() if name.endswith("(these agents) each"))
    assert alone.value < own.value < 2.5 * alone.value
