"""The file of raw samples: one JSON object a line. Written so that a killed benchmark loses nothing it had finished."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def key_of(point: dict[str, Any], backend: str) -> str:
    """Return what makes a sample the same as another: its point and its backend."""
    return json.dumps([backend, point], sort_keys=True)


class SampleFile:
    """Append samples; each is on disk before the next is measured.

    Parameters
    ----------
    path
        The file; an existing one is continued. A line torn by a kill is cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: set[str] = set()
        if path.exists():
            self._mend()
            self.done = {line["key"] for line in lines(path) if "key" in line}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def _mend(self) -> None:
        text = self.path.read_bytes()
        end = text.rfind(b"\n") + 1
        if end < len(text):
            with self.path.open("r+b") as file:
                file.truncate(end)

    def write(self, line: dict[str, Any]) -> None:
        """Append one line and wait until it is on disk."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        if "key" in line:
            self.done.add(line["key"])

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the samples of a file; a last line torn by a kill is left out."""
    with path.open(encoding="utf-8") as file:
        for text in file:
            if text.endswith("\n") and text.strip():
                yield json.loads(text)
