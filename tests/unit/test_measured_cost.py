"""Does the measured model answer like the contract says, and refuse what was not measured?"""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sim
from sim.errors import InputError
from sim.scenario.deployment import deploy
from sim.timing import MeasuredCost, build
from sim.timing.base import at, stretch_s
from sim.timing.measured_profile import engine_of, names, of_data, read, write

BASE = {"model": "llama-3.1-70b", "weights_dtype": "fp8", "hardware": "dgx-h100", "parallelism": {"tp": 4},
        "workload": {"agents": "chat"}}
PROFILE = "h100_sxm/vllm-0.24"


def cost_of(timing, **changes):
    scenario = sim.load({**BASE, **changes, "timing": timing})
    return build(scenario.timing, deploy(scenario))


@pytest.fixture(scope="module")
def cost():
    return cost_of({"measured": PROFILE})


def test_every_shipped_profile_loads_and_is_for_planning():
    shipped = {"a100_sxm/vllm-0.14", "b200_sxm/vllm-0.24", "gb200/vllm-0.24", PROFILE, "h200_sxm/vllm-0.24"}
    assert shipped <= set(names())
    for name in names():
        profile = read(name)
        assert profile.planning
        assert profile.provenance["source"].startswith("aiconfigurator-core")
        assert {"linear", "decode_attention", "prefill_attention", "all_reduce"} <= set(profile.error)


def test_an_unknown_profile_is_named_with_those_there_are():
    with pytest.raises(InputError, match=r"h100_sxm/vllm-0\.24"):
        sim.load({**BASE, "timing": {"measured": "h100/vllm-0.24"}})
    with pytest.raises(InputError, match="needs the name of a profile"):
        sim.load({**BASE, "timing": "measured"})


def test_steps_and_lines_agree_and_stretches_are_the_sum_of_steps(cost):
    lines = cost.decode_lines(48)
    contexts = [48 * 3000 + 48 * i for i in range(200)]
    assert [cost.step(48, c) for c in contexts] == pytest.approx([at(lines, c) for c in contexts])
    assert stretch_s(lines, contexts[0], 48, 200) == pytest.approx(sum(at(lines, c) for c in contexts))


def test_lines_follow_the_tables_within_a_few_percent(cost):
    for decoding in (1, 2, 5, 16, 40, 64, 129, 256):
        cost.decode_lines(decoding)
    assert max(cost.line_error.values()) < 0.05


@given(st.integers(1, 256), st.integers(64, 60_000), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_more_work_never_takes_less_time(batch, context, factor):
    cost = cost_of({"measured": PROFILE})
    assert cost.step(batch, batch * context * factor) >= cost.step(batch, batch * context)
    assert cost.step(0, 0, [(factor * 512, context)]) >= cost.step(0, 0, [(512, context)]) * 0.999
    assert cost.step(batch, batch * context, [(512, 0)]) > cost.step(0, 0, [(512, 0)]) * 0.999


def test_terms_add_up_to_the_step(cost):
    chunks = [(512, 4096), (1024, 0)]
    terms = cost.terms(32, 32 * 4096, chunks)
    # the terms take products as padded or not, as the step does
    assert sum(terms.values()) == pytest.approx(cost.step(32, 32 * 4096, chunks), rel=1e-9)


def test_the_measured_and_the_roofline_agree_on_what_binds():
    cases = [(1, 1_000, []), (8, 8 * 2048, []), (64, 64 * 16384, []), (0, 0, [(8192, 0)]), (0, 0, [(4096, 30000)])]
    for tp in (2, 4, 8):
        both = [cost_of(timing, parallelism={"tp": tp}) for timing in ({"measured": PROFILE}, {"roofline": {}})]
        for decoding, context, chunks in cases:
            assert both[0].bound(decoding, context, chunks) == both[1].bound(decoding, context, chunks)


def test_leaving_the_measured_range_is_counted():
    cost = cost_of({"measured": PROFILE})
    cost.step(4, 4 * 1000, [(512, 0)])
    assert not any("decode" in name for name in cost.excursions.counts())
    cost.step(512, 512 * 120_000, [(512, 50_000)])
    counts = cost.excursions.counts()
    assert counts["outside_measured_decode_attention"] == 1
    assert counts["outside_measured_prefill_on_cached_past"] == 1
    assert any("by up to a factor" in text for text in cost.excursions.sentences())


@pytest.mark.parametrize(("changes", "text"), [
    ({"weights_dtype": "nvfp4"}, "matrix products in bf16, fp8 only"),
    ({"model": "deepseek-v3", "parallelism": {"tp": 8}, "hardware": "dgx-h200"}, "latent attention"),
])
def test_what_was_not_measured_is_refused(changes, text):
    with pytest.raises(InputError, match=text):
        cost_of({"measured": PROFILE}, **changes)


def test_a_profile_of_a_cpu_is_refused_for_planning(tmp_path):
    write(replace(read(PROFILE), planning=False, device="cpu"), tmp_path / "cpu.json")
    with pytest.raises(InputError, match="not for planning"):
        cost_of({"measured": str(tmp_path / "cpu.json")})


def test_a_file_that_is_no_profile_is_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"format": "something"}))
    with pytest.raises(InputError, match="expected 'kvplan measured profile 1'"):
        read(str(path))
    with pytest.raises(InputError, match="incomplete"):
        of_data({"format": "kvplan measured profile 1", "name": "x"})


def test_the_errors_of_the_fit_and_the_engine_are_at_hand(cost):
    assert cost.error["linear"]["median"] < 0.05
    assert set(cost.band) == {"ttft", "tpot"}
    assert cost.ttft_floor_s == pytest.approx(engine_of("vllm")["ttft_floor_s"])


def test_mixtures_of_experts_use_measured_experts_or_say_so():
    measured = cost_of({"measured": PROFILE}, model="mixtral-8x7b", weights_dtype="bf16")
    assert isinstance(measured, MeasuredCost)
    assert not any("experts" in text for text in measured.substitutions)
    assert measured.step(64, 64 * 1000) > measured.step(1, 1000)


def test_a_pipeline_runs_each_kernel_on_a_share_of_the_tokens():
    flat, deep = (cost_of({"measured": PROFILE}, parallelism=p) for p in ({"tp": 4}, {"tp": 4, "pp": 2}))
    assert deep.step(64, 64 * 8192) < 2 * flat.step(64, 64 * 8192)
    assert deep.step(2, 2 * 1000) >= flat.step(1, 1000) * 0.99


def test_a_scenario_runs_on_measured_times():
    result = sim.run(sim.load({**BASE, "timing": {"measured": PROFILE}, "duration": 120,
                               "workload": {"agents": "chat", "arrivals": {"closed": {"concurrency": 8}}}}))
    assert result.summary["turns"] > 0


def test_explain_shows_the_roofline_beside_measured_times():
    from sim.scenario.explain import explain

    found = explain(sim.load({**BASE, "timing": {"measured": PROFILE}}))
    times = {row.quantity: row for row in found["rows"] if row.section == "step times"}
    plain = [name for name in times if name.endswith("by the roofline")]
    assert len(plain) >= 4
    for name in plain:
        beside = times[name.removesuffix(", by the roofline")]
        assert beside.formula.rpartition("bound by")[2] == times[name].formula.rpartition("bound by")[2] or \
            "bound by" not in beside.formula
    assert any("median error on points not fitted: linear" in text for text in found["assumptions"])
