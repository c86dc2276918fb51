"""Writes trajectories in another format."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from sim.errors import InputError
from sim.writing import check_place
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
        The format is unknown or cannot hold them, there is something at `path` already, or nothing may be written
        there.
    OSError
        The disk is full or broken; nothing is left at `path`.
    """
    if format not in WRITERS:
        raise InputError(f"unknown format; known: {', '.join(WRITERS)}", field="to", got=format)
    check_place(path, field="--output", folder=True)
    if path.exists():
        raise InputError("exists already", file=path)
    partial = path.with_name(f".{secrets.token_hex(4)}-{path.name}"[-200:])
    try:
        count = WRITERS[format](trajectories, partial)
        os.replace(partial, path)
        return count
    except OSError as error:
        raise OSError(f"cannot write to {path}: {error.strerror or error}") from error
    finally:  # half a trace is none
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        partial.unlink(missing_ok=True)
