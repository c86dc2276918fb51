"""The worked numbers of a textbook chapter on KV-cache management, given by the simulator run on that configuration."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from sim.memory.allocators.paged import BlockPool
from sim.memory.kv_cache import KvCache
from sim.memory.prefix_tree import PrefixTree
from sim.scenario.deployment import deploy
from workloads.trajectory import Stream, Turn

DATA = yaml.safe_load((Path(__file__).parent / "chapter_numbers.yaml").read_text(encoding="utf-8"))
CASES = {case["id"]: case for case in DATA["cases"]}

#: Entries that the simulator must give but cannot yet, and what they wait for.
NOT_BUILT: dict[str, str] = {}


def inputs(name: str) -> dict[str, Any]:
    return CASES[name]["inputs"]


def expected(name: str) -> Any:
    return CASES[name]["expected"]


def rtol(name: str) -> float:
    return CASES[name].get("rtol", 1e-9)


def test_every_entry_for_the_simulator_is_tested_here_or_waits_for_something() -> None:
    wanted = {name for name, case in CASES.items() if "sim" in case["kind"]}
    text = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_chapter_*.py"))
    tested = {name for name in wanted if text.count(f'"{name}"') > (name in NOT_BUILT)}
    assert tested | set(NOT_BUILT) == wanted
    assert tested & set(NOT_BUILT) == set()


# ------------------------------------------------------------------------------------------------ concurrency


def pool_bytes(given: dict[str, Any]) -> float:
    return given["pool_GB"] * 1e9 if "pool_GB" in given else given["pool_GiB"] * 2**30


@pytest.mark.parametrize("name", ["concurrency_decimal_pool", "concurrency_480GiB_pool"])
def test_concurrency(rig, name: str) -> None:
    """Turns that are promised prompt and output: as many run at once as the pool holds, and the others queue."""
    for tokens, most in zip(inputs(name)["tokens"], expected(name), strict=True):
        on = rig.scenario(pool=pool_bytes(inputs(name)), engine={"schedule": rig.WHOLE})
        run = rig.run(on, *(rig.fresh(tokens - 64, 64) for _ in range(most + 3)))
        assert run.most_at_once() == most
        assert [turn["status"] for turn in run.turns] == ["finished"] * (most + 3)
        assert sum(turn["queue_blocks_s"] > 0 for turn in run.turns) == 3
        assert run.totals.counts["preemptions"] == 0


@pytest.mark.parametrize("reserve", ["chunk", "prompt", "prompt_and_output"])
def test_the_13th_trajectory_at_128k_queues_behind_12_that_wait_for_a_tool(rig, reserve: str) -> None:
    """Contexts kept over a pause fill the pool as well; what finds no room waits, and runs later."""
    most = expected("concurrency_480GiB_pool")[1]
    on = rig.scenario(pool=480 * rig.GiB, retention="keep",
                      engine={"schedule": {"policy": "chunked", "token_budget": 1 << 30, "reserve": reserve}})
    run = rig.run(on, *(rig.paused(131_072 - 16, 3600.0, more=15) for _ in range(most + 1)))
    first = [turn for turn in run.turns if turn["first"]]
    assert [turn["status"] for turn in run.turns] == ["finished"] * (2 * most + 2)
    assert sum(turn["queue_blocks_s"] > 0 for turn in first) == 1
    early = [turn for turn in first if turn["end_s"] < 3600.0]
    assert len(early) == most
    assert run.totals.counts["rejections"] == run.totals.counts["forced_evictions"] == 0


def test_paged_concurrency(rig) -> None:
    given = inputs("paged_vs_static_concurrency")
    half = given["B"] // 2
    # two sets of lengths that are uniform modulo B; together their mean is the one given
    lengths = [given["mean_S"] - half + i for i in range(given["B"])] + [
        given["mean_S"] - half + 1 + i for i in range(given["B"])]
    assert sum(lengths) / len(lengths) == given["mean_S"]
    lengths *= 26
    random.Random(0).shuffle(lengths)
    on = rig.scenario(pool=given["pool_GB"] * rig.GB, engine={"schedule": rig.WHOLE, "block_size": given["B"]})
    run = rig.run(on, *(rig.fresh(length - 8, 8) for length in lengths))
    assert run.most_at_once() == expected("paged_vs_static_concurrency")["paged"]
    assert all(turn["status"] == "finished" for turn in run.turns)


def shared_and_not(rig, on: Any) -> dict[str, int]:
    """Fill a node with turns of the chapter's context, first unrelated ones, then ones that share a cached prefix."""
    given = inputs("shared_capacity_node")
    context, output, shared = given["context"], given["output"], given["shared"]
    count = expected("b200_node_envelope")["shared"] + 10
    alone = rig.run(on, *(rig.fresh(context, output) for _ in range(count)))
    system = Stream(None, 0, "system")
    warm = Turn(system, shared, 1)
    rest = [Turn(Stream(system, shared), context, output) for _ in range(count)]
    together = rig.run(on, warm, *rest, at_s=[0.0] + [60.0] * count)
    turns = [turn for turn in together.turns if turn["trajectory"] > 0]
    (hit,) = {turn["hit_hbm_tokens"] for turn in turns}
    assert hit == shared
    return {"unshared": alone.most_at_once(), "shared": together.most_at_once(),
            "shared_prefix_GB": hit * rig.TOKEN / rig.GB}


def test_shared_capacity(rig) -> None:
    given = inputs("shared_capacity_node")
    on = rig.scenario(pool=given["pool_GB"] * rig.GB, engine={"schedule": rig.WHOLE, "headroom": given["headroom"]})
    found = shared_and_not(rig, on)
    assert found == {**expected("shared_capacity_node"), "shared_prefix_GB": pytest.approx(8.053, rel=1e-4)}


@pytest.mark.parametrize("name", ["h100_node_envelope", "b200_node_envelope"])
def test_node_envelope(rig, name: str) -> None:
    """The same on whole nodes: pool from the hardware, 17.5 GB of weights and 4.5 GB of the rest a GPU."""
    given, numbers = inputs(name), expected(name)
    weights = given["weights_GB_per_gpu"] * 1e9 * given["gpus"]
    on = rig.scenario(pool=None, n_params=weights / 2, gpus=given["gpus"], gpu={"hbm_bytes": given["hbm_GB"] * 1e9},
                      engine={"schedule": rig.WHOLE, "headroom": 0.10, "memory_utilization": 1.0,
                              "activations": given["reserve_GB_per_gpu"] * 1e9, "runtime": 0})
    node = deploy(on)
    assert node.pool_bytes / 1e9 == pytest.approx(numbers["pool_GB"])
    assert node.pool_bytes // node.kv_bytes_per_token == numbers["tokens"]
    if "tokens_after_headroom" in numbers:
        assert 0.9 * node.pool_bytes // node.kv_bytes_per_token == numbers["tokens_after_headroom"]
    found = shared_and_not(rig, on)
    assert (found["unshared"], found["shared"]) == (numbers["unshared"], numbers["shared"])


# --------------------------------------------------------------------------------------------------- tail waste


def tails(rig, lengths: list[int], block: int, pool: float, output: int) -> tuple[float, float]:
    """Decode sequences of these lengths side by side; return the bytes lost in tails on average, and those used."""
    on = rig.scenario(pool=pool, tflops=1e9, engine={"schedule": rig.WHOLE, "block_size": block})  # prefill is short
    run = rig.run(on, [rig.fresh(length, output) for length in lengths])
    decode_s = run.turns[0]["end_s"] - run.turns[0]["first_token_s"]
    assert all(turn["end_s"] - turn["first_token_s"] == pytest.approx(decode_s) for turn in run.turns)
    return run.last["tail_waste_byte_s"] / decode_s, run.last["decoding_byte_s"] / decode_s


def test_tail_waste_formula(rig) -> None:
    assert expected("tail_waste_formula") == "(B-1)/2"
    for block in inputs("tail_waste_formula")["B"]:
        lengths = [1000 + i for i in range(2 * block)]
        lost, _ = tails(rig, lengths, block, 480 * rig.GiB, 300)
        assert lost / len(lengths) / rig.TOKEN == pytest.approx((block - 1) / 2)


def test_tail_waste_of_256_sequences(rig) -> None:
    given, numbers = inputs("tail_waste_256_seqs"), expected("tail_waste_256_seqs")
    pool = 8 * given["pool_MiB"] * rig.MiB
    for block, mib, fraction in zip(given["B"], numbers["MiB"], numbers["fraction"], strict=True):
        lost, _ = tails(rig, [1000 + i for i in range(given["sequences"])], block, pool, 300)
        assert lost / 8 / rig.MiB == pytest.approx(mib, rel=rtol("tail_waste_256_seqs"))
        assert lost / pool == pytest.approx(fraction, rel=rtol("tail_waste_256_seqs"))


def test_paged_waste_at_mean_length_2048(rig) -> None:
    for block, share in zip(inputs("paged_waste_mean_2048")["B"], expected("paged_waste_mean_2048"), strict=True):
        lengths = [2048 - 64 - 128 + i for i in range(128)]  # they grow by 256 while decoding
        lost, used = tails(rig, lengths, block, 480 * rig.GiB, 257)
        assert lost / (lost + used) == pytest.approx(share, rel=rtol("paged_waste_mean_2048"))


# ----------------------------------------------------------------------------------------------------- branching


def fork(rig, prefix: int, children: int, block: int = 16) -> Any:
    """A turn of `prefix` tokens, then children that grow out of its end and decode side by side."""
    trunk = Stream(None, 0, "trunk")
    parent = Turn(trunk, prefix, 1)
    for number in range(children):
        parent.then(Turn(Stream(trunk, prefix), prefix + 40, 200, branch=number + 1, index=number + 1))
    on = rig.scenario(engine={"schedule": rig.WHOLE, "block_size": block, "prefix_cache": {"tail": "cow"}})
    return rig.run(on, parent)


def test_a_fork_copies_nothing(rig) -> None:
    given = inputs("cow_fork_bytes_at_fork")
    block, children, prefix = 16, given["children"], given["prefix"]
    run = fork(rig, prefix, children)
    assert run.totals.counts["cow_copies"] * block * rig.TOKEN == expected("cow_fork_bytes_at_fork")
    assert [turn["hit_hbm_tokens"] for turn in run.turns if not turn["first"]] == [prefix] * children
    # at the fork itself the children's tables reach the parent's blocks and nothing is taken
    pool = BlockPool(1000, block)
    kv = KvCache(pool, PrefixTree(pool, exact_tail=True))
    trunk = Stream()
    parent = kv.open(trunk, prefix, None, 0, 0.0)
    kv.grow(parent, prefix, 0.0)
    kv.close(parent, prefix, 0.0)
    free = pool.free
    for _ in range(children):
        child = Stream(trunk, prefix)
        node, found = kv.match(child, prefix + 1)
        table = kv.open(child, prefix + 100, node, found, 0.0)
        assert (found, table.end) == (prefix, prefix // block)
    assert (free - pool.free) * block * rig.TOKEN == expected("cow_fork_bytes_at_fork")


def test_the_first_write_copies_a_partial_tail_block(rig) -> None:
    given = inputs("cow_first_write")
    run = fork(rig, given["prefix"], given["children"], given["B"])
    assert run.totals.counts["cow_copies"] == expected("cow_first_write")["blocks_copied"]
    assert [turn["hit_hbm_tokens"] for turn in run.turns if not turn["first"]] == [given["prefix"]] * given["children"]
    aligned = fork(rig, given["prefix"] // given["B"] * given["B"], given["children"], given["B"])
    assert aligned.totals.counts["cow_copies"] == 0
