"""What the writers have in common: the shape of a trajectory that a format can hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from sim.errors import InputError
from workloads.stats import in_order
from workloads.trajectory import Trajectory, Turn

#: Trajectories, or a function that yields them afresh at each call.
Source = Iterable[Trajectory] | Callable[[], Iterable[Trajectory]]


def once(source: Source) -> Iterator[Trajectory]:
    """Yield the trajectories of a source."""
    yield from source() if callable(source) else source


def before(turns: list[Turn]) -> dict[Turn, list[Turn]]:
    """Return, for every turn, those it waits for."""
    found: dict[Turn, list[Turn]] = {turn: [] for turn in turns}
    for turn in turns:
        for follower in turn.next:
            found[follower].append(turn)
    return found


def single(trajectory: Trajectory, format: str) -> Turn:
    """Return the one turn of a trajectory; InputError if it has more: the format cannot say what belongs together."""
    if trajectory.turns != 1:
        raise InputError(f"{format} holds single requests; trajectory {trajectory.number} has {trajectory.turns} turns")
    return trajectory.roots[0]


def no_race(turns: list[Turn], waits: dict[Turn, list[Turn]], trajectory: Trajectory, format: str) -> None:
    """Refuse a join that starts with the first of its branches; the format has none."""
    if any(turn.prunes or turn.pending < len(waits[turn]) for turn in turns):
        raise InputError(f"{format} has no join that starts with the first branch to end; trajectory "
                         f"{trajectory.number} has one")


def lines_of(trajectory: Trajectory, format: str) -> tuple[list[Turn], dict[Turn, list[list[Turn]]]]:
    """Return the main line, and the sub-agents that start after each of its turns and are joined by the next.

    Raises
    ------
    InputError
        The trajectory is no line with sub-agents: nested branches, several roots, branches that nobody joins.
    """
    turns = in_order(trajectory)
    waits = before(turns)
    no_race(turns, waits, trajectory, format)
    main = [turn for turn in turns if turn.branch == turns[0].branch]
    place = {turn: index for index, turn in enumerate(main)}
    branches: dict[int, list[Turn]] = {}
    for turn in turns:
        if turn.branch != turns[0].branch:
            branches.setdefault(turn.branch, []).append(turn)
    children: dict[Turn, list[list[Turn]]] = {}
    for line in branches.values():
        parents = waits[line[0]]
        chained = all(waits[turn] == [previous] for previous, turn in pairwise(line))
        if len(parents) != 1 or parents[0] not in place or not chained:
            raise InputError(f"{format} holds a line of turns with sub-agents; trajectory {trajectory.number} branches "
                             "in another way")
        children.setdefault(parents[0], []).append(line)
    for previous, turn in pairwise(main):
        ends = {line[-1] for line in children.get(previous, [])}
        if not ends <= set(waits[turn]) or not set(waits[turn]) <= ends | {previous} or not waits[turn]:
            raise InputError(f"{format} holds a line of turns with sub-agents; turn {turn.index} of trajectory "
                             f"{trajectory.number} waits for something else")
    return main, children
