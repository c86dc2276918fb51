"""Mooncake traces (FAST'25): one request a line, with prefix hashes of 512-token blocks.

``{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, ...]}``: milliseconds, tokens,
and ids that cover the prompt, the last of them possibly in part. Every request is a trajectory of one turn: the trace
does not say which belong together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sim.errors import InputError
from workloads.readers.base import Problems, Progress, integer, lines, listed, number
from workloads.readers.hashed import HashedPrompts
from workloads.trajectory import Trajectory, Turn

BLOCK = 512  # tokens; the format does not carry it


def sniff(row: dict[str, Any]) -> bool:
    """Return whether the first line of a file looks like this format."""
    return {"timestamp", "input_length", "output_length", "hash_ids"} <= row.keys() and "request_id" not in row


def timed(path: Path) -> bool:
    """Return True: every request carries its time of arrival."""
    return True


def read(path: Path, *, problems: Problems | None = None, block_size: int | None = None,
         progress: Progress | None = None) -> Iterator[Trajectory]:
    """Yield the requests of a file, in its order.

    Parameters
    ----------
    path
        The JSON-lines file.
    problems
        What to do with bad lines, and where to count them.
    block_size
        Tokens a hash covers (512 if None).
    progress
        Called with 1 for every trajectory.

    Raises
    ------
    InputError
        The file cannot be read, or a line is wrong (unless such lines are skipped).
    """
    problems = problems or Problems()
    prompts = HashedPrompts(block_size or BLOCK)
    count, last_s = 0, 0.0
    for line, row in lines(path, problems):
        try:
            arrival_s = number(row, "timestamp") / 1000
            if arrival_s < last_s:
                raise InputError("lies before the line in front; sort the trace by time", field="timestamp",
                                 got=row["timestamp"])
            tokens = integer(row, "input_length", least=1)
            output = max(1, integer(row, "output_length"))
            stream = prompts.place(listed(row, "hash_ids", int), tokens)
        except InputError as error:
            problems.add(error, file=path, line=line)
            continue
        last_s = arrival_s
        yield Trajectory(count, arrival_s, [Turn(stream, tokens, output)], 1, "", path.name)
        count += 1
        if progress is not None:
            progress(1)
