"""The one error a user's mistake becomes: a single line that says where, what and which value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_MISSING: Any = object()


class InputError(ValueError):
    """Something the user gave is wrong.

    Its text is one line, ``file:line: field: reason (got VALUE)``, with the parts that are known. The command line
    prints it and exits with status 2.
    """

    def __init__(self, reason: str, *, file: str | Path | None = None, line: int | None = None,
                 field: str | None = None, got: Any = _MISSING) -> None:
        self.reason = reason
        self.file = None if file is None else str(file)
        self.line = line
        self.field = field
        self.got = got
        super().__init__(self._text())

    def _text(self) -> str:
        where = self.file or ""
        if self.line is not None:
            where += f":{self.line}" if where else f"line {self.line}"
        parts = [part for part in (where, self.field) if part]
        text = ": ".join([*parts, " ".join(self.reason.split())])
        if self.got is not _MISSING:
            text += f" (got {shorten(self.got)})"
        return text

    def at(self, *, file: str | Path | None = None, line: int | None = None, field: str | None = None) -> InputError:
        """Return the same error with the parts of its place that were not known filled in."""
        return InputError(self.reason, file=self.file or file, line=self.line if self.line is not None else line,
                          field=self.field or field, got=self.got)


def shorten(value: Any, limit: int = 80) -> str:
    """Return `value` on one line of at most `limit` characters, for an error message."""
    try:
        text = " ".join((value if isinstance(value, str) else repr(value)).split())
    except ValueError:  # Python writes no number of so many digits
        text = "a number of thousands of digits"
    return text if len(text) <= limit else text[: limit - 1] + "…"
