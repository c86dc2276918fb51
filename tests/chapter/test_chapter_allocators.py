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
    """The chapter lets D stall; its tail holds it, and what is left to say is that a fifth of the free memory is not."""
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
    """Ten requests in 6.4 GiB of buddy blocks, 4.2 GiB used, nowhere 1.5 GiB together: the chapter's second scenario.

    A slot is 0.1 GiB here, which makes every quantity of the chapter but its list of holes a whole number of slots.
    """
    given, numbers = inputs("buddy_phi_ext"), expected("buddy_phi_ext")
    allocator = BuddyAllocator(given["pool_GiB"] * 10)
    request = -(-given["request_MiB"] * 10 // 1024)
    used = [5, 5, 5, 5, 4, 5, 4, 4, 2, 3]  # in blocks of 8, 8, 8, 8, 4, 8, 4, 4, 8 (2 at first), 4
    for number, tokens in enumerate([8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4]):
        allocator.extend(number, tokens)
    for number in (1, 3, 5, 7, 12):
        allocator.free(number)
    live = [0, 2, 4, 6, 8, 9, 10, 11]
    assert allocator.stats().allocated * 1024 == given["allocated_GiB"] * 10 * 1024
    stats = allocator.stats()
    assert stats.free / 10 == numbers["free_GiB"]
    assert stats.external_fragmentation(request) == numbers["phi_ext"]
    assert used
    assert live
