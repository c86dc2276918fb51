"""Recorded workloads: one file a format, each with `sniff`, `timed` and `read`; `FORMATS` is the list.

A reader yields trajectories one by one, in the order of their arrival. Prompts become streams, so that content two
prompts share is the same stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

from sim.errors import InputError
from workloads.readers import (
    azure,
    dynamo_agentic,
    kv_cache_tester,
    kvplan_jsonl,
    mooncake,
    otel_genai,
    sessions_csv,
    table,
)
from workloads.readers.base import Problems, Progress, document, lines
from workloads.trajectory import Trajectory

__all__ = ["FORMATS", "Problems", "Progress", "Reader", "guess", "open_trace"]


class Reader(Protocol):
    """A trace format."""

    sniff: Callable[[dict[str, Any]], bool]
    """Whether a file's first object looks like this format."""
    timed: Callable[[Path], bool]
    """Whether a trace tells when its trajectories arrive."""
    read: Callable[..., Iterator[Trajectory]]
    """``read(path, problems, block_size)`` yields the trajectories; `open_trace` numbers them.

    `block_size` is what a hash covers, for a format whose files do not say. It raises InputError if the file cannot be
    read, and for what is wrong in it unless `problems` says that such things are skipped.
    """


FORMATS: dict[str, Any] = {
    "kv-cache-tester": kv_cache_tester, "mooncake": mooncake, "dynamo-agentic": dynamo_agentic, "kvplan": kvplan_jsonl,
    "azure": azure, "sessions-csv": sessions_csv, "otel-genai": otel_genai,
}


def guess(path: Path) -> str:
    """Return the format of a trace, from its first object.

    Raises
    ------
    InputError
        There is no such file or folder, or it looks like none of the formats.
    """
    if not path.exists():
        raise InputError("does not exist", file=path)
    first = kv_cache_tester.files(path)[0]
    row = _first_object(first)
    for name, reader in FORMATS.items():
        if reader.sniff(row):
            return name
    raise InputError(f"looks like none of the formats {', '.join(FORMATS)}; give `format`", file=first)


def _first_object(path: Path) -> dict[str, Any]:
    """Return the first line's object (a CSV file's first row), or the whole file's if that is one JSON document."""
    if path.suffix == ".json":
        return document(path)
    skipping = Problems("skip")
    found = table.rows(path, skipping, frozenset()) if path.suffix.lower() == ".csv" else lines(path, skipping)
    for _, row in found:
        return row
    if skipping.first:
        raise skipping.first[0]
    raise InputError("is empty", file=path)


def open_trace(path: Path, format: str | None = None, *, on_error: Literal["stop", "skip"] = "stop",
               block_size: int | None = None, problems: Problems | None = None,
               progress: Progress | None = None) -> Iterator[Trajectory]:
    """Yield the trajectories of a trace.

    Parameters
    ----------
    path
        A file or, for kv-cache-tester, a folder of files.
    format
        One of `FORMATS`; None: guessed.
    on_error
        `stop` at the first thing that is wrong, or count and `skip` it (in `problems`, if given).
    block_size
        Tokens a hash covers, for a format that does not say.
    problems
        Where what was skipped is counted; takes the place of `on_error`.
    progress
        Called with 1 for every trajectory read.

    Raises
    ------
    InputError
        Before the first trajectory if there is no such trace; otherwise when the reading comes to what is wrong.
    """
    name = format or guess(path)
    if name not in FORMATS:
        raise InputError(f"unknown format; known: {', '.join(FORMATS)}", field="format", got=name)
    if not path.exists():
        raise InputError("does not exist", file=path)
    if path.is_dir() and name != "kv-cache-tester":
        raise InputError(f"is a folder; a {name} trace is one file", file=path)
    return _numbered(FORMATS[name].read(path, problems or Problems(on_error), block_size), progress)


def _numbered(found: Iterator[Trajectory], progress: Progress | None) -> Iterator[Trajectory]:
    for number, trajectory in enumerate(found):
        trajectory.number = number
        yield trajectory
        if progress is not None:
            progress(1)
