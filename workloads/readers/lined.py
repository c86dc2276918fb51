"""Traces whose lines stand in the order of the trajectories: one line a request, or the lines of each together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sim.errors import InputError
from workloads.readers.base import Problems, lines, text
from workloads.trajectory import Trajectory, Turn

Row = dict[str, Any]


class Draft(Protocol):
    """A trajectory being read."""

    name: str
    bad: bool
    """One of its lines was skipped, so all of it is."""


Drafted = TypeVar("Drafted", bound=Draft)


def carries(path: Path, name: str) -> bool:
    """Return whether the first object of a JSON-lines file has a field that is not null."""
    for _, row in lines(path, Problems("skip")):
        return row.get(name) is not None
    return False


def requests(rows: Iterable[tuple[int, Row]], path: Path, problems: Problems, *, clock: str,
             at: Callable[[Row], float], per_second: float, turn: Callable[[Row], Turn],
             from_first: bool = False) -> Iterator[Trajectory]:
    """Yield a trajectory of one turn for every line.

    Parameters
    ----------
    rows
        Line numbers and objects.
    path, problems
        The file, and what to do with bad lines.
    clock, at, per_second
        The field that says when a request was sent, what reads it, and how many of its units make a second.
    turn
        Reads the rest of a line.
    from_first
        Whether times count from the first request, not from zero.
    """
    begun: float | None = None if from_first else 0
    last_s = 0.0
    for line, row in rows:
        try:
            moment = at(row)
            arrival_s = 0.0 if begun is None else (moment - begun) / per_second
            if arrival_s < last_s:
                raise InputError("lies before the line in front; sort the trace by time", field=clock, got=row[clock])
            root = turn(row)
        except InputError as error:
            problems.add(error, file=path, line=line)
            continue
        begun, last_s = moment if begun is None else begun, arrival_s
        yield Trajectory(0, arrival_s, [root], 1, "", path.name)


def drafts(rows: Iterable[tuple[int, Row]], path: Path, problems: Problems, *, key: str,
           begin: Callable[[str, int], Drafted], add: Callable[[Drafted, Row], None]) -> Iterator[Drafted]:
    """Yield the trajectories whose lines follow each other; one with a bad line is skipped as a whole.

    Parameters
    ----------
    rows
        Line numbers and objects.
    path, problems
        The file, and what to do with bad lines.
    key
        The field that names the trajectory.
    begin
        Makes an empty draft from a name and the number of its first line.
    add
        Adds a line to a draft.
    """
    draft: Drafted | None = None
    names: set[str] = set()
    for line, row in rows:
        try:
            name = text(row, key)
            if draft is None or name != draft.name:
                if draft is not None and not draft.bad:
                    yield draft
                draft = begin(name, line)
                if name in names:
                    raise InputError(f"comes back after another; the lines of a {key} must follow each other",
                                     field=key, got=name)
                names.add(name)
            add(draft, row)
        except InputError as error:
            problems.add(error, file=path, line=line)
            if draft is not None:
                draft.bad = True
    if draft is not None and not draft.bad:
        yield draft
