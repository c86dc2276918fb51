"""A CSV of sessions: one turn a line, what a spreadsheet or a query over a log gives. See docs/trace_format.md.

``session,turn,prompt,output,wait`` and, if known, ``arrival,tool,human,kept,reused``. The lines of a session follow
each other. A prompt is taken to begin with all of the one before unless it is shorter (then nothing is shared) or
`reused` says how much; the output before is taken to be part of it if there is room for it, unless `kept` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.errors import InputError
from workloads.prompt import attached
from workloads.readers.base import Problems, integer, number, text
from workloads.readers.lined import drafts
from workloads.readers.table import rows
from workloads.trajectory import Stream, Trajectory, Turn

_ALIASES = {
    "session_id": "session", "conversation": "session", "conversation_id": "session", "turn_index": "turn",
    "prompt_tokens": "prompt", "input_tokens": "prompt", "input_length": "prompt", "output_tokens": "output",
    "completion_tokens": "output", "output_length": "output", "wait_s": "wait", "arrival_s": "arrival",
    "kept_tokens": "kept", "reused_tokens": "reused", "cached_tokens": "reused",
}
_REQUIRED = frozenset({"session", "prompt", "output"})
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


def sniff(row: dict[str, Any]) -> bool:
    """Return whether a row has this format's columns."""
    return {_ALIASES.get(name.lower(), name.lower()) for name in row} >= _REQUIRED


def timed(path: Path) -> bool:
    """Return whether the first row says when its session arrives."""
    for _, row in rows(path, Problems("skip"), _REQUIRED, _ALIASES):
        return row.get("arrival") is not None
    return False


@dataclass(slots=True)
class _Session:
    """The session being read."""

    name: str
    arrival_s: float = 0.0
    turns: list[Turn] = field(default_factory=list)
    kept: list[int | None] = field(default_factory=list)
    number: int = -1  # of the last turn
    bad: bool = False


def read(path: Path, problems: Problems, block_size: int | None) -> Iterator[Trajectory]:
    """Yield the sessions of a file, in its order; one with a bad line is skipped as a whole."""
    for session in drafts(rows(path, problems, _REQUIRED, _ALIASES), path, problems, key="session",
                          begin=lambda name, _: _Session(name), add=_add):
        yield Trajectory(0, session.arrival_s, session.turns[:1], len(session.turns), "", path.name)


def _add(session: _Session, row: dict[str, Any]) -> None:
    """Add the turn of one line to its session."""
    if not session.turns:
        session.arrival_s = number(row, "arrival", default=0.0)
    index = integer(row, "turn", default=session.number + 1)
    if index <= session.number:
        raise InputError(f"must rise; the line in front is turn {session.number}", field="turn", got=index)
    tokens, output = integer(row, "prompt", least=1), max(1, integer(row, "output"))
    kept = integer(row, "kept", default=-1) if row.get("kept") is not None else None
    if kept is not None and kept > output:
        raise InputError(f"is more than the output of {output} tokens", field="kept", got=kept)
    reused = integer(row, "reused") if row.get("reused") is not None else None
    wait_s = number(row, "wait", default=0.0)
    tool = text(row, "tool", default="tool" if wait_s and session.turns else "")
    before = session.turns[-1] if session.turns else None
    stream = _stream(session, before, tokens, reused)
    turn = Turn(stream, tokens, output, wait_s=wait_s, tool=tool, human=_flag(row), index=len(session.turns),
                kept_output=kept or 0)
    if before is not None:
        if session.kept[-1] is None and stream is before.stream:
            room = (tokens if reused is None else reused) - before.prompt_tokens
            whole = room >= before.output_tokens
            before.kept_output = before.output_tokens if whole else 0 if reused is None else room
        before.then(turn)
    session.turns.append(turn)
    session.kept.append(kept)
    session.number = index


def _stream(session: _Session, before: Turn | None, tokens: int, reused: int | None) -> Stream:
    """Return the stream of a prompt, given the turn before and how much of it is reused (None: not said)."""
    if before is None:
        if reused is not None and reused > tokens:
            raise InputError(f"is more than the prompt of {tokens} tokens", field="reused", got=reused)
        return Stream(None, 0, "context")
    if reused is None:
        return before.stream if tokens >= before.prompt_tokens else Stream(None, 0, "context")
    if reused > min(tokens, before.prompt_tokens + before.output_tokens):
        raise InputError("is more than this prompt, or than the context before", field="reused", got=reused)
    if reused >= before.prompt_tokens:
        return before.stream
    return attached(before.stream, reused, "context")


def _flag(row: dict[str, Any]) -> bool:
    value = row.get("human")
    found = _FLAGS.get("" if value is None else str(value).lower())
    if found is None:
        raise InputError("expected true or false", field="human", got=value)
    return found
