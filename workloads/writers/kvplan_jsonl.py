"""kvplan JSONL (docs/trace_format.md), which holds every trajectory there is."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workloads.stats import in_order
from workloads.trajectory import Stream, Trajectory, Turn, trunk
from workloads.writers.base import Source, once


def write_kvplan(trajectories: Source, path: Path, *, arrivals: bool | None = None) -> int:
    """Write trajectories as kvplan JSONL; return how many.

    Parameters
    ----------
    trajectories
        A finite number of them. They are read twice, the first time to learn which content several of them use; what
        is no function that yields them afresh is therefore held in memory.
    path
        The file to write.
    arrivals
        Write times of arrival; None: if any of them is not 0 (a closed workload has none).

    Notes
    -----
    Reading the file gives the same turns, and prompts that share the same prefixes.
    """
    everything = trajectories if callable(trajectories) else list(trajectories)
    shared, timed = _shared(once(everything))
    names = _Names(shared)
    count = 0
    with path.open("w", encoding="utf-8") as handle:
        for trajectory in once(everything):
            names.start()
            for row in _rows(trajectory, names, timed if arrivals is None else arrivals):
                handle.write(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n")
            count += 1
    return count


def _shared(trajectories: Iterable[Trajectory]) -> tuple[set[int], bool]:
    """Return which streams several trajectories use, by the order of their first use, and whether any arrives late."""
    user: dict[Stream, tuple[int, int]] = {}
    shared: set[int] = set()
    timed = False
    for number, trajectory in enumerate(trajectories):
        timed = timed or bool(trajectory.arrival_s)
        for turn in in_order(trajectory):
            for stream, _ in segments(turn.stream, turn.prompt_tokens):
                order, first = user.setdefault(stream, (len(user), number))
                if first != number:
                    shared.add(order)
    return shared, timed


class _Names:
    """Names for streams: ``/label`` for those that several trajectories use, ``label`` for the others."""

    def __init__(self, shared: set[int]) -> None:
        self._shared = shared
        self._met = 0  # streams so far: the order of first use
        self._global: dict[Stream, str] = {}
        self._global_used: dict[str, int] = {}
        self._local: dict[Stream, str] = {}
        self._local_used: dict[str, int] = {}

    def start(self) -> None:
        """Forget the private names: another trajectory begins."""
        self._local, self._local_used = {}, {}

    def name(self, stream: Stream) -> str:
        """Return the stream's name, made up at its first use."""
        known = self._global.get(stream) or self._local.get(stream)
        if known is not None:
            return known
        shared = self._met in self._shared
        self._met += 1
        names, used = (self._global, self._global_used) if shared else (self._local, self._local_used)
        label = stream.label.replace("~", "-").lstrip("/") or "context"
        used[label] = used.get(label, 0) + 1
        names[stream] = ("/" if shared else "") + label + (f"~{used[label]}" if used[label] > 1 else "")
        return names[stream]


def segments(stream: Stream, tokens: int) -> list[tuple[Stream, int]]:
    """Return the streams a prompt runs through, from the start, and how many tokens lie on each."""
    found: list[tuple[Stream, int]] = []
    while True:
        if stream.parent is None:
            found.append((stream, tokens))
            return found[::-1]
        found.append((stream, max(0, tokens - stream.attach)))
        tokens = min(tokens, stream.attach)
        stream = trunk(stream.parent, tokens)


def _rows(trajectory: Trajectory, names: _Names, arrivals: bool) -> Iterable[dict[str, Any]]:
    turns = in_order(trajectory)
    place = {turn: index for index, turn in enumerate(turns)}
    after: dict[Turn, list[int]] = {turn: [] for turn in turns}
    for turn in turns:
        for follower in turn.next:
            after[follower].append(place[turn])
    for index, turn in enumerate(turns):
        row: dict[str, Any] = {"trajectory": str(trajectory.number), "turn": index}
        if index == 0:
            row |= {"arrival_s": trajectory.arrival_s} if arrivals else {}
            row |= {"group": trajectory.group} if trajectory.group else {}
        row["prompt"] = [[names.name(stream), tokens] for stream, tokens in
                         segments(turn.stream, turn.prompt_tokens)]
        row["output"] = turn.output_tokens
        optional = {"kept": turn.kept_output, "after": after[turn], "wait_s": turn.wait_s, "tool": turn.tool,
                    "human": turn.human, "branch": turn.branch, "prunes": [place[other] for other in turn.prunes]}
        row |= {name: value for name, value in optional.items() if value}
        if after[turn] and turn.pending < len(after[turn]):
            row["join"] = "first"
        yield row
