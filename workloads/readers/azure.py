"""Azure LLM inference traces (Splitwise, 2023, and their successor of 2024): one request a line of CSV.

``TIMESTAMP,ContextTokens,GeneratedTokens``: when it was sent, the tokens of its prompt and of its output. Nothing is
known of the contents, so no two prompts share anything; every request is a trajectory of one turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workloads.readers.base import Problems, integer
from workloads.readers.lined import requests
from workloads.readers.table import instant, rows
from workloads.trajectory import Stream, Trajectory, Turn

COLUMNS = frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"})


def sniff(row: dict[str, Any]) -> bool:
    """Return whether a row has this format's columns."""
    return row.keys() >= COLUMNS


def timed(path: Path) -> bool:
    """Return True: every request carries its time."""
    return True


def read(path: Path, problems: Problems, block_size: int | None) -> Iterator[Trajectory]:
    """Yield the requests of a file, in its order; the first arrives at 0."""
    return requests(rows(path, problems, COLUMNS), path, problems, clock="TIMESTAMP", from_first=True,
                    at=lambda row: instant(row, "TIMESTAMP"), per_second=1e6, turn=_turn)


def _turn(row: dict[str, Any]) -> Turn:
    tokens = integer(row, "ContextTokens", least=1)
    return Turn(Stream(None, 0, "prompt"), tokens, max(1, integer(row, "GeneratedTokens")))
