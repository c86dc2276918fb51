"""The worked numbers of a textbook chapter on contiguous allocation, given by the simulator on that configuration.

Contexts stay where they are while their trajectories wait for a tool, and the run ends during that wait.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sim.metrics.space import COLUMNS, fragmentation
from sim.records import SPACE_COLUMNS
from workloads.trajectory import Stream, Turn

DATA = yaml.safe_load((Path(__file__).parent / "chapter_numbers.yaml").read_text(encoding="utf-8"))
CASES = {case["id"]: case for case in DATA["cases"]}
#: A model of 256 KiB a token: 4,096 tokens a GiB.
ROUND = {"n_params": 1_000_000_000, "n_layers": 64, "n_heads": 64, "n_kv_heads": 8, "head_dim": 128, "d_model": 8192}
LONG_S, END_S = 7200.0, 3600.0


def inputs(name: str) -> dict[str, Any]:
    return CASES[name]["inputs"]


def expected(name: str) -> Any:
    return CASES[name]["expected"]


def around(mean: int, width: int) -> list[int]:
    """Return lengths that are uniform modulo `width` and have this mean, in a fixed random order."""
    lengths = [mean - width // 2 + i for i in range(width)] + [mean - width // 2 + 1 + i for i in range(width)]
    assert sum(lengths) == mean * len(lengths)
    random.Random(0).shuffle(lengths)
    return lengths


def on(rig: Any, allocator: Any, *, pool: float, model: Any = None, **fields: Any) -> Any:
    engine = {"schedule": rig.WHOLE, "allocator": allocator, **fields.pop("engine", {})}
    return rig.scenario(model or rig.LLAMA, pool=pool, retention="keep", duration=END_S, engine=engine, **fields)


def held(rig: Any, scenario: Any, lengths: list[int], **options: Any) -> dict[str, float]:
    """Let contexts of these lengths wait; return the last sample."""
    return rig.run(scenario, *(rig.paused(length, LONG_S, **options) for length in lengths)).last


def pictures(run: Any) -> dict[str, np.ndarray]:
    columns = dict(zip(SPACE_COLUMNS, zip(*run.totals.spaces, strict=True), strict=True))
    return {name: np.array(columns[name]) for name in (*COLUMNS, "trajectory")}


# ------------------------------------------------------------------------------------------------ worst-case buffers


def test_static_efficiency(rig: Any) -> None:
    given = inputs("static_efficiency")
    scenario = on(rig, {"kind": "static", "s_max": given["S_max"]}, pool=64 * given["S_max"] * rig.TOKEN)
    sample = held(rig, scenario, around(given["mean_S"], 32))
    assert sample["allocated_tokens"] == 64 * given["S_max"]
    assert sample["useful_tokens"] / sample["allocated_tokens"] == expected("static_efficiency")


def test_static_buffers_on_an_h100(rig: Any) -> None:
    """160 KiB a token: the 70B model's KV in eight bits."""
    given, mean = inputs("static_h100_bmax"), inputs("static_h100_eta")["mean_S"]
    scenario = on(rig, {"kind": "static", "s_max": given["S_max"]}, pool=given["pool_GiB"] * rig.GiB, kv_dtype="fp8")
    run = rig.run(scenario, *(rig.fresh(mean - 64, 64) for _ in range(9)))
    assert run.most_at_once() == expected("static_h100_bmax")
    sample = held(rig, scenario, [mean] * inputs("static_h100_eta")["requests"])
    pool = given["pool_GiB"] * rig.GiB // (given["m_token_KiB"] * 1024)
    useful = sample["useful_tokens"]
    assert expected("static_h100_eta") == {
        "eta_alloc": useful / sample["allocated_tokens"], "eta_effective": useful / pool, "waste": 1 - useful / pool}


def test_concurrency_with_worst_case_buffers_and_with_blocks(rig: Any) -> None:
    given = inputs("paged_vs_static_concurrency")
    lengths = around(given["mean_S"], given["B"]) * 26
    allocators = {"static": {"kind": "static", "s_max": given["S_max"]}, "paged": "paged"}
    most = {}
    for name, allocator in allocators.items():
        scenario = on(rig, allocator, pool=given["pool_GB"] * rig.GB, engine={"block_size": given["B"]})
        most[name] = rig.run(scenario, *(rig.fresh(length - 8, 8) for length in lengths)).most_at_once()
    assert most == expected("paged_vs_static_concurrency")


# -------------------------------------------------------------------------------------------------- growing buffers


def test_growth_transient(rig: Any) -> None:
    """The smallest pool in which a full buffer of N tokens doubles, and nothing is recomputed for it, is three N."""
    assert inputs("growth_transient")["grow"] == "double"
    chunk = {"schedule": {"policy": "chunked", "token_budget": 1 << 30}}
    for full in (64, 2048):
        def preempted(slots: int, full: int = full) -> bool:
            scenario = on(rig, "growth", pool=slots * rig.TOKEN, engine=chunk)
            run = rig.run(scenario, rig.fresh(full - 1, 10))
            assert [turn["status"] for turn in run.turns] == ["finished"]
            assert run.totals.counts["buffer_growths"] == 1 - run.totals.counts["preemptions"]
            return bool(run.totals.counts["preemptions"])

        low, high = 2 * full, 8 * full
        assert preempted(low)
        assert not preempted(high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if preempted(middle) else (low, middle)
        assert high / full == expected("growth_transient")


def test_the_copy_and_the_calls_of_a_growth_stop_the_step_loop(rig: Any) -> None:
    full, stall_s = 2048, 1e-3
    chunk = {"schedule": {"policy": "chunked", "token_budget": 1 << 30}}
    run = rig.run(on(rig, "growth", pool=480 * rig.GiB, engine=chunk), rig.fresh(full - 1, 10))
    copy_s = 2 * full * rig.TOKEN / (8 * 3.35e12)
    assert run.last["gpu_copy_stall_cum_s"] == pytest.approx(3 * stall_s + copy_s)  # malloc; malloc and free
    blocks = rig.run(on(rig, "paged", pool=480 * rig.GiB, engine=chunk), rig.fresh(full - 1, 10))
    assert run.turns[0]["end_s"] - blocks.turns[0]["end_s"] == pytest.approx(3 * stall_s + copy_s)


def test_geometric_slack(rig: Any) -> None:
    given = inputs("geometric_slack_example")
    for allocator in ("growth", "buddy"):
        sample = held(rig, on(rig, allocator, pool=480 * rig.GiB), [given["tokens"]])
        assert sample["allocated_tokens"] == given["buffer"]
        assert sample["allocated_tokens"] - sample["useful_tokens"] == expected("geometric_slack_example")


def test_first_fit_passes_a_hole_that_is_too_small_and_takes_the_tail(rig: Any) -> None:
    given, numbers = inputs("first_fit_holes"), expected("first_fit_holes")
    unit = 4096
    sizes = {name: size * unit for name, size in given["allocs_GiB"].items()}
    roots = {name: rig.paused(size - 1, LONG_S) for name, size in sizes.items()}
    gone = given["free"]
    roots[gone] = rig.fresh(sizes[gone] - 2000, 2000)  # decodes until the others are there, and ends
    roots["D"] = rig.paused(given["request_GiB"] * unit - 1, LONG_S)
    scenario = on(rig, {"kind": "growth", "initial": "prompt"}, pool=given["pool_GiB"] * rig.GiB, model=ROUND)
    run = rig.run(scenario, *roots.values(), at_s=[0.0, 10.0, 10.1, 1000.0])
    before, after = (part(pictures(run), moment) for moment in (1000.0, END_S))
    assert run.turns[-1]["ready_s"] == 1000.0
    free = before["use"] == "hole"
    holes = (before["end"] - before["start"])[free] / unit
    assert holes.sum() == numbers["free_GiB"]
    assert list(holes) == [given["allocs_GiB"][gone], given["tail_free_GiB"]]
    assert fragmentation(before, given["request_GiB"] * unit)["external_fragmentation"] == pytest.approx([1 / 5])
    (start,) = after["start"][(after["trajectory"] == 3) & (after["use"] == "useful")] / unit
    assert (start < sum(given["allocs_GiB"].values())) == numbers["B_hole_usable"]
    assert start == sum(given["allocs_GiB"].values())


def part(pictures: dict[str, np.ndarray], time_s: float) -> dict[str, np.ndarray]:
    """Return the picture of one moment."""
    rows = pictures["time_s"] == time_s
    assert rows.any()
    return {name: values[rows] for name, values in pictures.items()}


# ---------------------------------------------------------------------------------------------------------- buddies


def test_buddy_external_fragmentation(rig: Any) -> None:
    """A token stands for 0.1 GiB; five of fifteen contexts return, and what they leave is nobody's buddy."""
    given, numbers = inputs("buddy_phi_ext"), expected("buddy_phi_ext")
    roots = []
    for number, tokens in enumerate([4, 3, 3, 3, 3, *[5] * 10]):
        root = rig.paused(tokens, LONG_S, output=2)
        if number in (0, 8, 10, 12, 14):
            root.next = []
            root.then(Turn(Stream(root.stream, 1), 2, 1, wait_s=100.0, index=1))
        roots.append(root)
    run = rig.run(on(rig, "buddy", pool=given["pool_GiB"] * 10 * rig.TOKEN), *roots, at_s=range(15))
    assert run.totals.counts["forced_evictions"] == run.totals.counts["preemptions"] == 0
    assert run.last["allocated_tokens"] / 10 == given["allocated_GiB"]
    assert run.last["useful_tokens"] / 10 == given["useful_GiB"]
    measures = fragmentation(part(pictures(run), END_S), -(-given["request_MiB"] * 10 // 1024))
    assert numbers == {"eta_alloc": measures["allocation_efficiency"][0],
                       "phi_ext": measures["external_fragmentation"][0],
                       "free_GiB": (given["pool_GiB"] * 10 - run.last["allocated_tokens"]) / 10}


# ------------------------------------------------------------------------------------------------------------ forks


@pytest.mark.parametrize("allocator", ["static", "growth", "buddy"])
def test_a_fork_of_contiguous_buffers_copies_everything(rig: Any, allocator: str) -> None:
    """The main line goes on in its buffer; each branch gets a copy."""
    given = inputs("deep_copy_fork_4")
    trunk = Stream()
    parent = Turn(trunk, given["prefix"], 1)
    parent.then(Turn(trunk, given["prefix"] + 8, 100, index=1))
    for number in range(given["children"]):
        parent.then(Turn(Stream(trunk, given["prefix"]), given["prefix"] + 40, 100, branch=number + 1,
                         index=number + 2))
    kind = {"kind": "static", "s_max": 16_384} if allocator == "static" else {"kind": allocator}
    if allocator == "growth":
        kind["malloc_stall"] = 0
    run = rig.run(on(rig, kind, pool=480 * rig.GiB), parent)
    assert [turn["hit_hbm_tokens"] for turn in run.turns if not turn["first"]] == [given["prefix"]] * 5
    assert run.totals.counts["buffer_forks"] == given["children"]
    copied = run.totals.counts["buffer_copied_tokens"] * rig.TOKEN
    assert copied / rig.GiB == expected("deep_copy_fork_4")
    assert run.last["gpu_copy_stall_cum_s"] == pytest.approx(2 * copied / (8 * 3.35e12))
