"""Does the measured model answer like the contract says, and refuse what was not measured?"""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sim
from sim.errors import InputError
from sim.metrics import wording
from sim.scenario.deployment import deploy
from sim.timing import MeasuredCost, build
from sim.timing.base import at, stretch_s
from sim.timing.measured_profile import engine_of, names, of_data, read, write

BASE = {"model": "llama-3.1-70b", "weights_dtype": "fp8", "hardware": "dgx-h100", "parallelism": {"tp": 4},
        "workload": {"agents": "chat"}}
PROFILE = "h100_sxm/vllm-0.24"
H200 = "h200_sxm/vllm-0.24"


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
@settings(max_examples=60)
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


@pytest.mark.parametrize("timing", [{"measured": PROFILE}, "roofline", {"roofline": {"mode": "max"}}])
def test_an_engines_step_overhead_is_added_to_every_step_once(timing):
    plain, slow = cost_of(timing), cost_of(timing, engine={"step_overhead": "3 ms"})
    mixed = (40, 90_000, [(512, 3000)])
    for decoding, context, chunks in ((1, 1000, []), (200, 800_000, []), mixed, (0, 0, [(64, 0)])):
        assert slow.step(decoding, context, chunks) == pytest.approx(plain.step(decoding, context, chunks) + 0.003)
    assert stretch_s(slow.decode_lines(48), 10_000, 48, 500) == pytest.approx(
        stretch_s(plain.decode_lines(48), 10_000, 48, 500) + 500 * 0.003)
    assert plain.bound(1, 100) != "overhead"
    assert cost_of(timing, engine={"step_overhead": "30 ms"}).bound(1, 100) == "overhead"
    if "measured" in timing:
        assert sum(slow.terms(*mixed).values()) == pytest.approx(slow.step(*mixed))


@pytest.mark.parametrize("timing", [{"measured": PROFILE}, "roofline"])
def test_explain_shows_an_engines_step_overhead(timing):
    def rows(**engine):
        found = sim.explain(sim.load({**BASE, "timing": timing, "engine": engine}))
        return {row.quantity: row for row in found["rows"]}

    plain, slow = rows(), rows(step_overhead="3 ms")
    assert slow["overhead of every step"].value == 0.003
    assert "overhead of every step" not in plain
    first = "decode step, 1 turn at an empty context"
    assert slow[first].value == pytest.approx(plain[first].value + 0.003)


def test_the_measured_and_the_roofline_agree_on_what_binds():
    cases = [(1, 1_000, []), (8, 8 * 2048, []), (64, 64 * 16384, []), (0, 0, [(8192, 0)]), (0, 0, [(4096, 30000)])]
    for tp in (2, 4, 8):
        both = [cost_of(timing, parallelism={"tp": tp}) for timing in ({"measured": PROFILE}, {"roofline": {}})]
        for decoding, context, chunks in cases:
            assert both[0].bound(decoding, context, chunks) == both[1].bound(decoding, context, chunks)


#: Steps of the chapter's examples on its node (70 billion parameters in 16 bits on 8 H100): decoding turns, tokens they
#: read, prompt chunks, and what the chapter says binds.
CHAPTER = {
    "a prompt of 4096": (0, 0, [(4096, 0)], "compute"),
    "32 more after 4096 found": (0, 0, [(32, 4096)], "weights"),
    "32 streams": (32, 32 * 100, [], "weights"),
    "32 streams and a whole prompt": (32, 32 * 100, [(4096, 0)], "compute"),
    "32 streams and a chunk": (32, 32 * 100, [(512, 1024)], "compute"),
    "a context of 16k recomputed": (0, 0, [(16384, 0)], "compute"),
    "a context of 32k recomputed": (0, 0, [(32768, 0)], "compute"),
    "the pool full of 8k contexts": (172, 172 * 8192, [], "kv"),
}


@pytest.mark.parametrize("name", CHAPTER)
@pytest.mark.parametrize("timing", [{"roofline": {"mode": "max", "mfu": 0.45, "mbu": 1.0}}, {"roofline": {}},
                                    {"measured": PROFILE}, {"measured": H200}], ids=str)
def test_every_model_says_of_the_chapters_examples_what_binds(name, timing):
    decoding, context, chunks, binds = CHAPTER[name]
    node = "dgx-h200" if timing == {"measured": H200} else "dgx-h100"
    found = cost_of(timing, weights_dtype="bf16", hardware=node, parallelism={"tp": 8})
    assert found.bound(decoding, context, chunks) == binds


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
    ({"kv_dtype": "nvfp4"}, "attention of head_dim"),
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


LATENT = {"model": "deepseek-v3", "parallelism": {"tp": 8}, "hardware": "dgx-h200"}
LINEAR = {"model": "qwen3-next-80b-a3b", "parallelism": {"tp": 4}, "hardware": "dgx-h200"}


@pytest.mark.parametrize(("model", "tp", "pp", "kv"), [
    ("deepseek-v3", 8, 1, "bf16"), ("deepseek-r1", 4, 2, "fp8"), ("deepseek-v3", 4, 2, "fp8")])
def test_latent_attention_is_measured_with_its_products(model, tp, pp, kv):
    found = cost_of({"measured": H200}, model=model, parallelism={"tp": tp, "pp": pp}, kv_dtype=kv, hardware="dgx-h200")
    assert found.substitutions == []
    entry = next(entry for entry in read(H200).latent
                 if (entry["heads"], entry["kv_dtype"], entry["dtype"]) == (128 // tp, kv, "fp8"))
    row = entry["rows"][3]
    module = found._attention.decode_s(row["batch"] * pp, row["tokens"][-1] * pp)
    assert module == pytest.approx(61 * row["us"][-1] * 1e-6)
    # what goes with an uncached prompt's tokens and its pairs make up what was measured of the whole module
    length = entry["tokens"][-1]
    prompts = found._attention.chunks_s([(length, 0)] * pp, found.excursions)
    assert prompts == pytest.approx(61 * (entry["us"][-1] * 1e-6 + entry["pair_s"] * length * length / 2.0))
    assert found.warnings() == {}


def test_latent_attention_of_a_model_with_other_heads_and_weights():
    found = cost_of({"measured": "b200_sxm/vllm-0.24"}, model="kimi-k2", parallelism={"tp": 8}, weights_dtype="nvfp4",
                    hardware="dgx-b200")
    assert found.substitutions == []
    # a public server of the same shapes (Kimi-K2.5, nvfp4, 8 B200, vLLM): 12.7 ms a token at 16 x (1024 + 1024), see
    # silicon_sample of aiconfigurator-core
    assert found.step(16, 16 * 1382) == pytest.approx(12.7e-3, rel=0.15)


@pytest.mark.parametrize("changes", [LATENT, LINEAR], ids=["latent", "linear"])
def test_terms_and_order_hold_for_other_kinds_of_attention(changes):
    found = cost_of({"measured": H200}, **changes)
    for decoding, context, chunks in [(16, 16 * 4096, [(512, 4096), (1024, 0)]), (0, 0, [(2048, 0)])]:
        assert sum(found.terms(decoding, context, chunks).values()) == pytest.approx(
            found.step(decoding, context, chunks), rel=1e-9)
    assert found.step(64, 64 * 8192) > found.step(16, 16 * 8192) > found.step(16, 16 * 1024)
    assert found.step(0, 0, [(512, 65_536)]) > found.step(0, 0, [(512, 1024)]) > found.step(0, 0, [(512, 0)])
    roofline = cost_of({"roofline": {"mfu": 1.0, "mbu": 1.0}}, **changes)
    assert found.step(64, 64 * 8192) > roofline.step(64, 64 * 8192)
    assert found.step(0, 0, [(8192, 0)]) > roofline.step(0, 0, [(8192, 0)])


def test_what_has_no_table_is_a_roofline_that_is_said_and_counted():
    import hardware_profiles

    replica = cost_of({"measured": H200}, **LATENT).replica
    latent = MeasuredCost(read("a100_sxm/vllm-0.14"), replica, hardware_profiles.model("deepseek-v3"), "bf16", "bf16")
    for found, kind in [(latent, "latent"), (cost_of({"measured": H200}, **LINEAR), "linear")]:
        assert any(f"{kind}" in text and "roofline" in text for text in found.substitutions)
        assert found.step(64, 64 * 8192, [(512, 4096)]) > found.step(16, 16 * 8192, [(512, 0)])
        found.step(4, 4000, [(512, 0)])
        assert found.warnings()[f"outside_measured_{kind}_attention"] >= 1
        assert any("a roofline stands in" in text for text in found.excursions.sentences())


def test_a_run_counts_what_was_not_measured():
    result = sim.run(sim.load({**BASE, **LINEAR, "timing": {"measured": H200}, "duration": 60,
                               "workload": {"agents": "chat", "arrivals": {"closed": {"concurrency": 4}}}}))
    assert result.summary["counts"]["outside_measured_linear_attention"] > 0


@pytest.mark.parametrize("name", ["deepseek-v3", "kimi-k2", "qwen3-235b-a22b", "gpt-oss-120b", "llama-3.1-70b",
                                  "qwen3-next-80b-a3b"])
def test_every_parameter_a_token_passes_is_in_some_product(name):
    import hardware_profiles
    from sim.timing.measured_layers import expert_widths, products, unknown_params

    model = hardware_profiles.model(name)
    dense = sum(n * k * times for (n, k), times in products(model, 1)) + 2 * model.vocab * model.d_model
    if model.mla or model.linear:
        dense += unknown_params(model)
    assert dense == pytest.approx(model.dense_params, rel=0.01)
    if model.moe:
        width, shared = expert_widths(model)
        assert model.moe.top_k * width + shared == model.d_ff
        assert 3 * width * model.d_model == pytest.approx(model.moe.expert_params, rel=1e-3)


def test_a_pipeline_runs_each_kernel_on_a_share_of_the_tokens():
    flat, deep = (cost_of({"measured": PROFILE}, parallelism=p) for p in ({"tp": 4}, {"tp": 4, "pp": 2}))
    assert deep.step(64, 64 * 8192) < 2 * flat.step(64, 64 * 8192)
    assert deep.step(2, 2 * 1000) >= flat.step(1, 1000) * 0.99


def test_a_scenario_runs_on_measured_times():
    result = sim.run(sim.load({**BASE, "timing": {"measured": PROFILE}, "duration": 120,
                               "workload": {"agents": "chat", "arrivals": {"closed": {"concurrency": 8}}}}))
    assert result.summary["turns"] > 0
    tested = read(PROFILE).engine["tested"]
    assert result.summary["band"] == {"ttft": tested["ttft_median"], "tpot": tested["tpot_median"]}
    (said,) = [text for label, text in wording.facts(result.summary) if label == "step times"]
    middle = result.summary["ttft_s"]["all"]["p50"]
    assert f"TTFT +-{wording.percent(tested['ttft_median'])}" in said
    assert f"{wording.seconds(middle * (1 - tested['ttft_median']))} to" in said


def test_what_a_server_adds_is_in_every_first_token_and_in_no_step(tmp_path):
    runs = []
    for floor_s in (0.0, 0.5):
        write(replace(read(PROFILE), engine={"ttft_floor_s": floor_s}), tmp_path / f"{floor_s}.json")
        runs.append(sim.run(sim.load({
            **BASE, "timing": {"measured": str(tmp_path / f"{floor_s}.json")}, "duration": 400, "warmup": 0,
            "workload": {"agents": {"prompt": [{"name": "p", "tokens": 1000, "shared": "none"}], "turns": 3,
                                    "output": 50, "tools": {"t": {"wait": 5.0}}},
                         "arrivals": {"closed": {"concurrency": 1}}}})).summary)
    plain, late = runs
    for name in ("first", "resumed"):
        assert late["ttft_s"][name]["p50"] - plain["ttft_s"][name]["p50"] == pytest.approx(0.5, abs=2e-3)
    assert late["tpot_s"]["p50"] == pytest.approx(plain["tpot_s"]["p50"], rel=1e-3)
    assert late["turn_s"]["p50"] - plain["turn_s"]["p50"] == pytest.approx(0.5, abs=2e-3)


def test_explain_shows_the_roofline_beside_measured_times():
    from sim.scenario.explain import explain

    found = explain(sim.load({**BASE, "timing": {"measured": PROFILE}}))
    times = {row.quantity: row for row in found["rows"] if row.section == "step times"}
    plain = [name for name in times if name.endswith("by the roofline")]
    assert len(plain) >= 4
    bound = [(times[name.removesuffix(", by the roofline")].formula, times[name].formula) for name in plain]
    bound = [pair for pair in bound if "bound by" in pair[0]]
    assert len(bound) >= 3
    for beside, by_roofline in bound:
        assert beside.rpartition("bound by")[2] == by_roofline.rpartition("bound by")[2]
    assert any("median error on points not fitted: linear" in text for text in found["assumptions"])
