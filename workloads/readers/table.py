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

_MOST_CELLS = 1000
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def rows(path: Path, problems: Problems, required: frozenset[str],
         aliases: dict[str, str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, {column: value}) for every line after the header.

    Values that look like a number are one; an empty cell is None. A cell may be quoted, but not hold a line break.

    Parameters
    ----------
    path, problems
        The file, and what to do with bad lines.
    required
        Columns that must be there.
    aliases
        Names that the columns are given, by their names in lower case; None: they keep their own.

    Raises
    ------
    InputError
        The file cannot be read or its header is wrong; a bad line, unless such lines are skipped.
    """
    header: list[str] | None = None
    for line, raw in raw_lines(path, problems):
        try:
            cells = _cells(raw)
            if header is not None and len(cells) != len(header):
                raise InputError(f"has {len(cells)} cells; the header has {len(header)}")
            if header is None:
                header = [cell.strip() for cell in cells]
                if aliases is not None:
                    header = [aliases.get(name.lower(), name.lower()) for name in header]
                _check(header, required)
                continue
        except InputError as error:
            problems.add(error, file=path, line=line)
            if not _usable(header, required):
                return
            continue
        yield line, {name: _value(cell.strip()) for name, cell in zip(header, cells, strict=True)}


def _usable(header: list[str] | None, required: frozenset[str]) -> bool:
    return header is not None and len(set(header)) == len(header) and required <= set(header)


def _check(header: list[str], required: frozenset[str]) -> None:
    """Refuse a header that has a column twice, or lacks one."""
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise InputError("the header has a column twice", got=twice or "''")
    missing = sorted(required - set(header))
    if missing:
        raise InputError("the header lacks a column", field=missing[0])


def _cells(raw: bytes) -> list[str]:
    if raw.count(b",") > _MOST_CELLS:
        raise InputError(f"has more than {_MOST_CELLS} cells")
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
