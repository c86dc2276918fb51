"""The worked numbers of a textbook chapter on KV-cache management, given by the closed forms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import hardware_profiles
from sim.analytic import break_even, fragmentation, roofline, routing, sizing

GB, KiB, MiB, GiB, TFLOP = 1e9, 2**10, 2**20, 2**30, 1e12
DATA = yaml.safe_load((Path(__file__).parent / "chapter_numbers.yaml").read_text(encoding="utf-8"))
CASES = {case["id"]: case for case in DATA["cases"]}
GEOMETRY = DATA["geometry"]["llama-3-70b"]
LAYERS, HEADS_KV, HEAD_DIM, D_MODEL = (GEOMETRY[key] for key in ("n_layers", "n_kv_heads", "head_dim", "d_model"))
TOKEN = sizing.kv_bytes_per_token(LAYERS, HEADS_KV, HEAD_DIM, GEOMETRY["dtype_bytes"])
FP16 = 2.0

Inputs = dict[str, Any]


def number(value: Any) -> float:
    """Read a number that YAML 1.1 leaves as text (70.6e9)."""
    return float(value)


def _node_pool(i: Inputs) -> float:
    gpus, each, unit = i["node_hbm"].replace(" x ", " ").split()
    assert unit == "GiB"
    return sizing.device_pool_bytes(int(gpus) * int(each) * GiB, 1.0, i["weights_GB"] * GB, 0.0,
                                    i["runtime_reserve_GB"] * GB) / GB


def _concurrency(i: Inputs) -> list[int]:
    pool = i["pool_GB"] * GB if "pool_GB" in i else i["pool_GiB"] * GiB
    return [sizing.concurrency(pool, tokens * TOKEN) for tokens in i["tokens"]]


def _mla(i: Inputs) -> float:
    # DeepSeek-67B (95 layers, 8 KV heads of 128) against DeepSeek-V2 (60 layers, 512 + 64): arXiv:2405.04434
    return sizing.kv_bytes_per_token(95, 8, 128, FP16) / sizing.mla_bytes_per_token(60, 512, 64, FP16)


def _static_eta(i: Inputs) -> dict[str, float]:
    pool_tokens = CASES["static_h100_bmax"]["inputs"]["pool_GiB"] * GiB / (160 * KiB)
    useful = i["requests"] * i["mean_S"]
    effective = fragmentation.effective_occupancy(useful, pool_tokens)
    return {"eta_alloc": fragmentation.allocation_efficiency(useful, i["requests"] * i["S_max"]),
            "eta_effective": effective, "waste": 1 - effective}


def _slack(i: Inputs) -> int:
    assert fragmentation.growth_buffer_tokens(i["tokens"]) == i["buffer"]
    return fragmentation.growth_slack(i["tokens"])


def _first_fit(i: Inputs) -> dict[str, Any]:
    holes = [i["allocs_GiB"][i["free"]], i["tail_free_GiB"]]
    assert i["pool_GiB"] == sum(i["allocs_GiB"].values()) + i["tail_free_GiB"]
    return {"free_GiB": sum(holes), "B_hole_usable": fragmentation.first_fit(holes, i["request_GiB"]) == 0}


def _buddy(i: Inputs) -> dict[str, float]:
    free = i["pool_GiB"] - i["allocated_GiB"]
    return {"eta_alloc": fragmentation.allocation_efficiency(i["useful_GiB"], i["allocated_GiB"]),
            "phi_ext": fragmentation.external_fragmentation(i["holes_MiB"], i["request_MiB"], free * 1024),
            "free_GiB": free}


def _tail(i: Inputs) -> str:
    for size in i["B"]:
        lengths = range(1, 10 * size + 1)
        mean = sum(fragmentation.tail_waste(length, size) for length in lengths) / len(lengths)
        assert mean == fragmentation.mean_tail_waste(size) == (size - 1) / 2
    return "(B-1)/2"


def _pool_blocks(i: Inputs) -> dict[str, int]:
    blocks = sizing.pool_blocks(i["pool_GiB_per_gpu"] * GiB, sizing.block_bytes(i["B"], TOKEN / 8))
    return {"blocks": blocks, "tokens": blocks * i["B"]}


def _tail_256(i: Inputs) -> dict[str, list[float]]:
    lost = [i["sequences"] * fragmentation.mean_tail_waste(size) * TOKEN / 8 / MiB for size in i["B"]]
    return {"MiB": lost, "fraction": [mib / i["pool_MiB"] for mib in lost]}


def _paged_vs_static(i: Inputs) -> dict[str, int]:
    pool = i["pool_GB"] * GB
    return {"static": fragmentation.static_capacity(pool, i["S_max"], TOKEN),
            "paged": fragmentation.paged_capacity(pool, i["mean_S"], i["B"], TOKEN)}


def _split(i: Inputs) -> dict[str, int]:
    full, tail = fragmentation.full_blocks(i["t"], i["B"])
    return {"full_blocks": full, "tail_tokens": tail, "usable_truncate": routing.hit_tokens(i["t"], i["B"])}


def _prefix_kv(i: Inputs) -> dict[str, float]:
    size = i["tokens"] * TOKEN
    return {"GiB": size / GiB, "MiB_per_gpu": size / i["tp"] / MiB}


def _prefill_flop(n_params: float, tokens: int) -> float:
    return break_even.recompute_flop(n_params, tokens, LAYERS, D_MODEL)


def _prefill_flops(i: Inputs) -> dict[str, float]:
    n_params = number(i["n_params"])
    return {"linear_TFLOP": roofline.linear_flop(n_params, i["tokens"]) / TFLOP,
            "attention_TFLOP": roofline.square_attention_flop(LAYERS, D_MODEL, i["tokens"]) / TFLOP,
            "total_TFLOP": _prefill_flop(n_params, i["tokens"]) / TFLOP}


def _node_step_s(n_params: float, tokens: int, attention: float = 0.0) -> float:
    """Time a step of `tokens` tokens on the chapter's node: 8 H100, 989 TFLOP/s and 3.35 TB/s each, MFU 0.45."""
    given = CASES["prefill_time_4096"]["inputs"]
    flop = roofline.linear_flop(n_params, tokens) + attention
    return roofline.step_s(flop, sizing.weight_bytes(n_params, FP16), given["peak_TFLOPS"] * TFLOP, 8 * 3.35e12,
                           mfu=given["mfu"])


def _prefill_time(i: Inputs) -> float:
    return _node_step_s(70e9, 4096, roofline.square_attention_flop(LAYERS, D_MODEL, 4096))


def _hit_time(new: int) -> float:
    return _node_step_s(70e9, new, roofline.chunk_attention_flop(LAYERS, D_MODEL, new, 4096))


def _prefill_hit(i: Inputs) -> str:
    time_s = _hit_time(i["new"])
    assert time_s == pytest.approx(140e9 / (8 * 3.35e12))
    assert time_s < 0.006
    return "< 0.006"


def _chunk_step_s(tokens: int, effective_TFLOPS: float, n_params: float = 70e9) -> float:
    return roofline.step_s(roofline.linear_flop(n_params, tokens), sizing.weight_bytes(n_params, FP16),
                           effective_TFLOPS * TFLOP, 3.0e12)


def _decode(i: Inputs) -> float:
    n_params = number(i["n_params"])
    return roofline.step_s(roofline.linear_flop(n_params, i["batch"]), sizing.weight_bytes(n_params, FP16),
                           1000 * TFLOP, i["hbm_TBps"] * 1e12)


def _hold(i: Inputs) -> float:
    held = i["kv_GB"] * GB if "kv_GB" in i else i["tokens"] * TOKEN
    return break_even.hold_cost_byte_s(held, i["wait_s"]) / GB


def _reload(i: Inputs) -> dict[str, float]:
    moved, rate = i["tokens"] * TOKEN, i["links"] * i["link_GBps"] * GB
    return {"one_way_s": break_even.reload_s(moved, rate), "round_trip_s": break_even.round_trip_s(moved, rate, rate)}


def _recompute(i: Inputs) -> float:
    return break_even.recompute_s(number(i["n_params"]), i["tokens"], LAYERS, D_MODEL, i["effective_TFLOPS"] * TFLOP,
                                  attention=False)


def _reload_vs_recompute(i: Inputs) -> float:
    reload = _reload(CASES["reload_32k_8_links"]["inputs"])["one_way_s"]
    return _recompute(CASES["recompute_32k"]["inputs"]) / reload


def _break_even(i: Inputs) -> dict[str, float]:
    held, rate = i["tokens"] * TOKEN, i["link_GBps"] * GB
    recompute, reload = _recompute(i), break_even.reload_s(held, rate)
    trip = break_even.round_trip_s(held, rate, rate)
    assert break_even.break_even_wait_s(trip, 1.0, 0.0) == trip
    return {"kv_GiB": held / GiB, "recompute_s": recompute, "reload_s": reload, "round_trip_s": trip,
            "ratio": recompute / reload}


def _c2c(i: Inputs) -> float:
    rate = i["link_GBps"] * GB
    return break_even.round_trip_s(i["tokens"] * TOKEN, rate, rate)


def _with_sharing(pool: float) -> dict[str, int]:
    given = CASES["shared_capacity_node"]["inputs"]
    whole, shared = (given["context"] + given["output"]) * TOKEN, given["shared"] * TOKEN
    return {"unshared": sizing.concurrency(pool, whole, given["headroom"]),
            "shared": sizing.shared_concurrency(pool, shared, whole - shared, given["headroom"])}


def _envelope(i: Inputs) -> dict[str, float]:
    pool = i["gpus"] * sizing.device_pool_bytes(i["hbm_GB"] * GB, 1.0, i["weights_GB_per_gpu"] * GB, 0.0,
                                                i["reserve_GB_per_gpu"] * GB)
    return {"pool_GB": pool / GB, "tokens": sizing.pool_tokens(pool, TOKEN),
            "tokens_after_headroom": sizing.pool_tokens(0.9 * pool, TOKEN), **_with_sharing(pool)}


def _router(i: Inputs) -> dict[str, float]:
    hit = routing.router_score(i["match"], i["S"], 0.0, 1.0, 1.0)
    skipped = routing.hit_tokens(i["match"], i["chunk"])
    return {"hit": hit, "chunks_skipped": skipped // i["chunk"], "tokens_prefilled": i["S"] - skipped}


FORMS: dict[str, Callable[[Inputs], Any]] = {
    "kv_bytes_per_token_70b": lambda i: sizing.kv_bytes_per_token(i["L"], i["H_kv"], i["d_head"], i["b"]),
    "trajectory_8k": lambda i: i["tokens"] * TOKEN / GB,
    "trajectory_32k": lambda i: i["tokens"] * TOKEN / GB,
    "trajectory_128k": lambda i: i["tokens"] * TOKEN / GB,
    "wall_1m_tokens": lambda i: i["tokens"] * TOKEN / GB,
    "wall_128k_tokens": lambda i: i["tokens"] * TOKEN / GiB,
    "node_kv_pool_decimal": _node_pool,
    "concurrency_decimal_pool": _concurrency,
    "concurrency_480GiB_pool": _concurrency,
    "mla_reduction": _mla,
    "static_efficiency": lambda i: fragmentation.static_efficiency(i["mean_S"], i["S_max"]),
    "static_h100_bmax":
        lambda i: fragmentation.static_capacity(i["pool_GiB"] * GiB, i["S_max"], i["m_token_KiB"] * KiB),
    "static_h100_eta": _static_eta,
    "growth_transient": lambda i: fragmentation.growth_peak({"double": 2.0}[i["grow"]]),
    "geometric_slack_example": _slack,
    "first_fit_holes": _first_fit,
    "buddy_phi_ext": _buddy,
    "tail_waste_formula": _tail,
    "block_bytes_per_gpu": lambda i: [sizing.block_bytes(size, TOKEN / i["tp"]) for size in i["B"]],
    "pool_blocks": _pool_blocks,
    "tail_waste_256_seqs": _tail_256,
    "paged_waste_mean_2048": lambda i: [fragmentation.mean_tail_waste_share(i["mean_S"], size) for size in i["B"]],
    "paged_vs_static_concurrency": _paged_vs_static,
    "block_split": _split,
    "deep_copy_fork_4": lambda i: fragmentation.deep_copy_bytes(i["prefix"], i["children"], TOKEN) / GiB,
    "prefix_kv_4096": _prefix_kv,
    "prefill_flops_4096": _prefill_flops,
    "prefill_time_4096": _prefill_time,
    "prefill_time_hit_32": _prefill_hit,
    "prefix_ttft_ratio": lambda i: _prefill_time(i) / _hit_time(32),
    "ridge_point": lambda i: roofline.ridge_point(i["peak_TFLOPS"] * TFLOP, i["hbm_TBps"] * 1e12),
    "decode_step_32": _decode,
    "monolithic_prefill_4096": lambda i: _chunk_step_s(4096, i["effective_TFLOPS"]),
    "chunked_step_512":
        lambda i: {"step_s": _chunk_step_s(i["chunk"] + i["batch"], i["effective_TFLOPS"]),
                   "steps": roofline.chunks(4096, i["chunk"])},
    "hold_cost_60s": _hold,
    "hold_cost_45s_32k": _hold,
    "reload_32k_8_links": _reload,
    "recompute_32k": _recompute,
    "reload_vs_recompute_32k": _reload_vs_recompute,
    "break_even_16k": _break_even,
    "c2c_round_trip_16k": _c2c,
    "nvme_read_5GB": lambda i: [break_even.reload_s(number(i["bytes"]), rate * GB) for rate in i["GBps"]],
    "shared_capacity_node":
        lambda i: {**_with_sharing(i["pool_GB"] * GB), "shared_prefix_GB": i["shared"] * TOKEN / GB},
    "h100_node_envelope": _envelope,
    "b200_node_envelope": _envelope,
    "router_score": _router,
}
ANALYTIC = [name for name, case in CASES.items() if "analytic" in case["kind"]]


@pytest.mark.parametrize("name", ANALYTIC)
def test_closed_form_gives_the_worked_number(name: str) -> None:
    case = CASES[name]
    given = FORMS[name](case.get("inputs") or {})
    check(given, case["expected"], case.get("rtol", 2e-3 if name == "shared_capacity_node" else 1e-9))


def check(given: Any, expected: Any, rtol: float) -> None:
    if isinstance(expected, dict):
        for key, value in expected.items():
            check(given[key], value, rtol)
    elif isinstance(expected, list):
        assert len(given) == len(expected)
        for one, value in zip(given, expected, strict=True):
            check(one, value, rtol)
    elif isinstance(expected, str) or (isinstance(expected, int) and isinstance(given, int)):
        assert given == expected
    else:
        assert given == pytest.approx(expected, rel=rtol)


def test_the_catalogue_has_the_chapters_model() -> None:
    model = hardware_profiles.model("llama-3.1-70b")
    assert model.kv_bytes_per_token("bf16") == TOKEN == 327680
    assert model.n_params == pytest.approx(number(GEOMETRY["n_params"]), rel=1e-3)
    assert (model.n_heads, model.d_model) == (GEOMETRY["n_heads"], D_MODEL)


def test_every_worked_number_is_explained_in_the_docs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "worked_numbers.md").read_text(encoding="utf-8")
    assert [name for name in CASES if f"`{name}`" not in text] == []
