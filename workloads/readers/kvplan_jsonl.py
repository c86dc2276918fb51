"""kvplan's own trace format: one turn a line, with its prompt as a rope of named contents. See docs/trace_format.md.

It can express everything the simulator knows: shared prompt zones, branches, joins of both kinds, pruning, kept
output, arrivals and groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.errors import InputError
from workloads.readers.base import Problems, flag, integer, lines, listed, number, text
from workloads.readers.graph import link
from workloads.readers.lined import carries, drafts
from workloads.trajectory import Stream, Trajectory, Turn

_Key = tuple[Stream | None, int, str]


def sniff(row: dict[str, Any]) -> bool:
    """Return whether the first line of a file looks like this format."""
    return {"trajectory", "prompt"} <= row.keys()


def timed(path: Path) -> bool:
    """Return whether the first turn of a file carries the arrival of its trajectory."""
    return carries(path, "arrival_s")


@dataclass(slots=True)
class _Draft:
    """The trajectory being read."""

    name: str
    line: int
    arrival_s: float = 0.0
    group: str = ""
    turns: dict[int, Turn] = field(default_factory=dict)
    after: dict[int, list[int]] = field(default_factory=dict)
    prunes: dict[int, list[int]] = field(default_factory=dict)
    first: set[int] = field(default_factory=set)
    contents: dict[_Key, Stream] = field(default_factory=dict)
    bad: bool = False  # one of its lines was skipped, so all of it is


def read(path: Path, problems: Problems, block_size: int | None) -> Iterator[Trajectory]:
    """Yield the trajectories of a file, in its order.

    A trajectory with a bad line is skipped as a whole (a line that is no JSON tells no trajectory, and is skipped
    alone); so is one of which a turn waits for one that does not exist or, in the end, for itself.
    """
    shared: dict[_Key, Stream] = {}
    for draft in drafts(lines(path, problems), path, problems, key="trajectory", begin=_Draft,
                        add=lambda draft, row: _add(draft, row, shared)):
        try:
            trajectory = _finished(draft, path)
        except InputError as error:
            problems.add(error, file=path, line=draft.line)
            continue
        yield trajectory


def _add(draft: _Draft, row: dict[str, Any], shared: dict[_Key, Stream]) -> None:
    """Add the turn of one line to its trajectory."""
    if not draft.turns:
        draft.arrival_s = number(row, "arrival_s", default=0.0)
        draft.group = text(row, "group", default="")
    index = integer(row, "turn", default=len(draft.turns))
    if index in draft.turns:
        raise InputError("is the number of two turns", field="turn", got=index)
    stream, tokens = _prompt(row, draft, shared)
    output = integer(row, "output", least=1)
    kept = integer(row, "kept", default=0)
    if kept > output:
        raise InputError(f"is more than the output of {output} tokens", field="kept", got=kept)
    join = text(row, "join", default="all")
    if join not in ("all", "first"):
        raise InputError("expected all or first", field="join", got=join)
    if join == "first":
        draft.first.add(index)
    draft.after[index] = listed(row, "after", int)
    draft.prunes[index] = listed(row, "prunes", int)
    draft.turns[index] = Turn(stream, tokens, output, kept_output=kept, wait_s=number(row, "wait_s", default=0.0),
                              tool=text(row, "tool", default=""), human=flag(row, "human"),
                              branch=integer(row, "branch", default=0), index=index)


def _prompt(row: dict[str, Any], draft: _Draft, shared: dict[_Key, Stream]) -> tuple[Stream, int]:
    """Return the stream and the length that a rope ``[[content, tokens], ...]`` stands for."""
    stream: Stream | None = None
    position = 0
    common = True  # so far all content is shared by all trajectories
    for piece in listed(row, "prompt", list, required=True):
        if len(piece) != 2 or not isinstance(piece[0], str) or type(piece[1]) is not int or not 0 <= piece[1] <= 10**12:
            raise InputError("expected pieces [content, tokens]", field="prompt", got=piece)
        name, tokens = piece
        common = common and name.startswith("/")
        known = shared if common else draft.contents
        key = (stream, position, name)
        found = known.get(key)
        if found is None:
            label = name.removeprefix("/").partition("~")[0]
            found = known[key] = Stream(stream, position, label) if position else Stream(None, 0, label)
        stream, position = found, position + tokens
    if stream is None or not position:
        raise InputError("holds no token", field="prompt")
    return stream, position


def _finished(draft: _Draft, path: Path) -> Trajectory:
    """Link the turns of a trajectory and check that it can run to its end."""
    total = len(draft.turns)
    missing = next((index for index in range(total) if index not in draft.turns), None)
    if missing is not None:
        raise InputError(f"turn {missing} of trajectory {draft.name} is missing", field="turn")
    turns = [draft.turns[index] for index in range(total)]
    roots = link(turns, [draft.after[index] for index in range(total)], frozenset(draft.first))
    for index, pruned in draft.prunes.items():
        wrong = next((other for other in pruned if not 0 <= other < total or other == index), None)
        if wrong is not None:
            raise InputError(f"turn {index} prunes a turn that does not exist, or itself", field="prunes", got=wrong)
        turns[index].prunes = [turns[other] for other in pruned]
    return Trajectory(0, draft.arrival_s, roots, total, draft.group, path.name)
