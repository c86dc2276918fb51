"""Laws of the closed forms: limits, sums and directions. The worked numbers are in tests/chapter."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.analytic import break_even, fragmentation, roofline, routing, sizing

tokens = st.integers(1, 10**6)
blocks = st.integers(1, 512)
rates = st.floats(1e6, 1e13)


@given(pool=st.floats(1, 1e15), one=st.floats(1, 1e13), headroom=st.floats(0, 0.9))
def test_what_fits_fits_and_one_more_does_not(pool: float, one: float, headroom: float) -> None:
    count = sizing.concurrency(pool, one, headroom)
    usable = pool * (1 - headroom)
    assert count * one <= usable * (1 + 1e-12)
    assert (count + 1) * one > usable * (1 - 1e-12)


@given(pool=st.floats(1e9, 1e13), whole=st.floats(1e6, 1e9), share=st.floats(0, 0.99))
def test_sharing_never_holds_fewer(pool: float, whole: float, share: float) -> None:
    shared = whole * share
    assert sizing.shared_concurrency(pool, shared, whole - shared) >= sizing.concurrency(pool, whole)


@given(experts=st.integers(1, 512), data=st.data(), few=st.integers(0, 1000), more=st.integers(0, 1000))
def test_experts_touched_grows_from_k_to_all(experts: int, data: st.DataObject, few: int, more: int) -> None:
    top_k = data.draw(st.integers(1, experts))
    assert sizing.experts_touched(experts, top_k, 1) == pytest.approx(top_k)
    low, high = sizing.experts_touched(experts, top_k, few), sizing.experts_touched(experts, top_k, few + more)
    assert 0 <= low <= high <= experts


@given(heads=st.integers(0, 6), tp=st.integers(0, 6))
def test_kv_heads_are_copied_only_beyond_their_number(heads: int, tp: int) -> None:
    assert sizing.kv_head_copies(2**heads, 2**tp) == max(1.0, 2**tp / 2**heads)


@given(length=tokens, size=blocks)
def test_blocks_hold_the_sequence_and_its_tail(length: int, size: int) -> None:
    held = fragmentation.blocks_needed(length, size) * size
    assert held == length + fragmentation.tail_waste(length, size)
    full, rest = fragmentation.full_blocks(length, size)
    assert full * size + rest == length
    assert routing.hit_tokens(length, size) == full * size


@given(holes=st.lists(st.floats(0.1, 100), min_size=1), request=st.floats(0.1, 100))
def test_external_fragmentation_is_a_share(holes: list[float], request: float) -> None:
    phi = fragmentation.external_fragmentation(holes, request)
    assert -1e-9 <= phi <= 1
    found = fragmentation.first_fit(holes, request)
    assert (found is None) == all(hole < request for hole in holes)
    if found is None:
        assert phi == 1


@given(length=tokens, factor=st.sampled_from([1.5, 2.0, 3.0]))
def test_a_grown_buffer_holds_its_sequence(length: int, factor: float) -> None:
    buffer = fragmentation.growth_buffer_tokens(length, 16, factor)
    assert length <= buffer + 1
    assert buffer <= max(16, factor * length + 1)


def test_first_write_copies_one_block_a_writer_unless_aligned() -> None:
    assert fragmentation.first_write_copies(8200, 16, 4, parent_alive=True) == 4
    assert fragmentation.first_write_copies(8200, 16, 4) == 3
    assert fragmentation.first_write_copies(8192, 16, 4, parent_alive=True) == 0


@given(trip=st.floats(1e-6, 1e3), mu=st.floats(0.01, 0.99), more=st.floats(0, 10))
def test_break_even_waits_lengthen_with_the_price_below(trip: float, mu: float, more: float) -> None:
    base = break_even.break_even_wait_s(trip, 1.0, 0.0, more)
    assert base == trip + more
    assert break_even.break_even_wait_s(trip, 1.0, mu, more) >= base
    assert break_even.break_even_wait_s(trip, mu, 1.0) == math.inf
    assert break_even.break_even_wait_s(trip, mu, mu) == math.inf


@given(size=st.floats(0, 1e12), out=rates, back=rates)
def test_a_round_trip_is_both_ways(size: float, out: float, back: float) -> None:
    trip = break_even.round_trip_s(size, out, back)
    assert trip == break_even.reload_s(size, out) + break_even.reload_s(size, back)
    assert not break_even.is_feasible(trip, trip)


def test_reload_edge_cases() -> None:
    assert break_even.reload_s(0, 1e9, 1e-3) == 0
    assert break_even.reload_s(1, 0) == math.inf
    assert break_even.reload_s(1e9, 1e9, 0.5) == 1.5


def test_recompute_terms_switch() -> None:
    both = break_even.recompute_flop(7e9, 1000, 32, 4096)
    linear = break_even.recompute_flop(7e9, 1000, 32, 4096, attention=False)
    square = break_even.recompute_flop(7e9, 1000, 32, 4096, linear=False)
    assert both == linear + square
    assert break_even.recompute_s(7e9, 1000, 32, 4096, 1e15) == both / 1e15


@given(total=st.integers(1, 20_000), chunk=st.integers(500, 8192))
def test_chunked_attention_adds_up_to_the_whole(total: int, chunk: int) -> None:
    parts = [roofline.chunk_attention_flop(80, 8192, min(chunk, total - past), past)
             for past in range(0, total, chunk)]
    assert len(parts) == roofline.chunks(total, chunk)
    assert sum(parts) == pytest.approx(roofline.square_attention_flop(80, 8192, total) / 2)


def test_step_takes_the_larger_term_and_they_meet_at_the_balance() -> None:
    balance = roofline.compute_bound_tokens(70e9, 140e9, 1e15, 3e12)
    assert roofline.step_s(roofline.linear_flop(70e9, balance), 140e9, 1e15, 3e12) == pytest.approx(140e9 / 3e12)
    assert roofline.step_s(roofline.linear_flop(70e9, 2 * balance), 140e9, 1e15, 3e12) == pytest.approx(280e9 / 3e12)


@given(match=st.integers(0, 1000), load=st.floats(0, 100), mu=st.floats(0, 1), gamma=st.floats(0.5, 4))
def test_router_score_is_bounded_and_falls_with_load(match: int, load: float, mu: float, gamma: float) -> None:
    score = routing.router_score(match, 1000, load, 100.0, mu, gamma)
    assert -1 <= score <= 1
    assert score <= routing.router_score(match, 1000, 0.0, 100.0, mu, gamma)
    assert routing.router_score(match, 1000, 0.0, 0.0, mu, gamma) == pytest.approx(mu * match / 1000)
