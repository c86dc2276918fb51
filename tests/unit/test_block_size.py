"""Does the block size change attention's rate, table entries and tails, and no rate from 16 tokens up?"""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sim
from sim.report.runs import show, start
from sim.scenario.deployment import deploy
from sim.scenario.explain import explain
from sim.timing import MeasuredCost, attention_efficiency, build
from sim.timing.block_size import ASSUMED, efficiency
from sim.timing.measured_profile import read, write

BASE = {"model": "llama-3.1-70b", "weights_dtype": "fp8", "hardware": "dgx-h100", "parallelism": {"tp": 4},
        "workload": {"agents": "chat"}}
PROFILE = "h100_sxm/vllm-0.24"
TABLE = {"blocks": [2, 16, 64], "efficiency": [0.5, 1.0, 1.1], "points": 6}


def cost_of(timing, block, **engine):
    scenario = sim.load({**BASE, "timing": timing, "engine": {"block_size": block, **engine}})
    return build(scenario.timing, deploy(scenario))


@pytest.fixture(scope="module")
def with_table(tmp_path_factory):
    path = tmp_path_factory.mktemp("profiles") / "blocks.json"
    write(replace(read(PROFILE), block_efficiency=TABLE), path)
    assert json.loads(path.read_text())["block_efficiency"] == TABLE
    return {"measured": str(path)}


@given(st.integers(1, 512), st.integers(1, 512))
def test_larger_blocks_are_never_read_more_slowly(first, second):
    for table in ({}, TABLE):
        assert efficiency(table, min(first, second)) <= efficiency(table, max(first, second))
        assert efficiency(table, 1) <= efficiency(table, first) <= efficiency(table, 512)


def test_efficiency_is_linear_in_the_logarithm_and_flat_outside():
    assert efficiency(TABLE, 2) == efficiency(TABLE, 1) == 0.5
    assert efficiency(TABLE, 4) == pytest.approx(0.5 + 0.5 / 3)
    assert efficiency(TABLE, 32) == pytest.approx(1.05)
    assert efficiency(TABLE, 128) == 1.1
    assert efficiency({}, 0) == 1.0, "contiguous buffers have no table to look up"
    assert all(efficiency({}, block) == 1.0 for block in (16, 17, 64, 1024))
    assert efficiency({}, 4) < 0.8 < ASSUMED["efficiency"][1]


@pytest.mark.parametrize("timing", [{"roofline": {}}, {"roofline": {"mode": "max"}}, {"measured": PROFILE}], ids=str)
def test_blocks_of_16_and_more_take_the_same_time(timing):
    usual = cost_of(timing, 16)
    for block in (32, 256):
        other = cost_of(timing, block)
        for load in ((1, 100, ()), (32, 32 * 8000, ()), (32, 32 * 8000, ((512, 4096),))):
            assert other.step(*load) == usual.step(*load)
            assert other.bound(*load) == usual.bound(*load)
        assert "outside_measured_attention_by_block" not in other.warnings()


def test_the_roofline_reads_kv_at_the_lower_rate_and_weights_at_the_same():
    usual, small = cost_of({"roofline": {}}, 16), cost_of({"roofline": {}}, 4)
    assert small.step(8, 0) == usual.step(8, 0)
    slower = (small.step(8, 80_000) - small.step(8, 0)) / (usual.step(8, 80_000) - usual.step(8, 0))
    assert slower == pytest.approx(1.0 / efficiency({}, 4))
    assert small.bound(8, 8_000_000) == "kv"


def test_measured_decode_attention_takes_longer_by_the_table_and_products_do_not(with_table):
    usual, small, large = (cost_of(with_table, block) for block in (16, 4, 64))
    for cost, rate in ((small, 0.5 + 0.5 / 3), (large, 1.1)):
        mine, theirs = (c.terms(32, 32 * 9000, [(256, 0)]) for c in (cost, usual))
        assert mine.pop("kv") == pytest.approx(theirs.pop("kv") / rate)
        assert mine == theirs
        assert cost.attention_efficiency == pytest.approx(rate)
        assert not cost.warnings().get("outside_measured_attention_by_block")
        assert not any("blocks of" in text for text in cost.substitutions)


def test_a_size_outside_the_table_is_noted(with_table):
    for block, text in ((1, "that of 2, the nearest measured"), (128, "that of 64, the nearest measured")):
        cost = cost_of(with_table, block)
        assert cost.warnings()["outside_measured_attention_by_block"] == 1
        assert any(text in said for said in cost.substitutions)
    cost = cost_of({"measured": PROFILE}, 4)
    assert cost.warnings()["outside_measured_attention_by_block"] == 1
    assert any("77% of the rate" in said and "assumed" in said for said in cost.substitutions)


def test_latent_attention_reads_small_blocks_more_slowly_and_its_products_do_not():
    scenario = sim.load({**BASE, "model": "deepseek-v3", "hardware": "dgx-h200", "parallelism": {"tp": 8},
                         "timing": {"measured": "h200_sxm/vllm-0.24"}})
    plain = build(scenario.timing, deploy(scenario))
    assert isinstance(plain, MeasuredCost)
    small = MeasuredCost(plain.profile, replace(plain.replica, block_tokens=4), deploy(scenario).model, "fp8", "bf16")
    usual, slow = (cost.terms(32, 32 * 20_000) for cost in (plain, small))
    assert slow.pop("kv") == pytest.approx(usual.pop("kv") / efficiency({}, 4))
    assert slow == usual


def test_contiguous_buffers_are_read_at_the_full_rate():
    buffers = cost_of({"roofline": {}}, 16, allocator="static")
    assert buffers.replica.block_tokens == 0
    assert buffers.step(8, 80_000) == cost_of({"roofline": {}}, 16).step(8, 80_000)


def test_explain_names_the_efficiency_where_it_is_not_1():
    def rows(block):
        found = explain(sim.load({**BASE, "engine": {"block_size": block}}))["rows"]
        return {row.quantity: row for row in found if "attention efficiency" in row.quantity}

    assert not rows(16)
    (row,) = rows(4).values()
    assert row.value == pytest.approx(0.77)
    assert "assumed" in row.formula


def test_a_run_shows_the_trade(tmp_path, capsys):
    path = tmp_path / "blocks.yaml"
    path.write_text(json.dumps({
        **BASE, "duration": "3 min", "warmup": "10 s", "seed": 1, "retention": "offload",
        "tiers": {"dram": {"capacity": "64 GiB", "method": "pieces"}},
        "workload": {"agents": "chat", "arrivals": {"closed": {"concurrency": 8}}}}))
    runs = start(path, None, [], "engine.block_size=1,8,64", force=False)
    found = list(runs.summaries.values())
    books = [summary["blocks"] for summary in found]
    assert [book["block_tokens"] for book in books] == [1, 8, 64]
    for summary, book in zip(found, books, strict=True):
        assert book["table_entries"] == -(-summary["allocation"]["request_tokens"] // book["block_tokens"])
    for name, values in {name: [book[name] for book in books] for name in ("attention_efficiency", "copy_efficiency")
                         }.items():
        assert values == sorted(values), name
        assert values[0] < values[-1] <= 1.0
    waste = [summary["ledger"]["pool_byte_s"]["tail_waste"] for summary in found]
    assert waste[0] == 0.0 < waste[1] < waste[2]
    show(runs)
    shown = capsys.readouterr().out
    assert "53%" in shown
    assert all(heading in shown for heading in ("tail waste", "table entries", "attention", "copies"))


def test_buffers_have_no_blocks_to_speak_of():
    scenario = {**BASE, "duration": "1 min", "warmup": "0 s", "engine": {"allocator": "static"},
                "workload": {"agents": "chat", "arrivals": {"closed": {"concurrency": 2}}}}
    assert sim.run(scenario).summary["blocks"] is None


def test_kernels_that_look_every_token_up_lose_nothing():
    base = {"model": "llama-3.1-8b", "hardware": "dgx-h100", "workload": {"agents": {"turns": 2}}}
    rates = {}
    for engine in ({"block_size": 1}, {"block_size": 1, "small_blocks": "free"}, {"preset": "sglang"}):
        scenario = sim.load({**base, "engine": engine})
        rates[str(engine)] = attention_efficiency(scenario.timing, deploy(scenario))
    assert [*rates.values()] == [pytest.approx(0.53), 1.0, 1.0]
