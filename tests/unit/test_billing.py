"""Are hosted bills what a provider's rules say?"""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

import sim
from sim.errors import InputError
from sim.metrics import billing
from sim.metrics.billing import Price
from sim.metrics.volume import volume

PLAIN = Price("p", "x", "2026-01-01", input=1.0, output=10.0, read=0.1, write={300: 1.25, 3600: 2.0},
              minimum_tokens=100)


def turns(*rows):
    """Rows of (trajectory, ready, first token, prompt, output, ceiling)."""
    columns = ["trajectory", "ready_s", "first_token_s", "prompt_tokens", "output_tokens", "ceiling_tokens"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(replication=0, status="finished")


def test_a_chain_reads_what_it_wrote():
    made = billing.bill(turns((0, 0, 1, 1000, 10, 0), (0, 100, 101, 1500, 20, 1000)), PLAIN)
    assert (made.write_tokens, made.read_tokens, made.input_tokens, made.output_tokens) == (1500, 1000, 0, 30)
    assert made.usd == pytest.approx((1500 * 1.25 + 1000 * 0.1 + 30 * 10) / 1e6)
    assert made.expired == 0


def test_a_prefix_lives_from_its_last_use():
    rows = turns((0, 0, 0, 1000, 1, 0), (0, 250, 250, 1100, 1, 1000), (0, 500, 500, 1200, 1, 1100),
                 (0, 900, 900, 1300, 1, 1200))
    made = billing.bill(rows, PLAIN)
    assert made.expired == 1
    assert made.read_tokens == 1000 + 1100
    longer = billing.bill(rows, PLAIN, ttl_s=3600)
    assert (longer.expired, longer.read_tokens) == (0, 1000 + 1100 + 1200)
    assert longer.write_usd == pytest.approx(1300 * 2.0 / 1e6)
    fixed = billing.bill(rows, Price(**{**vars_of(PLAIN), "refresh": False}))
    assert fixed.expired == 2


def vars_of(price):
    return {name: getattr(price, name) for name in price.__dataclass_fields__}


def test_what_is_shared_is_read_while_anyone_uses_it():
    rows = turns((0, 0, 0, 1000, 1, 0), (1, 200, 200, 1000, 1, 600), (1, 800, 800, 1200, 1, 1000),
                 (2, 900, 900, 900, 1, 600))
    made = billing.bill(rows, PLAIN)
    assert made.read_tokens == 600 + 0 + 600
    assert made.expired == 1


def test_minimum_and_steps():
    steps = Price("o", "x", "d", input=1.0, output=1.0, minimum_tokens=1024, step_tokens=128)
    rows = turns((0, 0, 0, 1000, 1, 0), (0, 1, 1, 1200, 1, 1000), (0, 2, 2, 1400, 1, 1200), (0, 3, 3, 1500, 1, 1151))
    made = billing.bill(rows, steps)
    assert made.read_tokens == 0 + 0 + 1152 + 1024
    assert made.write_usd == 0
    assert billing.bill(turns((0, 0, 0, 50, 1, 0)), PLAIN).write_tokens == 0


def test_storage_long_prompts_and_the_warm_up():
    kept = Price("g", "x", "d", input=1.0, output=1.0, minimum_tokens=1, ttl_s=3600, storage_usd_per_Mtok_hour=4.5,
                 long={"above_tokens": 1500, "input": 2.0, "output": 3.0})
    rows = turns((0, 0, 0, 1000, 1, 0), (0, 1800, 1800, 2000, 1, 1000))
    made = billing.bill(rows, kept)
    assert made.storage_usd == pytest.approx(1000 / 1e6 * 0.5 * 4.5)
    assert made.input_usd == pytest.approx((1000 * 1.0 + 1000 * 2.0) / 1e6)
    assert made.output_usd == pytest.approx((1.0 + 3.0) / 1e6)
    later = billing.bill(rows, kept, since_s=1000)
    assert (later.turns, later.read_tokens, later.input_tokens) == (1, 1000, 1000)


#: USD a million tokens: input, output, cached read, cheapest write (None: as input), as the pages in `checked` say.
PUBLISHED = {
    "claude-opus-4.6": (5.0, 25.0, 0.50, 6.25), "claude-sonnet-4.5": (3.0, 15.0, 0.30, 3.75),
    "claude-haiku-4.5": (1.0, 5.0, 0.10, 1.25), "gpt-5": (1.25, 10.0, 0.125, None),
    "gpt-5.6-sol": (5.0, 30.0, 0.50, 6.25), "gemini-2.5-pro-implicit": (1.25, 10.0, 0.125, None),
    "gemini-2.5-pro-explicit": (1.25, 10.0, 0.125, None), "deepseek-chat-v3": (0.27, 1.10, 0.07, None)}


def test_a_price_is_what_the_page_it_was_checked_against_says():
    checked = {name: at for name, at in billing.prices().items() if at.checked}
    assert set(PUBLISHED) == set(checked)
    for name, at in checked.items():
        given, output, read, write = PUBLISHED[name]
        assert (at.input, at.output) == (given, output)
        assert at.input * at.read == pytest.approx(read, abs=0.001)
        if write is not None:
            assert at.input * min(at.write.values()) == pytest.approx(write)
    assert checked["gemini-2.5-pro-explicit"].storage_usd_per_Mtok_hour == 4.5
    assert checked["gemini-2.5-pro-explicit"].long == {"above_tokens": 200000, "input": 2.5, "output": 15.0}


def test_a_price_from_memory_is_marked(monkeypatch, capsys):
    from dataclasses import replace

    from sim.report import bills

    known = billing.prices()
    known["gpt-5"] = replace(known["gpt-5"], checked="")
    monkeypatch.setattr(billing, "prices", lambda: known)
    summary = {"cost": {"usd": 1.0, "usd_per_trajectory": 1.0}, "throughput": {"trajectories_per_s": 1.0},
               "checks": {"span_s": 1.0, "replications": 1, "warmup_s": 0.0}}
    shown = billing.table(turns((0, 0, 1, 2000, 10, 0)), summary, ["gpt-5", "claude-sonnet-4.5"])
    monkeypatch.setenv("COLUMNS", "200")
    bills.show(shown)
    lines = {line.split()[0]: line for line in reversed(capsys.readouterr().out.splitlines()) if line.strip()}
    assert "from memory" in lines["gpt-5"]
    assert "from memory" not in lines["claude-sonnet-4.5"]


def test_every_price_is_dated_and_sourced():
    found = billing.prices()
    assert {price.provider for price in found.values()} == {"anthropic", "openai", "gemini", "deepseek"}
    for price in found.values():
        assert price.date[:2] == "20"
        assert price.source
        assert not price.checked or re.search(r"^\S+\.\S+/\S+ .*read 20\d\d-\d\d-\d\d$", price.checked)
        assert 0 < price.read < 1 <= price.kept(price.ttl_s)
        assert price.output > price.input > 0
    anthropic = found["claude-sonnet-4.5"]
    assert (anthropic.kept(300), anthropic.kept(3600), anthropic.read) == (1.25, 2.0, 0.1)
    assert (found["gpt-5"].step_tokens, found["gpt-5"].minimum_tokens, found["gpt-5"].write) == (128, 1024, {})
    assert found["gpt-5.6-sol"].kept(1800) == 1.25
    assert found["deepseek-chat-v3"].input * found["deepseek-chat-v3"].read == pytest.approx(0.07, rel=0.01)
    with pytest.raises(InputError, match="choose from"):
        billing.price("gpt-99")


def test_a_shorter_life_multiplies_the_bill(tmp_path, capsys):
    """Tools that take ten minutes: written once an hour, or at every turn."""
    from pathlib import Path

    from sim.cli import main

    scenario = Path(__file__).parents[2] / "scenarios" / "hosted_ttl.yaml"
    result = sim.run(scenario, tmp_path / "out", overrides=["duration=8 h", "workload.arrivals.closed.concurrency=6"])
    at = billing.price("claude-sonnet-4.5")
    hour, minutes = (billing.bill(result.turns, at, ttl_s=ttl) for ttl in (3600, 300))
    assert minutes.usd > 5 * hour.usd
    assert minutes.expired > 0.9 * minutes.turns > hour.expired
    table = billing.table(result.turns, result.summary)
    assert table["name"].iloc[0] == "self-hosted"
    assert table["usd"].iloc[0] == result.summary["cost"]["usd"]
    with pytest.raises(SystemExit) as left:
        main(["bill", str(tmp_path / "out"), "--price", "claude-sonnet-4.5", "--ttl", "1 h", "--json"])
    assert left.value.code == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["self-hosted", "claude-sonnet-4.5"]
    assert rows[1]["usd"] == pytest.approx(hour.usd)
    with pytest.raises(SystemExit) as left:
        main(["bill", str(tmp_path / "out"), "--price", "claude-sonnet-4.5", "--ttl", "7 min"])
    assert left.value.code == 2
    assert "written for 300 s, 3600 s" in capsys.readouterr().err


def summary_with(per_s, usd=1200.0, span_s=3600.0, replications=2):
    return {"throughput": {"trajectories_per_s": per_s}, "cost": {"usd": usd, "usd_per_trajectory": None},
            "checks": {"span_s": span_s, "replications": replications, "warmup_s": 0.0}}


@pytest.mark.parametrize(("tasks", "deployments", "utilisation"), [
    (8640, 1, 1.0), (8641, 2, 8641 / 17280), (50_000, 6, 50_000 / 51_840), (1, 1, 1 / 8640)])
def test_what_serves_the_tasks_of_a_day(tasks, deployments, utilisation):
    found = volume(summary_with(0.1), tasks, nodes=2)  # 8,640 a day, for 14,400 USD
    assert (found.deployments, found.nodes) == (deployments, 2 * deployments)
    assert found.utilisation == pytest.approx(utilisation)
    assert found.usd_per_day == pytest.approx(14_400 * deployments)
    assert found.usd_per_task == pytest.approx(14_400 * deployments / tasks)
    assert volume(summary_with(0.1, usd=None), tasks).usd_per_task is None


@pytest.mark.parametrize(("tasks", "per_s", "said"), [
    (0, 0.1, "expected tasks a day"), (-5, 0.1, "expected tasks a day"), (float("nan"), 0.1, "expected tasks a day"),
    (1e13, 0.1, "expected tasks a day"), (5, 0.0, "no trajectory finished"), (5, None, "no trajectory finished")])
def test_tasks_that_make_no_sense(tasks, per_s, said):
    with pytest.raises(InputError, match=said):
        volume(summary_with(per_s), tasks)


def test_the_command_says_what_a_day_costs(tmp_path, capsys):
    from sim.cli import main

    result = sim.run({"duration": "60 s", "warmup": 0, "model": "llama-3.1-8b", "hardware": "dgx-h100", "nodes": 2,
                      "workload": {"agents": {"prompt": [{"name": "p", "tokens": 2000}], "turns": 1, "output": 20},
                                   "arrivals": {"closed": {"concurrency": 4}}}})
    result.save(tmp_path / "run")
    per_day = result.summary["throughput"]["trajectories_per_s"] * 86400
    tasks = round(per_day * 2.5)

    def run(*more):
        with pytest.raises(SystemExit) as left:
            main(["bill", str(tmp_path / "run"), "--price", "gpt-5", *more])
        return left.value.code, capsys.readouterr()

    status, said = run("--daily-tasks", str(tasks))
    text = " ".join(said.out.split())
    assert status == 0
    assert "self-hosted: 3 deployments like the one simulated (6 nodes), in use to 83% of what they finish" in text
    own, hosted = json.loads(run("--daily-tasks", str(tasks), "--json")[1].out)
    assert (own["deployments"], own["nodes"]) == (3, 6)
    assert own["usd_per_day"] == pytest.approx(3 * 2 * 8 * 24 * result.summary["cost"]["usd"] / (16 * 60 / 3600))
    assert hosted["usd_per_day"] == pytest.approx(hosted["usd_per_trajectory"] * tasks)
    assert "deployments" not in json.loads(run("--json")[1].out)[0]
    status, said = run("--daily-tasks", "-3")
    assert (status, said.err.count("\n")) == (2, 1)
    assert "daily-tasks: expected tasks a day" in said.err
    assert result.bill("gpt-5", daily_tasks=tasks)["deployments"][0] == 3
