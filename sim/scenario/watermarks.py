"""Two shares between which something is emptied: it starts at one and goes on to the other."""

from __future__ import annotations

from typing import Protocol, TypeVar

from sim.errors import InputError


class _Marked(Protocol):
    @property
    def low_watermark(self) -> float: ...

    @property
    def high_watermark(self) -> float: ...


Marked = TypeVar("Marked", bound=_Marked)


def watermarks_in_order(marked: Marked) -> Marked:
    """Return what was given.

    Raises
    ------
    InputError
        The low watermark lies above the high one.
    """
    if marked.low_watermark > marked.high_watermark:
        raise InputError(f"must not exceed high_watermark, which is {marked.high_watermark:g}",
                         field="low_watermark", got=marked.low_watermark)
    return marked
