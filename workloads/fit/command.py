"""Fits a spec to traces on disk and writes it, with a picture of how good it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sim.errors import InputError
from workloads.fit.fitting import Fit, fit
from workloads.fit.picture import draw
from workloads.fit.written import text
from workloads.source import named
from workloads.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Done:
    """A fit, where its picture is, and what was skipped of the traces."""

    fit: Fit
    picture: Path
    skipped: list[str]


def run(traces: Sequence[str], output: Path, picture: Path | None, format: str | None,
        on_error: Literal["stop", "skip"], *, force: bool = False) -> Done:
    """Fit, and write the spec and the picture.

    Raises
    ------
    InputError
        A trace cannot be read, or a file is there already or cannot be written.
    """
    drawn = picture or output.with_suffix(".png")
    for path in (output, drawn):
        if path.exists() and not force:
            raise InputError("exists already; --force replaces it", file=path)
    sources = [named(trace, format=format, on_error=on_error) for trace in traces]

    def everything() -> Iterator[Trajectory]:
        for found, _ in sources:
            yield from found()

    done = fit(everything(), ", ".join(Path(trace).name for trace in traces))
    draw(done, drawn)
    try:
        output.write_text(text(done), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", file=output) from None
    return Done(done, drawn, [line for _, problems in sources for line in problems.told()])
