"""The largest load that is still fine: a bracket around a guess, then bisection on the logarithm of the load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

#: How far each step of the bracket goes from the guess: a good guess costs two trials, a bad one a few more. Up, a load
#: many times what closed forms allow ends the search: such runs are long, and the objectives hardly depend on the load.
UP = (1.05, 1.3, 2.0, 4.0, 8.0, 16.0)
DOWN = (1.05, 1.3, 2.0, 4.0, 16.0, 256.0, 65536.0, 1e9)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has found.

    Attributes
    ----------
    fine
        The largest load tried that is fine; None if none was.
    bad
        The smallest load tried that is not; None if none was, up to the largest allowed.
    trials
        Loads tried, in order.
    """

    fine: float | None
    bad: float | None
    trials: tuple[float, ...]


def largest(is_fine: Callable[[float], bool], guess: float, *, least: float, most: float, whole: bool,
            tolerance: float, budget: int, known_fine: float | None = None, known_bad: float | None = None) -> Found:
    """Search for the largest load for which `is_fine` holds, given that more load is never better.

    Parameters
    ----------
    guess
        Where to begin.
    least, most
        Ends of what is allowed.
    whole
        Loads are whole numbers; then neighbours end the search (or `tolerance`, if that is wider).
    tolerance
        Relative width at which the search ends.
    budget
        Trials at most.
    known_fine, known_bad
        Loads whose answers are known.
    """
    trials: list[float] = []
    fine, bad = known_fine, known_bad

    def tidy(load: float) -> float:
        load = float(round(load)) if whole else float(f"{load:.4g}")
        return min(max(load, least), most)

    def try_(load: float) -> None:
        nonlocal fine, bad
        trials.append(load)
        if is_fine(load):
            fine = load if fine is None else max(fine, load)
        else:
            bad = load if bad is None else min(bad, load)

    start = tidy(guess)
    if fine is None or bad is None:
        if not (fine is not None and start <= fine) and not (bad is not None and start >= bad):
            try_(start)
        _bracket(try_, tidy, lambda: (fine, bad), least, most, whole, budget, trials)
    while fine is not None and bad is not None and len(trials) < budget:
        if bad - fine <= (max(1.0, tolerance * fine) if whole else tolerance * fine):
            break
        middle = tidy((fine * bad) ** 0.5 if fine > 0 else bad / 2)
        if whole and not fine < middle < bad:
            middle = float((int(fine) + int(bad)) // 2)
        if not fine < middle < bad:
            break
        try_(middle)
    return Found(fine, bad, tuple(trials))


def _bracket(try_: Callable[[float], None], tidy: Callable[[float], float],
             known: Callable[[], tuple[float | None, float | None]], least: float, most: float, whole: bool,
             budget: int, trials: list[float]) -> None:
    """Step away from what is known, further each time, until both a fine and a bad load are."""
    base = known()
    for up, down in zip_longest(UP, DOWN):
        fine, bad = known()
        if len(trials) >= budget or (fine is not None and bad is not None):
            return
        if bad is None:
            assert fine is not None
            if fine >= most or up is None:
                return
            step = (base[0] or fine) * up
            try_(tidy(max(step, fine + 1) if whole else step))
        else:
            if bad <= least:
                return
            step = (base[1] or bad) / down
            try_(tidy(min(step, bad - 1) if whole else step))
