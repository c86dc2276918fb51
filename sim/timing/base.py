"""The contract of a step-cost model: how long a step takes, and which term made it so long."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Literal, NamedTuple, Protocol

Bound = Literal["compute", "weights", "kv", "communication", "overhead"]

#: Prompt chunks of a step: (new tokens, tokens before them).
Chunks = Sequence[tuple[int, int]]


class Line(NamedTuple):
    """Seconds of a decode step as a function of the context it reads: ``base_s + slope_s * context_tokens``."""

    base_s: float
    slope_s: float


class StepCost(Protocol):
    """Step times of one replica. All contexts are sums over the turns of a batch, in tokens."""

    def step(self, decoding: int, context_tokens: int, chunks: Chunks = ()) -> float:
        """Return the seconds of a step with `decoding` turns that read `context_tokens`, and prompt `chunks`."""
        ...

    def decode_lines(self, decoding: int) -> tuple[Line, ...]:
        """Return the lines whose maximum is the step time of `decoding` turns without any prompt chunk."""
        ...

    def bound(self, decoding: int, context_tokens: int, chunks: Chunks = ()) -> Bound:
        """Return the term that took most of such a step."""
        ...

    def warnings(self) -> dict[str, int]:
        """Return how often the model was asked beyond what it was made from, by what was asked."""
        ...

    @property
    def attention_efficiency(self) -> float:
        """Return what the block size leaves of the rate of decode attention; 1 at the reference size."""
        ...

    @property
    def ttft_floor_s(self) -> float:
        """Return the seconds a server adds to every first token in front of the engine; not part of any step."""
        ...

    @property
    def band(self) -> dict[str, float]:
        """Return the known median relative error of ``ttft`` and ``tpot`` that step times cause; empty if unknown."""
        ...


def stretch_s(lines: tuple[Line, ...], context: int, decoding: int, steps: int) -> float:
    """Return the seconds of `steps` decode steps in a row, of which the first reads `context` tokens.

    Every step reads `decoding` tokens more than the one before. The sum of a line over an arithmetic series is
    closed; where two lines cross, each is summed over the steps on its side.
    """
    if len(lines) == 1:
        base, slope = lines[0]
        return steps * (base + slope * (context + decoding * (steps - 1) * 0.5))
    first, last = sorted(lines, key=lambda line: line.slope_s)
    crossing = _crossing(first, last, context, decoding, steps)
    head = crossing * (first.base_s + first.slope_s * (context + decoding * (crossing - 1) * 0.5))
    rest = steps - crossing
    begin = context + decoding * crossing
    return head + rest * (last.base_s + last.slope_s * (begin + decoding * (rest - 1) * 0.5))


def steps_until(lines: tuple[Line, ...], context: int, decoding: int, steps: int, elapsed_s: float) -> int:
    """Return the steps that have begun when `elapsed_s` seconds of a stretch of `steps` steps have passed.

    That is the smallest k >= 1 with ``stretch_s(k) >= elapsed_s``: for one line the root of a quadratic, otherwise
    found by bisection.
    """
    if len(lines) == 1:
        base, slope = lines[0]
        half = slope * decoding * 0.5
        first = base + slope * context - half
        guess = elapsed_s / first
        if half > 0.0:
            guess = (sqrt(first * first + 4.0 * half * elapsed_s) - first) / (2.0 * half)
        count = int(guess) + 1
        while count > 1 and (count - 1) * (first + half * (count - 1)) >= elapsed_s:
            count -= 1
        while count < steps and count * (first + half * count) < elapsed_s:
            count += 1
        return min(count, steps)
    low, high = 1, steps
    while low < high:
        middle = (low + high) // 2
        if stretch_s(lines, context, decoding, middle) >= elapsed_s:
            high = middle
        else:
            low = middle + 1
    return low


def at(lines: tuple[Line, ...], context: int) -> float:
    """Return the step time at `context` tokens: the highest of the lines."""
    if len(lines) == 1:
        return lines[0][0] + lines[0][1] * context
    return max(line.base_s + line.slope_s * context for line in lines)


def _crossing(flat: Line, steep: Line, context: int, decoding: int, steps: int) -> int:
    """Return how many of the steps lie on the flatter line, that is before the steeper one overtakes it."""
    if steep.slope_s == flat.slope_s:
        return steps if flat.base_s >= steep.base_s else 0
    meet = (flat.base_s - steep.base_s) / (steep.slope_s - flat.slope_s)
    if not abs(meet) < 1e18:
        return steps if meet > 0 else 0
    if decoding == 0:
        return steps if context < meet else 0
    return min(steps, max(0, -int(-(meet - context) // decoding)))
