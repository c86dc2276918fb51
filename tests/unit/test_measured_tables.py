"""Do measured tables interpolate without overshoot, and count every look-up outside them?"""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.timing.base import at, stretch_s
from sim.timing.measured_tables import Curve, DecodeTable, Excursions, PrefillTable, Ramp, Switched, two_lines

RISING = st.lists(st.floats(0.01, 2.0), min_size=3, max_size=10)


def curve_of(steps: list[float], *, smooth: bool) -> Curve:
    xs = [2.0**i for i in range(len(steps))]
    ys = [1.0]
    for step in steps[1:]:
        ys.append(ys[-1] * (1.0 + step))
    return Curve(xs, ys, smooth=smooth)


@given(RISING, st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.booleans())
def test_curve_rises_and_stays_between_its_knots(steps, a, b, smooth):
    curve = curve_of(steps, smooth=smooth)
    low, high = sorted(curve.high ** share for share in (a, b))
    assert curve(low) <= curve(high) * (1 + 1e-9)
    assert curve(curve.low) * (1 - 1e-9) <= curve(low) <= curve(curve.high) * (1 + 1e-9)


@pytest.mark.parametrize("smooth", [False, True])
def test_curve_goes_through_its_knots_and_grows_in_proportion_beyond(smooth):
    curve = Curve([1, 10, 100], [2.0, 3.0, 9.0], smooth=smooth)
    assert [curve(x) for x in (1, 10, 100)] == pytest.approx([2.0, 3.0, 9.0])
    assert curve(0.1) == pytest.approx(2.0)
    assert curve(1000) == pytest.approx(90.0)
    assert Curve([1, 10], [1.0, 5.0], order=2.0)(20) == pytest.approx(20.0)


def test_smooth_curve_is_exact_on_a_power_law():
    curve = Curve([1, 4, 16, 64], [1.0, 8.0, 64.0, 512.0], smooth=True)
    assert curve(8) == pytest.approx(8**1.5)


def test_ramp_is_a_startup_time_plus_a_rate():
    ramp = Ramp([0, 100, 200], [5.0, 5.0, 15.0], slope=0.1)
    assert [ramp(x) for x in (-1, 50, 150, 300)] == pytest.approx([5.0, 5.0, 10.0, 25.0])


def test_a_switch_of_algorithms_is_a_jump_and_neither_side_knows_the_other():
    curve = Switched([10, 20, 40, 80], [1.0, 2.0, 9.0, 13.0], [40], slope=0.2)
    assert [curve(x) for x in (10, 15, 20, 30, 39.999)] == pytest.approx([1.0, 1.5, 2.0, 3.0, 4.0], rel=1e-3)
    assert [curve(x) for x in (40, 60, 80, 100)] == pytest.approx([9.0, 11.0, 13.0, 17.0])
    # between the switch and the first knot behind it: on the line of the new algorithm
    assert Switched([10, 20, 40, 80], [1.0, 2.0, 9.0, 13.0], [30], slope=0.2)(30) == pytest.approx(8.0)
    # a lone knot stands for its algorithm, on both sides of it
    lone = Switched([10, 20, 40], [1.0, 2.0, 9.0], [15, 30], slope=0.0)
    assert [lone(x) for x in (16, 20, 29)] == pytest.approx([2.0, 2.0, 2.0])


@given(RISING, st.lists(st.floats(1.5, 300.0), max_size=3), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_switched_curve_meets_its_knots_and_rises_within_an_algorithm(steps, switches, a, b):
    xs = [2.0**i for i in range(len(steps))]
    ys = [1.0]
    for step in steps[1:]:
        ys.append(ys[-1] * (1.0 + step))
    curve = Switched(xs, ys, switches, slope=1.0)
    assert [curve(x) for x in xs] == pytest.approx(ys)
    low, high = sorted(xs[-1] ** share for share in (a, b))
    if not any(low < switch <= high for switch in switches):
        assert 0.0 < curve(low) <= curve(high) * (1 + 1e-9)
    plain = Ramp(xs, ys, 1.0)
    assert Switched(xs, ys, [], 1.0)(low) == plain(low)


def test_decode_table_between_batches_and_beyond():
    rows = [{"batch": 1, "tokens": [1, 1001], "us": [10.0, 20.0]},
            {"batch": 3, "tokens": [3, 1003], "us": [14.0, 24.0]}]
    table = DecodeTable(rows, slope=1e-8)
    assert table(1, 501) == pytest.approx(15e-6)
    assert table(2, 1002) == pytest.approx((20.01 + 23.99) / 2 * 1e-6)
    assert table(1, 2001) == pytest.approx(30e-6)
    assert table(5, 1003) == pytest.approx((24 + (24 - 20.02)) * 1e-6)
    assert table.reach(2) == 1003


def test_uncached_prefill_stands_for_equal_arithmetic_on_a_past():
    table = PrefillTable([1024, 2048, 4096], [0], [[10.0, 40.0, 160.0]])
    assert table(2048, 0) == pytest.approx(40e-6)
    # 512 tokens on 3,840: 512 x 4,096 pairs, as many as an uncached prompt of 2,048 has
    assert table(512, 3840) == pytest.approx(40e-6)
    assert table(8192, 0) == pytest.approx(640e-6)


def test_measured_pasts_are_interpolated_and_go_on_with_the_arithmetic():
    table = PrefillTable([256, 512], [0, 1000], [[10.0, 20.0], [30.0, 60.0]])
    assert table(256, 500) == pytest.approx(20e-6)
    assert table(512, 1000) == pytest.approx(60e-6)
    assert table(512, 2000) == pytest.approx(60e-6 * (2000 + 256) / (1000 + 256))


@given(st.floats(1.0, 50.0), st.floats(0.0, 1.0), st.floats(1e2, 1e5))
@settings(max_examples=50)
def test_two_lines_follow_a_knee(floor, slope, knee):
    xs = [64.0 * 2**i for i in range(12)]
    lines, error = two_lines(lambda x: floor + slope * max(0.0, x - knee), xs)
    assert 1 <= len(lines) <= 2
    assert all(line.slope_s >= 0.0 for line in lines)
    assert error < 0.35
    for x in xs:
        assert at(lines, int(x)) == pytest.approx(floor + slope * max(0.0, x - knee), rel=error + 1e-6)


def test_two_lines_are_exact_where_the_function_is():
    lines, error = two_lines(lambda x: max(3.0 + 0.001 * x, 1.0 + 0.01 * x), [10.0 * 2**i for i in range(10)])
    assert error < 0.1
    single, exact = two_lines(lambda x: 2.0 + 0.5 * x, [1.0, 2.0, 4.0, 8.0])
    assert len(single) == 1
    assert exact < 1e-9
    assert stretch_s(lines, 100, 4, 50) == pytest.approx(sum(at(lines, 100 + 4 * i) for i in range(50)))


def test_excursions_are_counted_with_how_far():
    seen = Excursions()
    for value in (5.0, 20.0, 40.0):
        seen.note("linear", value, 1.0, 10.0)
    seen.note("all_reduce", 5.0, 1.0, 10.0)
    assert seen.counts() == {"outside_measured_linear": 2}
    assert seen.sentences() == ["linear: 2 of 3 look-ups outside what was measured, by up to a factor 4"]
    assert math.isclose(seen.seen["linear"][2], 4.0)
