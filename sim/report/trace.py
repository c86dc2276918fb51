"""`kvplan trace`: a run as Chrome-trace JSON, which ui.perfetto.dev opens.

A process a replica, with lanes for trajectories and host links and with counters; one more for the cluster. Rows are
read and written in batches, so that a run of any length needs little memory. Times are microseconds of simulated time
with three decimals.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sim.errors import InputError
from sim.report.trace_events import Events
from sim.sweep import store
from sim.writing import check_place, whole_file

#: Trajectories drawn unless told otherwise.
LIMIT = 300

@dataclass(slots=True)
class Written:
    """What a trace holds: events, trajectories, and how many trajectories were left out."""

    path: Path
    events: int = 0
    trajectories: int = 0
    left_out: int = 0


def trace(folder: Path, output: Path | None = None, *, limit: int | None = LIMIT, replication: int = 0) -> Written:
    """Write the trace of a run.

    Parameters
    ----------
    folder
        Of the run.
    output
        File to write; ``FOLDER.trace.json`` next to the folder when left out.
    limit
        So many trajectories, the first to arrive, are drawn; None or 0 for all. Counters are always of the whole run.
    replication
        The repetition that is drawn.

    Raises
    ------
    InputError
        The folder holds no run, or no such replication; `output` is a file that kvplan did not write.
    OutputError
        The file system refused.
    """
    store.read_summary(folder)
    path = target(folder, output, ".trace.json")
    try:
        with whole_file(path) as partial, partial.open("w", encoding="utf-8") as file:
            events = Events(folder, file, limit or None, replication)
            events.write()
        return Written(path, events.events, len(events.drawn), events.left_out)
    except OSError as error:
        raise store.OutputError(f"cannot write to {path}: {error.strerror or error}") from error


def target(folder: Path, output: Path | None, suffix: str) -> Path:
    """Return the file to write: `output`, or one next to `folder`; a file that is not kvplan's is never replaced.

    Raises
    ------
    InputError
        There is such a file, or a folder, or nothing may be written there.
    """
    whole = folder.resolve()
    path = output if output is not None else whole.with_name(whole.name + suffix)
    try:
        check_place(path, field="--output")
        if path.exists():
            with path.open("rb") as file:
                if file.read(2048).find(b"kvplan") < 0:
                    raise InputError("exists and was not written by kvplan", field="--output", got=str(path))
    except OSError as error:
        raise store.OutputError(f"cannot write to {path}: {error.strerror or error}") from error
    return path
