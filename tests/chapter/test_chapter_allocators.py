"""The worked numbers of a textbook chapter on contiguous and paged allocation, given by the allocators themselves."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from sim.memory.allocators.address_space import AddressSpace
from sim.memory.allocators.base import NOTHING, Allocator, Stats
from sim.memory.allocators.block_tables import PagedAllocator
from sim.memory.allocators.buddy import BuddyAllocator
from sim.memory.allocators.growth import GrowthAllocator
from sim.memory.allocators.paged import BlockPool
from sim.memory.allocators.static import StaticAllocator

DATA = yaml.safe_load((Path(__file__).parent / "chapter_numbers.yaml").read_text(encoding="utf-8"))
CASES = {case["id"]: case for case in DATA["cases"]}
GB, KiB, GiB = 1e9, 2**10, 2**30
TOKEN = 327_680


def inputs(name: str) -> dict[str, Any]:
    return CASES[name]["inputs"]


def expected(name: str) -> Any:
    return CASES[name]["expected"]


def fill(allocator: Allocator, lengths: list[int]) -> int:
    """Start sequences of these lengths, in turn, until one finds no room; return how many there are."""
    for number in count():
        if not allocator.can_extend(number, lengths[number % len(lengths)]):
            return number
        allocator.extend(number, lengths[number % len(lengths)])
    raise AssertionError


def around(mean: int, width: int) -> list[int]:
    """Return lengths that are uniform modulo `width` and have this mean, in a fixed random order."""
    lengths = [mean - width // 2 + i for i in range(width)] + [mean - width // 2 + 1 + i for i in range(width)]
    assert sum(lengths) == mean * len(lengths)
    random.Random(0).shuffle(lengths)
    return lengths


# ------------------------------------------------------------------------------------------------ worst-case buffers


def test_static_efficiency() -> None:
    given = inputs("static_efficiency")
    allocator = StaticAllocator(64 * given["S_max"], given["S_max"])
    assert fill(allocator, around(given["mean_S"], 32)) == 64
    assert allocator.stats().allocation_efficiency == expected("static_efficiency")


def h100() -> tuple[int, Stats]:
    """Fill the chapter's GPU (160 KiB a token) with worst-case buffers that hold the mean length."""
    given = inputs("static_h100_bmax")
    allocator = StaticAllocator(given["pool_GiB"] * GiB // (given["m_token_KiB"] * KiB), given["S_max"])
    return fill(allocator, [inputs("static_h100_eta")["mean_S"]]), allocator.stats()


def test_static_buffers_on_an_h100() -> None:
    requests, stats = h100()
    assert requests == expected("static_h100_bmax") == inputs("static_h100_eta")["requests"]
    assert {"eta_alloc": stats.allocation_efficiency, "eta_effective": stats.effective_occupancy,
            "waste": 1 - stats.effective_occupancy} == expected("static_h100_eta")
    assert stats.free == 0


def test_concurrency_with_worst_case_buffers_and_with_blocks() -> None:
    given = inputs("paged_vs_static_concurrency")
    pool = given["pool_GB"] * GB
    lengths = around(given["mean_S"], given["B"])
    static = StaticAllocator(int(pool // TOKEN), given["S_max"])
    paged = PagedAllocator(BlockPool(int(pool // (given["B"] * TOKEN)), given["B"]))
    assert {"static": fill(static, lengths), "paged": fill(paged, lengths)} == expected("paged_vs_static_concurrency")
    assert static.stats().effective_occupancy < 0.0625 < 0.99 < paged.stats().effective_occupancy


# -------------------------------------------------------------------------------------------------- growing buffers


def test_growth_transient() -> None:
    """The chapter's three steps: a full buffer of N, one of 2 N beside it, the first one freed and left as a hole."""
    assert inputs("growth_transient")["grow"] == "double"
    for full in (1, 64, 2048):
        allocator = GrowthAllocator(16 * full, initial=None)
        allocator.extend(0, full)
        growth = allocator.extend(0, full + 1)
        assert (growth.copied, growth.mallocs, growth.frees) == (full, 1, 1)
        assert growth.transient == full
        assert allocator.stats().peak / full == expected("growth_transient")
        assert allocator.stats().allocated == 2 * full
        assert allocator.stats().holes == (full, 13 * full)


def test_growth_is_refused_when_old_and_new_buffer_do_not_fit_together() -> None:
    allocator = GrowthAllocator(2 * 1024 + 1023, initial=None)
    allocator.extend(0, 1024)
    assert not allocator.can_extend(0, 1025)
    assert allocator.fits(1025)


def test_geometric_slack() -> None:
    given = inputs("geometric_slack_example")
    allocator = GrowthAllocator(8192)
    for tokens in range(1, given["tokens"] + 1):
        allocator.extend(0, tokens)
    stats = allocator.stats()
    assert allocator.capacity_tokens(0) == stats.allocated == given["buffer"]
    assert stats.allocated - stats.useful == expected("geometric_slack_example")


def test_first_fit_passes_a_hole_that_is_too_small_and_takes_the_tail() -> None:
    """The chapter lets D stall, but the tail holds it; what is left to say is that a fifth of free memory is no use."""
    given, numbers = inputs("first_fit_holes"), expected("first_fit_holes")
    allocator = GrowthAllocator(given["pool_GiB"], initial=None)  # a slot is 1 GiB
    names = list(given["allocs_GiB"])
    for number, size in enumerate(given["allocs_GiB"].values()):
        allocator.extend(number, size)
    assert allocator.stats().holes == (given["tail_free_GiB"],)
    allocator.free(names.index(given["free"]))
    stats = allocator.stats()
    assert stats.free == numbers["free_GiB"]
    assert stats.holes == (given["allocs_GiB"][given["free"]], given["tail_free_GiB"])
    assert stats.external_fragmentation(given["request_GiB"]) == pytest.approx(1 / 5)
    allocator.extend(3, given["request_GiB"])
    (placed,) = (segment for segment in allocator.segments() if segment.sequence == 3)
    assert (placed.start < sum(given["allocs_GiB"].values())) == numbers["B_hole_usable"]
    assert placed.start == sum(given["allocs_GiB"].values())


# ---------------------------------------------------------------------------------------------------------- buddies


def test_buddy_external_fragmentation() -> None:
    """Ten requests in 6.4 GiB of buddy blocks, 4.2 GiB of it used, and nowhere 1.5 GiB together.

    A slot is 0.1 GiB, so that all of these are whole numbers of slots; the pool of 100 is cut into 64 + 32 + 4.
    """
    given, numbers = inputs("buddy_phi_ext"), expected("buddy_phi_ext")
    allocator = BuddyAllocator(given["pool_GiB"] * 10)
    for number, tokens in enumerate([4, 3, 3, 3, 3, *[5] * 10]):  # in blocks of 4, and of 8
        allocator.extend(number, tokens)
    assert allocator.stats().free == 0
    for number in (0, 8, 10, 12, 14):  # the 4 at the end, and four blocks of 8 that are nobody's buddy
        allocator.free(number)
    stats = allocator.stats()
    assert stats.allocated / 10 == given["allocated_GiB"]
    assert stats.useful / 10 == given["useful_GiB"]
    assert {"eta_alloc": stats.allocation_efficiency, "free_GiB": stats.free / 10,
            "phi_ext": stats.external_fragmentation(-(-given["request_MiB"] * 10 // KiB))} == numbers
    assert not allocator.can_extend(99, -(-given["request_MiB"] * 10 // KiB))


def test_the_holes_listed_leave_no_room_either() -> None:
    """The chapter's list of holes, slot by MiB: they add up to 3.5 GiB, not to the 3.6 it states."""
    given = inputs("buddy_phi_ext")
    pool, holes = given["pool_GiB"] * KiB, given["holes_MiB"]
    between = (pool - sum(holes)) // len(holes)
    allocator = GrowthAllocator(pool, initial=None)
    for number, hole in enumerate(holes):
        allocator.extend(2 * number, between)
        allocator.extend(2 * number + 1, hole)
    allocator.extend(2 * len(holes), allocator.stats().free)
    for number in range(len(holes)):
        allocator.free(2 * number + 1)
    stats = allocator.stats()
    assert list(stats.holes) == holes
    assert stats.free == 3.5 * KiB
    assert stats.external_fragmentation(given["request_MiB"]) == expected("buddy_phi_ext")["phi_ext"]
    assert not allocator.can_extend(99, given["request_MiB"])
    assert stats.external_fragmentation(1024) == pytest.approx(1 - 2048 / 3584)


# ------------------------------------------------------------------------------------------------------------ forks


@pytest.mark.parametrize("make", [lambda pool: StaticAllocator(pool, 16_384), GrowthAllocator, BuddyAllocator])
def test_a_fork_of_contiguous_buffers_copies_everything(make: Any) -> None:
    given = inputs("deep_copy_fork_4")
    allocator = make(16 * given["prefix"])
    allocator.extend(0, given["prefix"])
    growths = [allocator.fork(0, child + 1) for child in range(given["children"])]
    assert sum(growth.copied for growth in growths) * TOKEN / GiB == expected("deep_copy_fork_4")
    assert allocator.stats().useful == (given["children"] + 1) * given["prefix"]


def test_a_fork_of_block_tables_copies_nothing_until_a_shared_tail_is_written() -> None:
    given = inputs("cow_first_write")
    allocator = PagedAllocator(BlockPool(4096, given["B"]))
    allocator.extend(0, given["prefix"])
    before = allocator.stats()
    children = range(1, given["children"] + 1)
    assert {allocator.fork(0, child) for child in children} == {NOTHING}
    assert allocator.stats() == before
    assert sum(allocator.fork(0, 10 + child).copied for child in children) * TOKEN == expected("cow_fork_bytes_at_fork")
    for child in children:
        allocator.free(10 + child)
    growths = [allocator.extend(child, given["prefix"] + 1) for child in children]
    assert sum(growth.copied > 0 for growth in growths) == expected("cow_first_write")["blocks_copied"]
    assert {growth.copied for growth in growths} == {given["prefix"] % given["B"]}
    assert allocator.extend(0, given["prefix"] + 1) == NOTHING  # the last one that holds it


def test_the_last_of_the_children_keeps_the_tail_when_the_parent_is_gone() -> None:
    given = inputs("cow_first_write")
    allocator = PagedAllocator(BlockPool(4096, given["B"]))
    allocator.extend(0, given["prefix"])
    children = range(1, given["children"] + 1)
    for child in children:
        allocator.fork(0, child)
    allocator.free(0)
    copied = [allocator.extend(child, given["prefix"] + 1).copied > 0 for child in children]
    assert copied == [True] * (given["children"] - 1) + [False]


# ------------------------------------------------------------------------------------------------------- tail waste


def test_tail_waste_of_blocks() -> None:
    assert expected("tail_waste_formula") == "(B-1)/2"
    for block in inputs("tail_waste_formula")["B"]:
        allocator = PagedAllocator(BlockPool(400_000 // block, block))
        for number in range(2 * block):
            allocator.extend(number, 1000 + number)
        stats = allocator.stats()
        assert (stats.allocated - stats.useful) / (2 * block) == (block - 1) / 2


def test_tail_waste_at_mean_length_2048() -> None:
    given = inputs("paged_waste_mean_2048")
    for block, share in zip(given["B"], expected("paged_waste_mean_2048"), strict=True):
        allocator = PagedAllocator(BlockPool(400_000 // block, block))
        for number, tokens in enumerate(around(given["mean_S"], 64)):
            allocator.extend(number, tokens)
        assert 1 - allocator.stats().allocation_efficiency == pytest.approx(share, rel=1e-2)
        assert allocator.stats().external_fragmentation(100_000) == 0.0


def test_first_fit_in_a_bare_address_space() -> None:
    given = inputs("first_fit_holes")
    space = AddressSpace(given["pool_GiB"])
    starts = {name: space.take(size) for name, size in given["allocs_GiB"].items()}
    space.give(starts[given["free"]], given["allocs_GiB"][given["free"]])
    assert space.take(given["request_GiB"]) == sum(given["allocs_GiB"].values())
