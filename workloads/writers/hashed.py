"""Formats whose prompts are hashes of blocks: mooncake, Dynamo agentic rows, kv-cache-tester sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workloads.stats import in_order
from workloads.trajectory import Stream, Turn, trunk
from workloads.writers.base import Source, before, lines_of, no_race, once, single


class _Ids:
    """Hash ids: equal ones for equal prefixes in whole blocks, an own one for a block that is partly filled."""

    def __init__(self, block: int) -> None:
        self.block = block
        self._ids: dict[tuple[Stream, int], int] = {}
        self._fresh = 0

    def of(self, turn: Turn, *, partial: bool = True) -> list[int]:
        """Return the ids of a turn's prompt; without the last one if that block is not full and not wanted."""
        found: list[int] = []
        for end in range(self.block, turn.prompt_tokens + self.block, self.block):
            if end > turn.prompt_tokens:
                if partial:
                    found.append(self._fresh)
                    self._fresh += 1
                break
            key = (trunk(turn.stream, end), end)
            block_id = self._ids.get(key)
            if block_id is None:
                block_id = self._ids[key] = self._fresh
                self._fresh += 1
            found.append(block_id)
        return found


def write_mooncake(trajectories: Source, path: Path, *, block: int = 512) -> int:
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
    ids = _Ids(block)
    count = 0
    with path.open("w", encoding="utf-8") as handle:
        for trajectory in once(trajectories):
            turn = single(trajectory, "a mooncake trace")
            _write(handle, {"timestamp": round(trajectory.arrival_s * 1000), "input_length": turn.prompt_tokens,
                            "output_length": turn.output_tokens, "hash_ids": ids.of(turn)})
            count += 1
    return count


def write_dynamo(trajectories: Source, path: Path, *, block: int = 512) -> int:
    """Write trajectories as Dynamo agentic rows; shared prefixes are kept in whole blocks, outputs are not reused.

    Raises
    ------
    InputError
        A join starts with the first of its branches; the format's `wait_for` means all.
    """
    ids = _Ids(block)
    count = 0
    with path.open("w", encoding="utf-8") as handle:
        for trajectory in once(trajectories):
            turns = in_order(trajectory)
            waits = before(turns)
            no_race(turns, waits, trajectory, "a Dynamo agentic trace")
            for turn in turns:
                row: dict[str, Any] = {
                    "request_id": f"{trajectory.number}.{turn.index}",
                    "session_id": f"{trajectory.number}.b{turn.branch}" if turn.branch else f"{trajectory.number}",
                    "input_length": turn.prompt_tokens, "output_length": turn.output_tokens, "hash_ids": ids.of(turn),
                    "wait_for": [f"{trajectory.number}.{other.index}" for other in waits[turn]]}
                if not waits[turn]:
                    row["timestamp"] = (trajectory.arrival_s + turn.wait_s) * 1000
                elif turn.wait_s:
                    row["tool_wait_ms" if turn.tool not in ("", "delay") else "delay"] = turn.wait_s * 1000
                    row |= {"tool_events": [{"tool_name": turn.tool}]} if turn.tool not in ("", "delay", "tool") else {}
                _write(handle, row)
            count += 1
    return count


def write_kv_cache_tester(trajectories: Source, path: Path, *, block: int = 64) -> int:
    """Write trajectories as a folder of kv-cache-tester sessions; recorded model times are 0, outputs not reused.

    Ids are shared between sessions (`hash_id_scope: global`), so that shared content stays shared.

    Raises
    ------
    InputError
        A trajectory is no line of turns with sub-agents.
    """
    ids = _Ids(block)
    path.mkdir(parents=True, exist_ok=True)
    count = 0
    for trajectory in once(trajectories):
        main, children = lines_of(trajectory, "a kv-cache-tester session")
        requests: list[dict[str, Any]] = []
        now_s = 0.0
        for index, turn in enumerate(main):
            started_s = now_s
            for line in children.get(main[index - 1], []) if index else []:
                inner: list[dict[str, Any]] = []
                at_s = 0.0
                for place, child in enumerate(line):
                    at_s += child.wait_s
                    inner.append(_request(child, at_s, ids, line[place + 1] if place + 1 < len(line) else None))
                requests.append({"type": "subagent", "t": started_s + at_s, "duration_ms": at_s * 1000,
                                 "requests": inner})
                now_s = max(now_s, started_s + at_s)
            now_s += turn.wait_s
            requests.append(_request(turn, now_s, ids, main[index + 1] if index + 1 < len(main) else None))
        session = {"id": f"trace_{trajectory.number:06}", "block_size": block, "hash_id_scope": "global",
                   "requests": requests}
        (path / f"trace_{trajectory.number:06}.json").write_text(json.dumps(session), encoding="utf-8")
        count += 1
    return count


def _request(turn: Turn, t_s: float, ids: _Ids, following: Turn | None) -> dict[str, Any]:
    ends = following is not None and following.human
    kinds = ["text"] if turn.human or not turn.tool else ["tool_result"]
    return {"t": t_s, "type": "n", "in": turn.prompt_tokens, "out": turn.output_tokens,
            "hash_ids": ids.of(turn, partial=False), "input_types": kinds,
            "stop": "end_turn" if ends else "tool_use" if following is not None else "", "api_time": 0.0}


def _write(handle: Any, row: dict[str, Any]) -> None:
    handle.write(json.dumps(row, separators=(",", ":")) + "\n")
