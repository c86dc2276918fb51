"""Fits a spec to traces on disk and writes it, with a picture of how good it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sim.errors import InputError
from sim.writing import check_place, whole_file
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
        A trace cannot be read, or a file is there already or may not be written.
    OSError
        The disk is full or broken.
    """
    drawn = picture or output.with_suffix(".png")
    if drawn == output:
        raise InputError("the spec and its picture need two names", field="--output", got=str(output))
    for path in (output, drawn):
        if any(Path(trace).resolve() in (path.resolve(), *path.resolve().parents) for trace in traces):
            raise InputError("is a trace that is read, or lies in its folder", field="--output", got=str(path))
        check_place(path, field="--output" if path == output else "--picture")
        if path.exists() and not force:
            raise InputError("exists already; --force replaces it", file=path)
    sources = [named(trace, format=format, on_error=on_error) for trace in traces]

    def everything() -> Iterator[Trajectory]:
        for found, _ in sources:
            yield from found()

    done = fit(everything(), ", ".join(Path(trace).name for trace in traces))
    draw(done, drawn)
    try:
        with whole_file(output) as partial:
            partial.write_text(text(done), encoding="utf-8")
    except OSError as error:
        raise OSError(f"cannot write to {output}: {error.strerror or error}") from error
    return Done(done, drawn, [line for _, problems in sources for line in problems.told()])
