"""From turns that name what they wait for to a trajectory: links, order, and the checks that it can end."""

from __future__ import annotations

from sim.errors import InputError
from workloads.trajectory import Turn


def link(turns: list[Turn], after: list[list[int]], first: frozenset[int] = frozenset()) -> list[Turn]:
    """Link `turns`, the i-th of which waits for those with the indices `after[i]`; return the roots.

    A turn whose index is in `first` starts when one of those it waits for has ended.

    Raises
    ------
    InputError
        A turn waits for one that does not exist, for itself, twice for the same, or in a circle.
    """
    for follower, waits_for in zip(turns, after, strict=True):
        for index in waits_for:
            if not 0 <= index < len(turns):
                raise InputError(f"turn {follower.index} waits for a turn that does not exist", field="after",
                                 got=index)
            turns[index].then(follower)
        if len(set(waits_for)) != len(waits_for):
            raise InputError(f"turn {follower.index} waits twice for the same turn", field="after", got=waits_for)
        if waits_for and follower.index in first:
            follower.pending = 1
    circle = _in_circle(turns)
    if circle is not None:
        raise InputError(f"turn {circle.index} waits for itself, directly or through others: it can never start",
                         field="after")
    return [turn for turn in turns if not turn.pending]


def _in_circle(turns: list[Turn]) -> Turn | None:
    """Return a turn that can never start, if there is one (Kahn's algorithm)."""
    waits = {turn: turn.pending for turn in turns}
    ready = [turn for turn in turns if not turn.pending]
    while ready:
        turn = ready.pop()
        del waits[turn]
        for follower in turn.next:
            if follower in waits:
                waits[follower] -= 1
                if not waits[follower]:
                    ready.append(follower)
    return next(iter(waits), None)
