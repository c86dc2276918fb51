"""Writes trajectories in another format."""

from __future__ import annotations

from pathlib import Path

from sim.errors import InputError
from workloads.writers import WRITERS
from workloads.writers.base import Source
from workloads.writers.hashed import write_mooncake
from workloads.writers.kvplan_jsonl import write_kvplan

__all__ = ["WRITERS", "write", "write_kvplan", "write_mooncake"]


def write(trajectories: Source, path: Path, format: str) -> int:
    """Write trajectories to `path` in one of the formats; return how many.

    Raises
    ------
    InputError
        The format is unknown or cannot hold them, or there is something at `path` already.
    """
    if format not in WRITERS:
        raise InputError(f"unknown format; known: {', '.join(WRITERS)}", field="to", got=format)
    if path.exists():
        raise InputError("exists already", file=path)
    try:
        return WRITERS[format](trajectories, path)
    except InputError:
        if path.is_file():
            path.unlink()  # half a trace is none
        raise
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", file=path) from None
