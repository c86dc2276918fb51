"""CSV files: Azure requests, and sessions of turns."""

from __future__ import annotations

import csv
from datetime import datetime, timedelta
from pathlib import Path

from sim.errors import InputError
from workloads.stats import in_order, shared_tokens
from workloads.trajectory import Trajectory
from workloads.writers.base import Source, before, once, single

_BEGIN = datetime(2000, 1, 1)
_SESSION_COLUMNS = ("session", "turn", "arrival", "prompt", "output", "wait", "tool", "human", "kept", "reused")


def write_azure(trajectories: Source, path: Path) -> int:
    """Write trajectories of one turn as an Azure trace (times count from 2000-01-01); what they share is lost.

    Raises
    ------
    InputError
        A trajectory has several turns.
    """
    count = 0
    with path.open("w", encoding="utf-8", newline="") as handle:
        handle.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for trajectory in once(trajectories):
            turn = single(trajectory, "an Azure trace")
            when = _BEGIN + timedelta(microseconds=round(trajectory.arrival_s * 1e6))
            handle.write(f"{when.isoformat(' ', 'microseconds')},{turn.prompt_tokens},{turn.output_tokens}\n")
            count += 1
    return count


def write_sessions(trajectories: Source, path: Path) -> int:
    """Write plain lines of turns as a CSV of sessions; what different sessions share is lost.

    Raises
    ------
    InputError
        A trajectory branches.
    """
    count = 0
    with path.open("w", encoding="utf-8", newline="") as handle:
        table = csv.writer(handle, lineterminator="\n")
        table.writerow(_SESSION_COLUMNS)
        for trajectory in once(trajectories):
            table.writerows(_rows(trajectory))
            count += 1
    return count


def _rows(trajectory: Trajectory) -> list[tuple[object, ...]]:
    turns = in_order(trajectory)
    waits = before(turns)
    rows: list[tuple[object, ...]] = []
    for index, turn in enumerate(turns):
        if waits[turn] != turns[max(0, index - 1):index]:
            raise InputError(f"a CSV of sessions holds plain lines of turns; trajectory {trajectory.number} branches")
        reused: int | str = ""
        if index:
            last = turns[index - 1]
            reused = shared_tokens(last, turn)
            if turn.stream is last.stream and last.kept_output:  # the output is there too
                reused = min(last.prompt_tokens + last.kept_output, turn.prompt_tokens)
        rows.append((trajectory.number, index, "" if index else repr(float(trajectory.arrival_s)), turn.prompt_tokens,
                     turn.output_tokens, repr(float(turn.wait_s)), turn.tool, str(turn.human).lower(),
                     turn.kept_output, reused))
    return rows
