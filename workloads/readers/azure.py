"""Azure LLM inference traces (Splitwise, 2023, and their successor of 2024): one request a line of CSV.

``TIMESTAMP,ContextTokens,GeneratedTokens``: when it was sent, the tokens of its prompt and of its output. Nothing is
known of the contents, so no two prompts share anything; every request is a trajectory of one turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sim.errors import InputError
from workloads.readers.base import Problems, Progress, integer
from workloads.readers.table import instant, rows
from workloads.trajectory import Stream, Trajectory, Turn

COLUMNS = frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"})


def sniff(row: dict[str, Any]) -> bool:
    """Return whether a row has this format's columns."""
    return row.keys() >= COLUMNS


def timed(path: Path) -> bool:
    """Return True: every request carries its time."""
    return True


def read(path: Path, *, problems: Problems | None = None, block_size: int | None = None,
         progress: Progress | None = None) -> Iterator[Trajectory]:
    """Yield the requests of a file, in its order; the first arrives at 0.

    Parameters
    ----------
    path
        The CSV file.
    problems
        What to do with bad lines, and where to count them.
    block_size
        Not used; the format has no hashes.
    progress
        Called with 1 for every trajectory.

    Raises
    ------
    InputError
        The file cannot be read, or a line is wrong (unless such lines are skipped).
    """
    problems = problems or Problems()
    begun: int | None = None
    count, last_s = 0, 0.0
    for line, row in rows(path, problems, COLUMNS):
        try:
            at = instant(row, "TIMESTAMP")
            arrival_s = 0.0 if begun is None else (at - begun) / 1e6
            if arrival_s < last_s:
                raise InputError("lies before the line in front; sort the trace by time", field="TIMESTAMP",
                                 got=row["TIMESTAMP"])
            tokens = integer(row, "ContextTokens", least=1)
            output = max(1, integer(row, "GeneratedTokens"))
        except InputError as error:
            problems.add(error, file=path, line=line)
            continue
        begun, last_s = at if begun is None else begun, arrival_s
        yield Trajectory(count, arrival_s, [Turn(Stream(None, 0, "prompt"), tokens, output)], 1, "", path.name)
        count += 1
        if progress is not None:
            progress(1)
