"""Dynamo agentic traces: one request a line, with what it waits for.

``{"request_id": "r2", "session_id": "s1", "input_length": 5120, "output_length": 80, "hash_ids": [...],
"wait_for": ["r1"], "delay": 20, "tool_wait_ms": 1500}``. A request is ready `delay` + `tool_wait_ms` milliseconds after
the last request it waits for has ended; one that waits for none starts at its `timestamp` (ms). Requests of one
session, and of sessions that wait for each other, are one trajectory. Hash ids stand for a block with all in front of
it. Without them a session's prompts are taken to extend each other, until `prefix_reset` or a shorter one. `branches`
and `tool_events` say nothing that the waits do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.errors import InputError
from workloads.readers.base import Problems, flag, integer, lines, listed, number, text
from workloads.readers.graph import link
from workloads.readers.hashed import HashedPrompts
from workloads.readers.lined import carries
from workloads.trajectory import Stream, Trajectory, Turn

BLOCK = 512  # tokens; the format does not carry it


def sniff(row: dict[str, Any]) -> bool:
    """Return whether the first line of a file looks like this format."""
    return "request_id" in row and ("input_length" in row or "hash_ids" in row)


def timed(path: Path) -> bool:
    """Return whether the first request of a file has a timestamp."""
    return carries(path, "timestamp")


@dataclass(slots=True)
class _Request:
    """A line: its turn, what it waits for, and when it starts if for nothing (s; None: not recorded)."""

    turn: Turn
    line: int
    session: str
    wait_for: list[str]
    start_s: float | None


def read(path: Path, problems: Problems, block_size: int | None) -> Iterator[Trajectory]:
    """Yield the trajectories of a file, in order of arrival. The whole file is read first.

    One of which a request waits for one that does not exist or, in the end, for itself is wrong as a whole.
    """
    requests = _requests(path, problems, block_size or BLOCK)
    trajectories: list[Trajectory] = []
    for names in _components(requests):
        try:
            trajectories.append(_trajectory(names, requests, path))
        except InputError as error:
            problems.add(error, file=path)
    trajectories.sort(key=lambda trajectory: trajectory.arrival_s)  # stable: ties stay in the file's order
    yield from trajectories


def _requests(path: Path, problems: Problems, block: int) -> dict[str, _Request]:
    """Return the requests of a file by id."""
    prompts = HashedPrompts(block)
    sessions: dict[str, tuple[Stream, int]] = {}
    found: dict[str, _Request] = {}
    for line, row in lines(path, problems):
        try:
            name = text(row, "request_id")
            if name in found:
                raise InputError("is the id of two requests", field="request_id", got=name)
            found[name] = _request(row, line, prompts, sessions)
        except InputError as error:
            problems.add(error, file=path, line=line)
    return found


def _request(row: dict[str, Any], line: int, prompts: HashedPrompts,
             sessions: dict[str, tuple[Stream, int]]) -> _Request:
    """Return the request in a line; `sessions` holds each session's last prompt."""
    ids = listed(row, "hash_ids", int)
    session = text(row, "session_id", default="")
    tokens = integer(row, "input_length", least=1, default=len(ids) * prompts.block or None) \
        if ids or row.get("input_length") is not None else integer(row, "input_length", least=1)
    output = max(1, integer(row, "output_length", default=1))
    tool_s = number(row, "tool_wait_ms", default=0.0) / 1000
    wait_s = number(row, "delay", default=0.0) / 1000 + tool_s
    timestamp = number(row, "timestamp", default=None)
    reset = flag(row, "prefix_reset")
    listed(row, "branches", str)
    events = listed(row, "tool_events", dict)
    wait_for = listed(row, "wait_for", str)
    if ids:
        stream = prompts.place(ids, tokens)
    else:
        stream, before = sessions.get(session, (Stream(None, 0, "context"), 0))
        if reset or tokens < before or not session:
            stream = Stream(None, 0, "context")
        sessions[session] = (stream, tokens)
    name = next((event[key] for event in events for key in ("tool_name", "name", "tool")
                 if isinstance(event.get(key), str)), "tool")
    turn = Turn(stream, tokens, output, wait_s=wait_s, tool=(name if tool_s else "delay") if wait_s else "")
    return _Request(turn, line, session, wait_for, None if timestamp is None else timestamp / 1000)


def _components(requests: dict[str, _Request]) -> list[list[str]]:
    """Group requests that share a session or wait for each other, in the file's order (union-find)."""
    parent: dict[str, str] = {name: name for name in requests}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    first_of: dict[str, str] = {}
    for name, request in requests.items():
        if request.session:
            parent[root(name)] = root(first_of.setdefault(request.session, name))
        for other in request.wait_for:
            if other in requests:
                parent[root(name)] = root(other)
    groups: dict[str, list[str]] = {}
    for name in requests:
        groups.setdefault(root(name), []).append(name)
    return list(groups.values())


def _trajectory(names: list[str], requests: dict[str, _Request], path: Path) -> Trajectory:
    """Return the trajectory that these requests make."""
    position = {name: index for index, name in enumerate(names)}
    after: list[list[int]] = []
    starts = [start for name in names if not requests[name].wait_for
              and (start := requests[name].start_s) is not None]
    arrival_s = min(starts, default=0.0)
    branches: dict[str, int] = {}
    for index, name in enumerate(names):
        request = requests[name]
        unknown = next((other for other in request.wait_for if other not in position), None)
        if unknown is not None:
            raise InputError("waits for a request that does not exist", file=path, line=request.line,
                             field="wait_for", got=unknown)
        after.append([position[other] for other in request.wait_for])
        turn = request.turn
        turn.index = index
        turn.branch = branches.setdefault(request.session or name, len(branches)) if request.session else 0
        if not request.wait_for and request.start_s is not None:
            turn.wait_s += request.start_s - arrival_s
    turns = [requests[name].turn for name in names]
    try:
        roots = link(turns, after)
    except InputError as error:
        raise InputError(error.reason, file=path, line=requests[names[0]].line, field="wait_for",
                         got=error.got) from None
    return Trajectory(0, arrival_s, roots, len(turns), "", path.name)
