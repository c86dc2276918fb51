"""Rows of a CSV file with a header line, read one line at a time."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sim.errors import InputError
from workloads.readers.base import Problems, raw_lines

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def rows(path: Path, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, {column: value}) for every line after the header.

    Values that look like a number are one; an empty cell is None. A cell may be quoted, but not hold a line break.

    Raises
    ------
    InputError
        The file cannot be read or has no header; a bad line, unless such lines are skipped.
    """
    header: list[str] | None = None
    for line, raw in raw_lines(path, problems):
        try:
            cells = _cells(raw)
            if header is None:
                header = [cell.strip() for cell in cells]
                if len(set(header)) < len(header) or not all(header):
                    raise InputError("the header has a column twice, or one without a name")
                continue
            if len(cells) != len(header):
                raise InputError(f"has {len(cells)} cells; the header has {len(header)}")
        except InputError as error:
            if header is None or len(set(header)) < len(header) or not all(header):
                raise error.at(file=path, line=line) from None
            problems.add(error, file=path, line=line)
            continue
        yield line, {name: _value(cell.strip()) for name, cell in zip(header, cells, strict=True)}


def _cells(raw: bytes) -> list[str]:
    try:
        (cells,) = csv.reader([raw.decode("utf-8-sig").rstrip("\r\n")], strict=True)
    except UnicodeDecodeError as error:
        raise InputError(f"is no UTF-8 text (byte {error.start})") from None
    except (csv.Error, ValueError) as error:
        raise InputError(f"is no line of a CSV file: {error}") from None
    return cells


def _value(cell: str) -> Any:
    if not cell:
        return None
    if len(cell) > 40 or not _NUMBER.fullmatch(cell):
        return cell
    return int(cell) if cell.lstrip("+-").isdigit() else float(cell)


def renamed(row: dict[str, Any], aliases: dict[str, str]) -> dict[str, Any]:
    """Return a row under the names that `aliases` gives its columns (looked up in lower case)."""
    return {aliases.get(name.lower(), name.lower()): value for name, value in row.items()}


def instant(row: dict[str, Any], name: str) -> int:
    """Return a point in time, written as ISO 8601, in whole microseconds since 1970 (UTC if no zone is given)."""
    value = row.get(name)
    if value is None:
        raise InputError("is missing", field=name)
    try:
        if not isinstance(value, str) or len(value) > 40:
            raise ValueError
        when = datetime.fromisoformat(value)
    except ValueError:
        raise InputError("expected a time like 2023-11-16 18:17:03.97", field=name, got=value) from None
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 10**6 + since.microseconds
