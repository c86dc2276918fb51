"""Worked numbers that are times: prefill and its reuse, chunked prefill, pauses, links, routing; by the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from workloads.trajectory import Stream, Turn

DATA = yaml.safe_load((Path(__file__).parent / "chapter_numbers.yaml").read_text(encoding="utf-8"))
CASES = {case["id"]: case for case in DATA["cases"]}


def inputs(name: str) -> dict[str, Any]:
    return CASES[name]["inputs"]


def approx(name: str, key: str | None = None) -> Any:
    value = CASES[name]["expected"]
    return pytest.approx(value[key] if key else value, rel=CASES[name].get("rtol", 1e-9))


# --------------------------------------------------------------------------------------------------- prefix reuse


def prefill_node(rig, heads: int = 64) -> Any:
    """The chapter's node of 8 H100: 70e9 parameters, 7912 TFLOP/s at MFU 0.45, HBM at its peak."""
    given = inputs("prefill_time_4096")
    return rig.scenario({**rig.LLAMA, "n_heads": heads}, n_params=70e9, tflops=given["peak_TFLOPS"],
                        timing={"roofline": {"mode": "max", "mfu": given["mfu"], "mbu": 1.0}})


def ttft(turn: dict[str, Any]) -> float:
    return turn["first_token_s"] - turn["ready_s"]


def cold_and_warm(rig, on: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a prompt of 4096 tokens and, later, one of 32 more tokens after the same 4096."""
    given = inputs("prefill_time_hit_32")
    system = Stream(None, 0, "system")
    hit = Turn(Stream(system, given["cached"]), given["cached"] + given["new"], 1)
    cold, warm = rig.run(on, Turn(system, given["cached"], 1), hit, at_s=[0.0, 10.0]).turns
    assert (warm["hit_hbm_tokens"], warm["recomputed_tokens"]) == (given["cached"], 0)
    return cold, warm


def test_prefill_time(rig) -> None:
    """The chapter counts the whole square of attention, the simulator its causal half: twice the heads make it up."""
    cold, _ = cold_and_warm(rig, prefill_node(rig, heads=128))
    assert ttft(cold) == cold["prefill_s"] == approx("prefill_time_4096")


def test_prefill_time_with_causal_attention(rig) -> None:
    cold, _ = cold_and_warm(rig, prefill_node(rig))
    flop = 2 * 70e9 * 4096 + 4 * 80 * 8192 * 4096**2 / 2
    assert ttft(cold) == pytest.approx(flop / (7912e12 * 0.45))


def test_prefill_time_after_a_hit(rig) -> None:
    assert CASES["prefill_time_hit_32"]["expected"] == "< 0.006"
    _, warm = cold_and_warm(rig, prefill_node(rig))
    assert 140e9 / (8 * 3.35e12) < ttft(warm) < 0.006


@pytest.mark.parametrize("heads", [64, 128])
def test_prefix_ttft_ratio(rig, heads: int) -> None:
    cold, warm = cold_and_warm(rig, prefill_node(rig, heads))
    assert ttft(cold) / ttft(warm) == approx("prefix_ttft_ratio")


# ------------------------------------------------------------------------------------------------ chunked prefill


def with_long_prompt(rig, schedule: dict[str, Any]) -> tuple[Any, list[dict[str, Any]], dict[str, Any]]:
    """32 streams decode; a prompt of 4096 tokens arrives; return run, streams and the turn of that prompt."""
    base = inputs("decode_step_32")
    on = rig.scenario(rig.WEIGHTS, n_params=float(base["n_params"]), hbm_TBps=base["hbm_TBps"],
                      tflops=inputs("chunked_step_512")["effective_TFLOPS"], engine={"schedule": schedule})
    run = rig.run(on, *(rig.fresh(16, 200) for _ in range(base["batch"])), rig.fresh(4096, 2),
                  at_s=[0.0] * base["batch"] + [5.0])
    turns = sorted(run.turns, key=lambda turn: turn["trajectory"])
    return run, turns[:-1], turns[-1]


def within(histograms: list[tuple[float, dict[int, tuple[float, float]]]], seconds: float) -> tuple[float, float]:
    """Return weight and mean of the histogram entries within 1 % of `seconds`."""
    found = [cell for _, histogram in histograms for cell in histogram.values()
             if abs(cell[1] / cell[0] / seconds - 1) < 0.01]
    weight = sum(cell[0] for cell in found)
    return weight, sum(cell[1] for cell in found) / weight if weight else 0.0


CHUNKED = {"policy": "chunked", "token_budget": 512 + 32}
MONOLITHIC = {"policy": "monolithic"}


def test_decode_step(rig) -> None:
    run, streams, _ = with_long_prompt(rig, MONOLITHIC)
    weight, mean = within(run.totals.step_windows, CASES["decode_step_32"]["expected"])
    assert weight >= 199
    assert mean == approx("decode_step_32")
    assert streams[0]["decode_s"] / 199 == approx("decode_step_32")


def test_monolithic_prefill(rig) -> None:
    """The prompt's step stalls all streams for its whole length, and their next token takes a step of its own."""
    run, streams, prompt = with_long_prompt(rig, MONOLITHIC)
    stall = CASES["monolithic_prefill_4096"]["expected"]
    assert prompt["first_token_s"] - prompt["start_s"] == approx("monolithic_prefill_4096")
    assert streams[-1]["interference_s"] == approx("monolithic_prefill_4096")
    weight, mean = within(run.totals.step_windows, stall)
    assert (weight, mean) == (1, approx("monolithic_prefill_4096"))
    weight, mean = within(run.totals.itl_windows, stall + 140e9 / 3.0e12)
    assert (weight, mean) == (32, pytest.approx(stall + 140e9 / 3.0e12, rel=1e-3))


def test_chunked_prefill(rig) -> None:
    run, streams, prompt = with_long_prompt(rig, CHUNKED)
    given = CASES["chunked_step_512"]["expected"]
    weight, mean = within(run.totals.step_windows, given["step_s"])
    assert (weight, mean) == (given["steps"], approx("chunked_step_512", "step_s"))
    assert prompt["first_token_s"] - prompt["start_s"] == pytest.approx(8 * given["step_s"], rel=1e-3)
    weight, mean = within(run.totals.itl_windows, given["step_s"])
    assert (weight, mean) == (given["steps"] * 32, approx("chunked_step_512", "step_s"))
    slower_s = given["steps"] * (given["step_s"] - 140e9 / 3e12)
    assert streams[-1]["interference_s"] == pytest.approx(slower_s, rel=1e-3)


# -------------------------------------------------------------------------------------------------------- pauses


DRAM = {"dram": {"capacity": 1e13}}


def test_hold_cost_of_6_gb(rig) -> None:
    given = inputs("hold_cost_60s")
    model = {**rig.LLAMA, "n_layers": 75, "n_heads": 1, "n_kv_heads": 1, "head_dim": 1000}  # 300 kB a token
    tokens = int(given["kv_GB"] * 1e9) // 300_000
    (pause,) = rig.run(rig.scenario(model, retention="keep"), rig.paused(tokens, given["wait_s"])).pauses
    assert pause["private_bytes"] == given["kv_GB"] * 1e9
    assert pause["hold_hbm_byte_s"] / 1e9 == approx("hold_cost_60s")


def test_hold_cost_of_32k_tokens(rig) -> None:
    given = inputs("hold_cost_45s_32k")
    run = rig.run(rig.scenario(retention="keep"), rig.paused(given["tokens"], given["wait_s"]))
    (pause,) = run.pauses
    assert pause["action"] == "keep"
    assert pause["hold_hbm_byte_s"] / 1e9 == approx("hold_cost_45s_32k")
    assert run.last["kept_byte_s"] / 1e9 == approx("hold_cost_45s_32k")


def there_and_back(rig, tokens: int, link_GBps: float, gpus: int = 1) -> tuple[float, float, dict[str, Any]]:
    """Offload a context and reload it; return the seconds of both moves and the turn that came back."""
    on = rig.scenario(link_GBps=link_GBps, gpus=gpus, retention="offload", tiers=DRAM)
    run = rig.run(on, rig.paused(tokens, 30.0))
    out, back = run.moves
    assert (out["kind"], back["kind"]) == ("offload", "reload")
    assert out["bytes"] == back["bytes"] == tokens * rig.TOKEN
    assert run.turns[1]["hit_dram_tokens"] == tokens
    return out["end_s"] - out["start_s"], back["end_s"] - back["start_s"], run.turns[1]


def test_reload_over_8_links(rig) -> None:
    given = inputs("reload_32k_8_links")
    out_s, in_s, turn = there_and_back(rig, given["tokens"], given["link_GBps"], given["links"])
    assert in_s == turn["reload_s"] == approx("reload_32k_8_links", "one_way_s")
    assert out_s + in_s == approx("reload_32k_8_links", "round_trip_s")


def test_round_trip_over_c2c(rig) -> None:
    given = inputs("c2c_round_trip_16k")
    out_s, in_s, _ = there_and_back(rig, given["tokens"], given["link_GBps"])
    assert out_s + in_s == approx("c2c_round_trip_16k")


def recompute(rig, given: dict[str, Any]) -> float:
    """Drop a context over a pause; return the seconds its turn spends on computing it again."""
    on = rig.scenario(rig.LINEAR, n_params=float(given["n_params"]), tflops=given["effective_TFLOPS"],
                      retention="drop", engine={"schedule": {"policy": "monolithic"}})
    _, turn = rig.run(on, rig.paused(given["tokens"], 30.0)).turns
    assert turn["recomputed_tokens"] == given["tokens"]
    return turn["recompute_s"]


def test_recompute_of_32k(rig) -> None:
    assert recompute(rig, inputs("recompute_32k")) == approx("recompute_32k")


def test_break_even_of_16k(rig) -> None:
    given, name = inputs("break_even_16k"), "break_even_16k"
    out_s, in_s, turn = there_and_back(rig, given["tokens"], given["link_GBps"])
    again_s = recompute(rig, given)
    assert turn["hit_dram_tokens"] * rig.TOKEN / rig.GiB == approx(name, "kv_GiB")
    assert again_s == approx(name, "recompute_s")
    assert in_s == approx(name, "reload_s")
    assert out_s + in_s == approx(name, "round_trip_s")
    assert again_s / in_s == approx(name, "ratio")


@pytest.mark.parametrize(("wait_s", "action"), [(0.20, "keep"), (0.23, "offload"), (60.0, "offload")])
def test_break_even_decides_at_the_round_trip(rig, wait_s: float, action: str) -> None:
    """With DRAM for nothing the break-even wait is the round trip itself, 215 ms."""
    given = inputs("break_even_16k")
    on = rig.scenario(n_params=70e9, tflops=given["effective_TFLOPS"], link_GBps=given["link_GBps"], tiers=DRAM,
                      retention={"policy": "break_even", "mu_dram": 0, "predictor": "oracle"})
    (pause,) = rig.run(on, rig.paused(given["tokens"], wait_s)).pauses
    assert pause["action"] == action


@pytest.mark.parametrize("direct", [True, False])
def test_nvme_read_of_5_gb(rig, direct: bool) -> None:
    """At 7 and 14 GB/s a drive; through host memory its last piece has to cross the host link as well."""
    given, name = inputs("nvme_read_5GB"), "nvme_read_5GB"
    tokens = int(float(given["bytes"]) / rig.TOKEN) // 16 * 16
    for GBps, seconds in zip(given["GBps"], CASES[name]["expected"], strict=True):
        drive = {"out_Bps": GBps * rig.GB, "in_Bps": GBps * rig.GB, "latency_s": 0}
        on = rig.scenario(retention={"policy": "offload", "to": "nvme"},
                          tiers={"nvme": {"capacity": 1e13, "direct": direct, "link": drive}})
        run = rig.run(on, rig.paused(tokens, 30.0))
        out, back = run.moves
        assert (out["target"], back["source"]) == ("nvme", "nvme")
        assert run.turns[1]["hit_nvme_tokens"] == tokens
        reload_s = run.turns[1]["reload_s"]
        assert reload_s == pytest.approx(seconds, rel=CASES[name]["rtol"])
        last_s = 0.0 if direct else 8 * rig.MiB / 50e9
        assert reload_s == pytest.approx(tokens * rig.TOKEN / (GBps * rig.GB) + last_s)
        assert back["end_s"] - back["start_s"] == pytest.approx(reload_s)


@pytest.mark.parametrize("wait_s", [inputs("prefetch_lead")["tool_min_s"], inputs("prefetch_lead")["tool_median_s"]])
def test_prefetch_lead(rig, wait_s: float) -> None:
    """A tool takes 2 s at least and 3 s in the median; with the reload begun 1.8 s into the pause nobody sees it."""
    given = inputs("prefetch_lead")
    on = rig.scenario(link_GBps=50.0, tiers=DRAM, retention={
        "policy": "offload", "predictor": {"kind": "constant", "wait": given["reload_timer_s"]}, "prefetch": True})
    run = rig.run(on, rig.paused(16_384, wait_s))
    out, back = run.moves
    pause = run.pauses[0]
    assert (out["kind"], back["kind"]) == ("offload", "prefetch")
    assert back["start_s"] - pause["start_s"] == pytest.approx(given["reload_timer_s"])
    assert back["end_s"] - pause["start_s"] < given["tool_min_s"]
    _, turn = run.turns
    assert turn["reload_s"] == 0.0
    assert turn["hit_hbm_tokens"] == 16_384


# ------------------------------------------------------------------------------------------------------- routing


@pytest.mark.parametrize(("mu", "home"), [(0.9, True), (0.1, False)])
def test_router_follows_the_prefix_unless_load_weighs_more(rig, mu: float, home: bool) -> None:
    given, numbers = inputs("router_score"), CASES["router_score"]["expected"]
    document = Stream(None, 0, "document")
    on = rig.scenario(replicas=2, gpus=2, parallelism={"tp": 1}, routing={"policy": "prefix_affinity", "mu": mu},
                      engine={"block_size": given["chunk"]})
    # the first turn keeps replica 0 busy, so the document lands on replica 1; it is busy when the question comes
    run = rig.run(on, rig.fresh(1000, 10), Turn(document, given["match"], 100),
                  Turn(Stream(document, given["match"]), given["S"], 1), at_s=[0.0, 0.0, 2.5])
    turns = {turn["trajectory"]: turn for turn in run.turns}
    assert (turns[0]["replica"], turns[1]["replica"]) == (0, 1)
    asked = turns[2]
    assert turns[0]["end_s"] < asked["ready_s"] < turns[1]["end_s"]
    assert asked["replica"] == (1 if home else 0)
    if home:
        assert asked["hit_hbm_tokens"] / asked["prompt_tokens"] == numbers["hit"]
        assert asked["hit_hbm_tokens"] // given["chunk"] == numbers["chunks_skipped"]
        assert asked["prompt_tokens"] - asked["hit_hbm_tokens"] == numbers["tokens_prefilled"]
