"""Interpolation in measured tables: monotone, without overshoot, and never silent about leaving the measured range."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import exp, inf, log, sqrt
from typing import Any

from sim.timing.base import Line


class Excursions:
    """How often each table was asked, how often outside what was measured, and how far at most."""

    def __init__(self) -> None:
        #: Table -> [times asked, times outside, largest factor beyond the measured range].
        self.seen: dict[str, list[float]] = {}

    def note(self, table: str, value: float, low: float, high: float) -> None:
        """Count one look-up of `value` in a table measured from `low` to `high`."""
        entry = self.seen.get(table)
        if entry is None:
            entry = self.seen[table] = [0.0, 0.0, 1.0]
        entry[0] += 1.0
        if value > high or value < low:
            entry[1] += 1.0
            factor = value / high if value > high else low / max(value, 1e-300)
            if factor > entry[2]:
                entry[2] = factor

    def unmeasured(self, table: str) -> None:
        """Count one use of something that was not measured at all."""
        entry = self.seen.setdefault(table, [0.0, 0.0, 1.0])
        entry[0] += 1.0
        entry[1] += 1.0
        entry[2] = inf

    def counts(self) -> dict[str, int]:
        """Return the look-ups outside the measured range, by table; tables never left are not listed."""
        return {f"outside_measured_{name}": int(entry[1]) for name, entry in self.seen.items() if entry[1]}

    def asked(self) -> dict[str, int]:
        """Return all look-ups in the tables that were left."""
        return {f"lookups_measured_{name}": int(entry[0]) for name, entry in self.seen.items() if entry[1]}

    def sentences(self) -> list[str]:
        """Return a warning a table that was left, with how often and how far."""
        return [f"{name.replace('_', ' ')}: {entry[1]:.0f} of {entry[0]:.0f} look-ups outside what was measured, "
                + (f"by up to a factor {entry[2]:.3g}" if entry[2] < inf else "for which a roofline stands in")
                for name, entry in self.seen.items() if entry[1]]


class Curve:
    """A quantity over one axis, interpolated in log-log: linear, or smooth.

    Smooth is a cubic with the slopes of Fritsch and Carlson (SIAM J. Numer. Anal. 17, 1980) in the form of Fritsch and
    Butland (1984): monotone where the knots are, without overshoot. Below the first knot the curve is constant; beyond
    the last it grows as ``x ** order`` (1: in proportion, as a roofline does).
    """

    __slots__ = ("_slopes", "_x", "_y", "high", "low", "order")

    def __init__(self, xs: Sequence[float], ys: Sequence[float], order: float = 1.0, *, smooth: bool = False) -> None:
        if not xs or len(xs) != len(ys):
            raise ValueError(f"a curve needs as many values as knots (got {len(xs)} and {len(ys)})")
        self._x = [log(x) for x in xs]
        self._y = [log(y) for y in ys]
        self.low, self.high = xs[0], xs[-1]
        self.order = order
        self._slopes = _slopes(self._x, self._y) if smooth and len(xs) > 2 else None

    def __call__(self, x: float) -> float:
        """Return the value at `x`."""
        xs, ys = self._x, self._y
        if x <= self.low:
            return exp(ys[0])
        where = log(x)
        if x >= self.high:
            return exp(ys[-1] + self.order * (where - xs[-1]))
        right = min(bisect_right(xs, where), len(xs) - 1)  # log may round up to the last knot
        left = right - 1
        step = xs[right] - xs[left]
        share = (where - xs[left]) / step
        if self._slopes is None:
            return exp(ys[left] + share * (ys[right] - ys[left]))
        rest = 1.0 - share
        curved = step * (self._slopes[left] * rest - self._slopes[right] * share) * share * rest
        ends = (1.0 + 2.0 * share) * rest * rest * ys[left] + (1.0 + 2.0 * rest) * share * share * ys[right]
        return exp(ends + curved)


def _slopes(xs: Sequence[float], ys: Sequence[float]) -> list[float]:
    """Return the slope at each knot: the weighted harmonic mean of its neighbours', zero at an extremum."""
    steps = [b - a for a, b in pairwise(xs)]
    rises = [(b - a) / step for (a, b), step in zip(pairwise(ys), steps, strict=True)]
    slopes = [rises[0]]
    for (before, after), (left, right) in zip(pairwise(rises), pairwise(steps), strict=True):
        if before * after <= 0.0:
            slopes.append(0.0)
        else:
            first, second = 2.0 * right + left, right + 2.0 * left
            slopes.append((first + second) / (first / before + second / after))
    return [*slopes, rises[-1]]


class Ramp:
    """A quantity that is linear between knots, and goes on with a given slope behind the last one.

    That is what fits a start-up time plus work at a rate: where the two meet, log-log would overshoot.
    """

    __slots__ = ("high", "low", "slope", "xs", "ys")

    def __init__(self, xs: Sequence[float], ys: Sequence[float], slope: float) -> None:
        self.xs, self.ys, self.slope = list(xs), list(ys), slope
        self.low, self.high = self.xs[0], self.xs[-1]

    def __call__(self, x: float) -> float:
        """Return the value at `x`."""
        xs, ys = self.xs, self.ys
        if x >= xs[-1]:
            return ys[-1] + self.slope * (x - xs[-1])
        if x <= xs[0]:
            return ys[0]
        right = bisect_right(xs, x)
        left = right - 1
        return ys[left] + (ys[right] - ys[left]) * (x - xs[left]) / (xs[right] - xs[left])


class Switched:
    """Ramps one after another: at known sizes a library takes another algorithm, and the time jumps there.

    Within an algorithm's sizes it is a `Ramp`; up to the switch it goes on as between the two knots next to it, and
    towards the smaller ones never below proportion. A lone knot stands for all sizes of its algorithm.

    Parameters
    ----------
    xs, ys
        Knots, rising in `xs`.
    switches
        First sizes of the algorithms after the first; those without a knot are left out.
    slope
        Beyond the last knot.
    """

    __slots__ = ("_ramps", "_starts", "high", "low")

    def __init__(self, xs: Sequence[float], ys: Sequence[float], switches: Sequence[float], slope: float) -> None:
        self.low, self.high = xs[0], xs[-1]
        cuts = sorted({bisect_left(xs, switch): switch for switch in switches}.items())
        cuts = [(index, switch) for index, switch in cuts if 0 < index < len(xs)]
        self._starts = [float(switch) for _, switch in cuts]
        ends = [*(index for index, _ in cuts), len(xs)]
        self._ramps = []
        begin = 0
        for number, end in enumerate(ends):
            knots = list(zip(xs[begin:end], ys[begin:end], strict=True))
            if number:
                knots.insert(0, _before(knots, self._starts[number - 1]))
            last = slope if number == len(cuts) else _slope(knots[-2:])
            self._ramps.append(Ramp([x for x, _ in knots], [y for _, y in knots], last))
            begin = end

    def __call__(self, x: float) -> float:
        """Return the value at `x`."""
        return self._ramps[bisect_right(self._starts, x)](x)


def _slope(knots: Sequence[tuple[float, float]]) -> float:
    """Return the slope between two knots; zero for one, or for two in one place."""
    (x, y), (to_x, to_y) = knots[0], knots[-1]
    return (to_y - y) / (to_x - x) if to_x > x else 0.0


def _before(knots: Sequence[tuple[float, float]], x: float) -> tuple[float, float]:
    """Return the knot at `x` in front of the others: on the line through the first two, not below proportion."""
    first_x, first_y = knots[0]
    return x, max(first_y - _slope(knots[:2]) * (first_x - x), first_y * x / first_x)


class DecodeTable:
    """Decode attention of one layer against batch and KV tokens of the whole batch, in seconds.

    Between measured batches it is linear in the batch at equal KV tokens; beyond the last batch it goes on with the
    slope of the last two, beyond the last KV tokens with `slope` seconds a token. With KV in small blocks all of it
    takes `slower` times as long; with `keep` only what goes beyond a batch's first row does.
    """

    def __init__(self, rows: Sequence[dict[str, Any]], slope: float, slower: float = 1.0, *,
                 keep: bool = False) -> None:
        self.batches = [float(row["batch"]) for row in rows]
        self.ramps = []
        for row in rows:
            times = [us * 1e-6 for us in row["us"]]
            if slower != 1.0:
                floor = times[0] if keep else 0.0
                times = [floor + (time - floor) * slower for time in times]
            self.ramps.append(Ramp(row["tokens"], times, slope * slower))

    def __call__(self, batch: float, tokens: float) -> float:
        """Return the seconds of one layer's attention for `batch` sequences with `tokens` in all."""
        batches = self.batches
        if len(batches) == 1 or batch <= batches[0]:
            return self.ramps[0](tokens)
        right = min(bisect_right(batches, batch), len(batches) - 1)
        low, high = self.ramps[right - 1](tokens), self.ramps[right](tokens)
        share = (batch - batches[right - 1]) / (batches[right] - batches[right - 1])
        return max(low + share * (high - low), 0.0)

    def reach(self, batch: float) -> float:
        """Return the KV tokens measured at the next batch size up (or the largest)."""
        right = min(bisect_right(self.batches, batch - 1e-9), len(self.batches) - 1)
        return self.ramps[right].xs[-1]


class PrefillTable:
    """Prefill attention of one layer for one chunk, in seconds.

    Where only uncached prompts were measured (``past`` is [0]), a chunk of c tokens on p takes what an uncached prompt
    of as much arithmetic takes, ``sqrt(2 c (p + c/2))`` tokens. With more pasts it is linear in the past between them.
    """

    def __init__(self, new: Sequence[float], past: Sequence[float], us: Sequence[Sequence[float | None]]) -> None:
        self.past = [float(p) for p in past]
        self.curves = []
        for row in us:
            known = [(x, y * 1e-6) for x, y in zip(new, row, strict=True) if y is not None]
            self.curves.append(Curve([x for x, _ in known], [y for _, y in known], order=2.0, smooth=True))

    @staticmethod
    def equal(new: float, past: float) -> float:
        """Return the tokens of the uncached prompt that takes as much arithmetic as such a chunk."""
        return float(sqrt(2.0 * new * (past + new / 2.0)))

    def __call__(self, new: float, past: float) -> float:
        """Return the seconds of one layer's attention of `new` tokens on `past` cached ones."""
        pasts, curves = self.past, self.curves
        if len(pasts) == 1 or past <= 0:
            return curves[0](self.equal(new, past))
        if past >= pasts[-1]:
            work = (past + new / 2.0) / (pasts[-1] + new / 2.0)
            return curves[-1](new) * work
        right = bisect_right(pasts, past)
        left = right - 1
        share = (past - pasts[left]) / (pasts[right] - pasts[left])
        return curves[left](new) * (1.0 - share) + curves[right](new) * share


def two_lines(at: Callable[[float], float], xs: Sequence[float]) -> tuple[tuple[Line, ...], float]:
    """Return at most two lines whose maximum follows a function, and their largest relative error on `xs`.

    Each line is a least-squares fit of relative errors to the points on its side of a split; the split is the one with
    the smallest worst error. Slopes are never negative, the right line is never the flatter one, and the left one is
    never negative, so neither is their maximum.
    """
    ys = [at(x) for x in xs]
    best: tuple[float, tuple[Line, ...]] = (inf, ())
    for split in range(1, len(xs) - 1):
        left = _line(xs[:split], ys[:split])
        for begin in (split, split - 1):  # the sides share a point, or do not
            right = _line(xs[begin:], ys[begin:], least=-inf)
            lines = (left, right) if right.slope_s > left.slope_s else (_line(xs, ys),)
            worst = _worst(lines, xs, ys)
            if worst < best[0]:
                best = (worst, lines)
    whole = (_line(xs, ys),)
    worst = _worst(whole, xs, ys)
    if worst <= best[0] + 1e-4:
        return whole, worst
    return best[1], best[0]


def _line(xs: Sequence[float], ys: Sequence[float], least: float = 0.0) -> Line:
    """Return the line with the least squared relative errors, its slope not below zero, its base not below `least`."""
    s = sx = sy = sxx = sxy = 0.0
    for x, y in zip(xs, ys, strict=True):
        weight = 1.0 / (y * y)
        s += weight
        sx += weight * x
        sy += weight * y
        sxx += weight * x * x
        sxy += weight * x * y
    spread = s * sxx - sx * sx
    slope = (s * sxy - sx * sy) / spread if len(xs) > 1 and spread > 0 else 0.0
    if slope < 0.0:
        return Line(sy / s, 0.0)
    base = (sy - slope * sx) / s
    return Line(base, slope) if base >= least else Line(0.0, sxy / sxx)


def _worst(lines: Sequence[Line], xs: Sequence[float], ys: Sequence[float]) -> float:
    return max(abs(max(line.base_s + line.slope_s * x for line in lines) / y - 1.0)
               for x, y in zip(xs, ys, strict=True))
