"""What the readers have in common: lines, fields, and what happens to those that are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from sim.errors import InputError

#: Called with 1 for every trajectory read, so that `tqdm(...).update` can be passed.
Progress = Callable[[int], object]

_LONGEST_LINE = 64 * 2**20  # bytes; a context of ten million tokens in 16-token blocks fits
_LARGEST = 10**12
_MISSING: Any = object()


@dataclass(slots=True)
class Problems:
    """What was wrong with a trace, and whether that stops the reading.

    `on_error` is `stop` (the first problem is raised) or `skip`: `skipped` counts, and `first` keeps the first few.
    """

    on_error: Literal["stop", "skip"] = "stop"
    skipped: int = 0
    first: list[InputError] = field(default_factory=list)

    def add(self, error: InputError, *, file: Path | None = None, line: int | None = None) -> None:
        """Count `error`, or raise it with its place filled in."""
        placed = error.at(file=file, line=line)
        if self.on_error == "stop":
            raise placed from None
        self.skipped += 1
        if len(self.first) < 5:
            self.first.append(placed)

    def told(self) -> list[str]:
        """Return what was skipped as lines for a person: how many, and the first few."""
        if not self.skipped:
            return []
        more = self.skipped - len(self.first)
        return [f"skipped {self.skipped:,} of what the trace holds:", *map(str, self.first),
                *([f"... and {more:,} more"] if more else [])]

    def clear(self) -> None:
        """Forget what was counted: the reading begins again."""
        self.skipped = 0
        self.first.clear()


def raw_lines(path: Path, problems: Problems) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, bytes) for every line that is not blank, never holding more than one.

    Raises
    ------
    InputError
        The file cannot be read, or holds no line at all; a line that is too long, unless such lines are skipped.
    """
    seen = False
    try:
        with path.open("rb") as handle:
            number = 0
            while raw := handle.readline(_LONGEST_LINE):
                number += 1
                if not raw.endswith(b"\n") and len(raw) == _LONGEST_LINE:
                    while (rest := handle.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
                        pass
                    problems.add(InputError(f"line is longer than {_LONGEST_LINE // 2**20} MiB"), file=path,
                                 line=number)
                    seen = True
                elif raw.strip():
                    seen = True
                    yield number, raw
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from None
    if not seen:
        problems.add(InputError("is empty"), file=path)


def lines(path: Path, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, object) for every line of a JSON-lines file that holds a JSON object.

    Raises
    ------
    InputError
        The file cannot be read, or holds no line at all; a bad line, unless such lines are skipped.
    """
    for number, raw in raw_lines(path, problems):
        try:
            row = parsed(raw)
        except InputError as error:
            problems.add(error, file=path, line=number)
            continue
        yield number, row


def document(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds; InputError if it cannot be read or holds none."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from None
    if not raw.strip():
        raise InputError("is empty", file=path)
    try:
        return parsed(raw)
    except InputError as error:
        raise error.at(file=path) from None


def parsed(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in `raw`; InputError for anything else."""
    try:
        row = json.loads(raw.decode("utf-8-sig"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise InputError(f"is no UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        line = error.lineno if b"\n" in raw.rstrip(b"\r\n") else None
        raise InputError(f"is no JSON: {error.msg} at column {error.colno}", line=line) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON: {str(error).splitlines()[0][:80]}") from None
    if not isinstance(row, dict):
        raise InputError("expected a JSON object", got=row)
    return row


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def integer(row: dict[str, Any], name: str, *, least: int = 0, default: Any = _MISSING) -> int:
    """Return a whole number of at least `least`; `default` if the field is missing or null."""
    value = row.get(name)
    if value is None:
        if default is _MISSING:
            raise InputError("is missing", field=name)
        return int(default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError("expected a whole number", field=name, got=value)
    if not least <= value <= _LARGEST:
        raise InputError(f"expected a number from {least} to 1e12", field=name, got=value)
    return value


def number(row: dict[str, Any], name: str, *, default: Any = _MISSING) -> float:
    """Return a finite number >= 0; `default` (which may be None) if the field is missing or null."""
    value = row.get(name)
    if value is None:
        if default is _MISSING:
            raise InputError("is missing", field=name)
        return default  # type: ignore[no-any-return]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("expected a number", field=name, got=value)
    if not 0 <= value <= 1e15:
        raise InputError("expected a number from 0 to 1e15", field=name, got=value)
    return float(value)


def text(row: dict[str, Any], name: str, *, default: Any = _MISSING) -> str:
    """Return a text; a number is taken as its digits; `default` if the field is missing or null."""
    value = row.get(name)
    if value is None:
        if default is _MISSING:
            raise InputError("is missing", field=name)
        return default  # type: ignore[no-any-return]
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError("expected a text", field=name, got=value)
    return str(value)


def flag(row: dict[str, Any], name: str) -> bool:
    """Return true or false; a missing field is false."""
    value = row.get(name, False)
    if not isinstance(value, bool):
        raise InputError("expected true or false", field=name, got=value)
    return value


def listed(row: dict[str, Any], name: str, of: type, *, required: bool = False) -> list[Any]:
    """Return a list whose items all have type `of`; a missing field is an empty list."""
    value = row.get(name)
    if value is None and not required:
        return []
    if not isinstance(value, list):
        raise InputError("is missing" if value is None else "expected a list", field=name,
                         **({} if value is None else {"got": value}))
    if any(kind is not of for kind in set(map(type, value))):
        wrong = next(item for item in value if type(item) is not of)
        raise InputError(f"expected a list of {'whole numbers' if of is int else of.__name__}", field=name, got=wrong)
    return value
