"""What `kvplan workload show` prints and draws."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import workloads
from sim.errors import InputError
from sim.writing import check_place
from workloads.drawing import as_text, clock, draw, place, typical
from workloads.source import named
from workloads.stats import in_order
from workloads.trajectory import Trajectory

HEADERS = ("turn", "line", "starts", "prompt", "new", "output", "waited for")


@dataclass(frozen=True, slots=True)
class Shown:
    """A text, and the turns of one trajectory as rows under `HEADERS`."""

    text: str
    rows: list[tuple[str, ...]]


def written(source: str) -> str:
    """Return a spec as it is written: an agent's of the library, or that in a file.

    Raises
    ------
    InputError
        It is neither.
    """
    path = workloads._library_folder() / f"{source}.yaml" if source in workloads.library_names() else Path(source)
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        raise InputError(f"is no spec, and no agent of the library ({', '.join(workloads.library_names())})",
                         got=source)
    return path.read_text(encoding="utf-8")


def show(source: str, trajectories: int | None, seed: int, output: Path | None) -> Shown:
    """Describe an agent, a spec or a trace by a typical trajectory; draw it if `output` is given.

    Raises
    ------
    InputError
        There is no such thing, it cannot be read, or the picture cannot be written.
    """
    if output is not None:
        check_place(output, field="--output")
    found, _ = named(source, trajectories=trajectories, seed=seed)
    drawn = list(found())
    if not drawn:
        raise InputError("holds no trajectory", got=source)
    one = typical(drawn)
    waits: dict[str, list[float]] = {}
    for trajectory in drawn:
        for turn in in_order(trajectory):
            if turn.tool:
                waits.setdefault(turn.tool, []).append(turn.wait_s)
    if output is not None:
        draw(source, one, waits, output)
    return Shown("\n".join([*_provenance(source), "", *_waits(waits), "", _about(one, len(drawn))]),
                 as_text(one))


def _provenance(source: str) -> list[str]:
    """Return the comments at the head of a spec: what it is and where its figures come from."""
    if source not in workloads.library_names() and Path(source).suffix not in (".yaml", ".yml"):
        return [source]
    lines = []
    for line in written(source).splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").removeprefix(" ").rstrip())
    return lines or [source]


def _waits(waits: dict[str, list[float]]) -> list[str]:
    lines = []
    for tool, values in sorted(waits.items(), key=lambda item: -len(item[1])):
        array = np.asarray(values)
        longest, total = array[array > 60], float(array.sum())
        share = float(longest.sum()) / total if total else 0.0
        p50, p90, p99 = (clock(float(value)) for value in np.quantile(array, (0.5, 0.9, 0.99)))
        lines.append(f"wait {tool}: {len(values):,} calls, p50 {p50}, p90 {p90}, p99 {p99}; over 60 s: "
                     f"{longest.size / array.size:.1%} of calls, {share:.0%} of the time")
    return lines


def _about(one: Trajectory, count: int) -> str:
    placed = place(one)
    peak = max(each.turn.prompt_tokens for each in placed)
    return (f"trajectory {one.number}, typical of {count:,} in turns: {one.turns} turns, "
            f"{clock(placed[-1].end_s)}, longest prompt {peak:,} tokens")
