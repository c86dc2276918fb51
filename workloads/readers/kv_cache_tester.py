"""kv-cache-tester traces: one JSON file a coding session, with local hashes of 64-token blocks and sub-agents.

A session is a list of requests sent one after the other. A request's wait is the time from the end of the one before
(`t` + `api_time`) to its own `t`: the tool, the client, or the human. The model's recorded time is not replayed.
An entry of type `subagent` was written when the sub-agent ended: it started `duration_ms` before, at the end of the
request that spawned it, and its requests count from that start. The parent goes on when all sub-agents recorded since
its last request have ended. The rest of a prompt that its hashes do not cover belongs to that request alone; outputs
are not known to be reused. Times are relative to the session's start, so there are no arrivals.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sim.errors import InputError
from workloads.readers.base import Problems, document, integer, listed, number, text
from workloads.readers.hashed import HashedPrompts
from workloads.trajectory import Trajectory, Turn

BLOCK = 64  # tokens, if a file does not say
_DEEPEST = 8  # sub-agents within sub-agents


def sniff(row: dict[str, Any]) -> bool:
    """Return whether a JSON file looks like this format."""
    return isinstance(row.get("requests"), list) and ("block_size" in row or "hash_id_scope" in row)


def timed(path: Path) -> bool:
    """Return False: sessions carry no times of arrival."""
    return False


def files(path: Path) -> list[Path]:
    """Return the sessions that `path` (a file, or a folder of .json files) holds, sorted."""
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.json"))
    if not found:
        raise InputError("folder holds no .json file", file=path)
    return found


def read(path: Path, problems: Problems, block_size: int | None) -> Iterator[Trajectory]:
    """Yield the sessions of a file or a folder, sorted by name; a bad file is wrong as a whole.

    Raises
    ------
    InputError
        The folder is empty, or a file is wrong (unless such files are skipped).
    """
    shared: HashedPrompts | None = None
    for file in files(path):
        try:
            session = document(file)
            block = integer(session, "block_size", least=1, default=block_size or BLOCK)
            prompts = HashedPrompts(block)
            if text(session, "hash_id_scope", default="local") == "global":
                shared = prompts = shared if shared is not None and shared.block == block else prompts
            turns = _Session(prompts).turns(session)
        except InputError as error:
            problems.add(error, file=file)
            continue
        roots = [turn for turn in turns if not turn.pending]
        yield Trajectory(0, 0.0, roots, len(turns), "", file.name)


class _Session:
    """The turns of one session, in an order in which each comes after those it waits for."""

    def __init__(self, prompts: HashedPrompts) -> None:
        self._prompts = prompts
        self._turns: list[Turn] = []
        self._ends: list[tuple[float, bool]] = []  # recorded end of each turn (s), and whether it is exact
        self._branches = 0
        self._place = "requests"  # the entry being read, for errors

    def turns(self, session: dict[str, Any]) -> list[Turn]:
        """Return the turns of a session."""
        requests = listed(session, "requests", dict, required=True)
        try:
            self._line(requests, 0.0, "requests", [], 0, "")
        except InputError as error:
            field = f"{self._place}.{error.field}" if error.field else self._place
            raise InputError(error.reason, field=field, got=error.got) from None
        if not self._turns:
            raise InputError("holds no request", field="requests")
        return self._turns

    def _line(self, requests: list[dict[str, Any]], start_s: float, where: str, after: list[int], branch: int,
              stop: str) -> list[int]:
        """Append a line of requests that begins once the turns `after` have ended; return what its end waits for.

        `stop` is why the turn it begins after had stopped.
        """
        if where.count("[") > _DEEPEST:
            raise InputError(f"sub-agents are nested deeper than {_DEEPEST}")
        parent, pending = list(after), list(after)  # the line's last turn; that and the sub-agents since
        for index, request in enumerate(requests):
            self._place = f"{where}[{index}]"
            if text(request, "type", default="n") != "subagent":
                parent = [self._request(request, start_s, pending, parent, branch, stop)]
                pending, stop = parent, text(request, "stop", default="")
                continue
            began_s = start_s + number(request, "t") - number(request, "duration_ms", default=0.0) / 1000
            inner = listed(request, "requests", dict)
            self._branches += 1
            ended = self._line(inner, began_s, f"{self._place}.requests", parent, self._branches, stop)
            pending = [*pending, *(turn for turn in ended if turn not in pending)]
        return pending

    def _request(self, request: dict[str, Any], start_s: float, pending: list[int], parent: list[int], branch: int,
                 stop: str) -> int:
        """Append one request that waits for the turns `pending`; return its index."""
        t_s = start_s + number(request, "t")
        tokens = integer(request, "in", least=1)
        output = max(1, integer(request, "out"))
        api_s = number(request, "api_time", default=None)
        think_s = number(request, "think_time", default=None)
        kinds = listed(request, "input_types", str)
        stream = self._prompts.place(listed(request, "hash_ids", int), tokens)
        joins = len(pending) > len(parent)
        exact = all(self._ends[index][1] for index in pending)
        wait_s = max(0.0, t_s - max((self._ends[index][0] for index in pending), default=t_s))
        if not exact and not joins and think_s is not None:
            wait_s = min(wait_s, think_s)  # the end before is not recorded: no more than the time since its start
        tool = _tool(stop, kinds, joins, first=not pending or self._turns[pending[0]].branch != branch)
        turn = Turn(stream, tokens, output, wait_s=wait_s, tool=tool, human=tool == "human", branch=branch,
                    index=len(self._turns))
        for index in pending:
            self._turns[index].then(turn)
        self._turns.append(turn)
        self._ends.append((t_s + (api_s or 0.0), api_s is not None))
        return turn.index


def _tool(stop: str, kinds: list[str], joins: bool, first: bool) -> str:
    """Name what a request waited for, from why the one before stopped and from what it brings."""
    if joins:
        return "sub-agent"
    if stop == "end_turn":
        return "human"
    if first:
        return ""
    return "tool" if "tool_result" in kinds else "unknown"
