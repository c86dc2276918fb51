"""Writes trajectories as kvplan JSONL (docs/trace_format.md), and as a mooncake trace where that can hold them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sim.errors import InputError
from workloads.prompt import trunk
from workloads.stats import in_order
from workloads.trajectory import Stream, Trajectory, Turn


def write_kvplan(trajectories: Iterable[Trajectory], path: Path, *, arrivals: bool | None = None) -> int:
    """Write trajectories as kvplan JSONL; return how many.

    Parameters
    ----------
    trajectories
        A finite number of them; all are held in memory, to know which content is shared between them.
    path
        The file to write.
    arrivals
        Write times of arrival; None: if any of them is not 0 (a closed workload has none).

    Notes
    -----
    Reading the file gives the same turns, and prompts that share the same prefixes.
    """
    everything = list(trajectories)
    timed = any(trajectory.arrival_s for trajectory in everything) if arrivals is None else arrivals
    names = _Names(everything)
    with path.open("w", encoding="utf-8") as handle:
        for trajectory in everything:
            names.start(trajectory)
            for row in _rows(trajectory, names, timed):
                handle.write(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n")
    return len(everything)


class _Names:
    """Names for streams: ``/label`` for those that several trajectories use, ``label`` for the others."""

    def __init__(self, trajectories: list[Trajectory]) -> None:
        user: dict[Stream, int] = {}
        self._shared: set[Stream] = set()
        for number, trajectory in enumerate(trajectories):
            for turn in in_order(trajectory):
                for stream, _ in segments(turn.stream, turn.prompt_tokens):
                    if user.setdefault(stream, number) != number:
                        self._shared.add(stream)
        self._global: dict[Stream, str] = {}
        self._global_used: dict[str, int] = {}
        self._local: dict[Stream, str] = {}
        self._local_used: dict[str, int] = {}

    def start(self, trajectory: Trajectory) -> None:
        """Forget the private names: another trajectory begins."""
        self._local, self._local_used = {}, {}

    def name(self, stream: Stream) -> str:
        """Return the stream's name, made up at its first use."""
        shared = stream in self._shared
        names, used = (self._global, self._global_used) if shared else (self._local, self._local_used)
        if stream not in names:
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


def write_mooncake(trajectories: Iterable[Trajectory], path: Path, *, block: int = 512) -> int:
    """Write trajectories of one turn each as a mooncake trace; return how many.

    Parameters
    ----------
    trajectories
        Trajectories with one turn, and times of arrival.
    path
        The file to write.
    block
        Tokens a hash covers. Shared prefixes are kept in whole blocks.

    Raises
    ------
    InputError
        A trajectory has several turns: the format cannot say which requests belong together.
    """
    ids: dict[tuple[Stream, int], int] = {}
    count = fresh = 0
    with path.open("w", encoding="utf-8") as handle:
        for trajectory in trajectories:
            if trajectory.turns != 1:
                raise InputError(f"a mooncake trace holds single requests; trajectory {trajectory.number} has "
                                 f"{trajectory.turns} turns")
            turn = trajectory.roots[0]
            row_ids = []
            for end in range(block, turn.prompt_tokens + block, block):
                last = min(end, turn.prompt_tokens)
                key = (trunk(turn.stream, last), end if last == end else -1 - fresh)
                fresh += key not in ids
                row_ids.append(ids.setdefault(key, fresh - 1))
            handle.write(json.dumps({"timestamp": round(trajectory.arrival_s * 1000), "output_length":
                                     turn.output_tokens, "input_length": turn.prompt_tokens, "hash_ids": row_ids})
                         + "\n")
            count += 1
    return count
