"""Mooncake traces (FAST'25): one request a line, with prefix hashes of 512-token blocks.

``{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, ...]}``: milliseconds, tokens,
and ids that cover the prompt, the last of them possibly in part. Every request is a trajectory of one turn: the trace
does not say which belong together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workloads.readers.base import Problems, integer, lines, listed, number
from workloads.readers.hashed import HashedPrompts
from workloads.readers.lined import requests
from workloads.trajectory import Trajectory, Turn

BLOCK = 512  # tokens; the format does not carry it


def sniff(row: dict[str, Any]) -> bool:
    """Return whether the first line of a file looks like this format."""
    return {"timestamp", "input_length", "output_length", "hash_ids"} <= row.keys() and "request_id" not in row


def timed(path: Path) -> bool:
    """Return True: every request carries its time of arrival."""
    return True


def read(path: Path, problems: Problems, block_size: int | None) -> Iterator[Trajectory]:
    """Yield the requests of a file, in its order."""
    prompts = HashedPrompts(block_size or BLOCK)

    def turn(row: dict[str, Any]) -> Turn:
        tokens = integer(row, "input_length", least=1)
        output = max(1, integer(row, "output_length"))
        return Turn(prompts.place(listed(row, "hash_ids", int), tokens), tokens, output)

    return requests(lines(path, problems), path, problems, clock="timestamp",
                    at=lambda row: number(row, "timestamp"), per_second=1000, turn=turn)
