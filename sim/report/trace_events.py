"""Events of a Chrome trace: counters, turns and pauses on lanes of trajectories, copies on lanes of links."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from pathlib import Path
from typing import IO, Any

from sim.errors import InputError
from sim.records import GPU_USES, TIER_LABELS, TURN_CAUSES
from sim.sweep import intact

#: Rows read at a time.
BATCH = 8_192
_CLUSTER = 1
_REPLICA = 2
_SHOWN = ("status", "prompt_tokens", "output_tokens", "recomputed_tokens", "preemptions")
#: Order of the lanes of links, which come before those of trajectories.
_WAYS = {"link out": 1, "link in": 2}
_FIRST_LANE = 100

Row = dict[str, Any]


def rows(folder: Path, table: str, replication: int) -> Iterator[Row]:
    """Yield the rows of one replication, read in batches.

    Raises
    ------
    InputError
        The file is missing, damaged or not a table of a run.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = folder / f"{table}.parquet"
    intact.check_table(path)
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH):
                yield from batch.filter(pc.equal(batch["replication"], replication)).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise InputError(intact.said(error), file=path) from None


@dataclass(slots=True)
class _Lanes:
    """Lanes whose slices never overlap: one that would moves to a lane of its own next to it."""

    announce: Callable[[int, int, str, int], None]
    ends: dict[tuple[Any, ...], list[tuple[int, int]]] = field(default_factory=dict)
    count: int = 0

    def place(self, process: int, key: tuple[Any, ...], name: str, begin: int, end: int, order: int) -> int:
        """Return the lane of a slice [begin, end) in ns; `order` sorts lanes on the screen."""
        lanes = self.ends.setdefault((process, *key), [])
        for number, (lane, last) in enumerate(lanes):
            if begin >= last:
                lanes[number] = (lane, end)
                return lane
        lane = _FIRST_LANE + self.count
        self.count += 1
        lanes.append((lane, end))
        self.announce(process, lane, name if len(lanes) == 1 else f"{name} ({len(lanes)})", order)
        return lane


class Events:
    """Writes the events of one replication to a file, in one pass over each table."""

    def __init__(self, folder: Path, file: IO[str], limit: int | None, replication: int) -> None:
        self.folder, self.file, self.limit, self.replication = folder, file, limit, replication
        self.end_ns = 0
        self.events = 0
        self.branches: dict[tuple[int, int], int] = {}
        self.lanes = _Lanes(self._lane)
        self.drawn: set[int] = set()
        self.left_out = 0

    def write(self) -> None:
        """Write the whole file.

        Raises
        ------
        InputError
            A table is missing or damaged, or the run has no such replication.
        """
        head = {"generator": "kvplan trace", "replication": self.replication, "folder": self.folder.name}
        self.file.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(head)},"traceEvents":[')
        self._counters()
        if not self.events:
            raise InputError("the run has no such replication", field="--replication", got=self.replication)
        self._slices(self._chosen())
        self._links()
        self.file.write("\n]}\n")

    def _put(self, **event: Any) -> None:
        ts, dur = event.get("ts"), event.get("dur")
        if ts is not None:
            event["ts"] = ts / 1000
        if dur is not None:
            event["dur"] = dur / 1000
        self.file.write((",\n" if self.events else "\n") + json.dumps(event, separators=(",", ":")))
        self.events += 1

    def _lane(self, process: int, lane: int, name: str, order: int) -> None:
        self._put(ph="M", pid=process, tid=lane, name="thread_name", args={"name": name})
        self._put(ph="M", pid=process, tid=lane, name="thread_sort_index", args={"sort_index": order})

    def _process(self, process: int, name: str) -> None:
        self._put(ph="M", pid=process, tid=0, name="process_name", args={"name": name})
        self._put(ph="M", pid=process, tid=0, name="process_sort_index", args={"sort_index": process})

    def _slice(self, process: int, lane: int, name: str, begin: int, end: int, args: Mapping[str, Any]) -> None:
        self._put(ph="X", pid=process, tid=lane, name=name, ts=begin, dur=end - begin, args=args)

    def _counter(self, process: int, ts: int, name: str, values: Mapping[str, float]) -> None:
        self._put(ph="C", pid=process, tid=0, name=name, ts=ts, args=values)

    def _counters(self) -> None:
        """Write what the samples hold: values at the instant, and shares of the time since the sample before."""
        before: dict[int, Row] = {}
        alive_ns = -1
        for row in rows(self.folder, "timeline", self.replication):
            replica, ts = row["replica"], _ns(row["time_s"])
            process = _REPLICA + replica
            last = before.get(replica)
            if last is None:
                if not before:
                    self._process(_CLUSTER, "cluster")
                self._process(process, f"replica {replica}")
                last = dict.fromkeys(row, 0.0)
            if ts < _ns(last["time_s"]):
                continue
            self._counter(process, ts, "pool blocks", {
                "running": row["used_blocks"] - row["dormant_blocks"] - row["kept_blocks"],
                "kept for pauses": row["kept_blocks"], "dormant": row["dormant_blocks"]})
            for name in ("decoding", "prefilling", "waiting"):
                self._counter(process, ts, f"turns {name}", {"turns": row[name]})
            for tier, name in TIER_LABELS.items():
                if f"{tier}_bytes" in row:
                    self._counter(process, ts, f"{name} of the node", {"bytes": row[f"{tier}_bytes"]})
            self._shares(process, last, row)
            if ts > alive_ns:
                alive_ns = ts
                self._counter(_CLUSTER, ts, "trajectories alive", {"trajectories": row["alive"]})
            before[replica] = row
            self.end_ns = max(self.end_ns, ts)

    def _shares(self, process: int, last: Row, row: Row) -> None:
        span = row["time_s"] - last["time_s"]
        if span <= 0:
            return
        ts = _ns(last["time_s"])
        for name, uses in (("GPU %", {use: f"gpu_{use}_cum_s" for use in GPU_USES}),
                           ("host link busy %", {"out": "link_out_cum_s", "in": "link_in_cum_s"})):
            self._counter(process, ts, name, {use: round(100 * (row[column] - last[column]) / span, 2)
                                              for use, column in uses.items()})

    def _chosen(self) -> set[int] | None:
        """Return the trajectories to draw, the first to arrive; None for all."""
        if self.limit is None:
            return None
        found = sorted((row["start_s"], row["trajectory"])
                       for row in rows(self.folder, "trajectories", self.replication))
        self.left_out = max(0, len(found) - self.limit)
        return {trajectory for _, trajectory in found[: self.limit]}

    def _slices(self, chosen: set[int] | None) -> None:
        """Write turns and pauses, merged in the order of their ends."""
        def of(table: str, kind: int) -> Iterator[tuple[int, int, int, Row]]:
            for number, row in enumerate(rows(self.folder, table, self.replication)):
                if chosen is None or row["trajectory"] in chosen:
                    yield self._end(row), kind, number, row

        for end, kind, _, row in merge(of("turns", 0), of("pauses", 1), key=lambda item: item[:3]):
            self.drawn.add(row["trajectory"])
            if kind == 0:
                self._turn(row, end)
            else:
                self._pause(row, end)

    def _end(self, row: Row) -> int:
        end = row["end_s"]
        return self.end_ns if end is None or math.isnan(end) else _ns(end)

    def _turn(self, row: Row, end: int) -> None:
        process, trajectory, branch = _REPLICA + max(row["replica"], 0), row["trajectory"], row["branch"]
        if branch:
            self.branches[trajectory, row["turn"]] = branch
        begin = _ns(row["ready_s"])
        end = max(begin, end)
        lane = self._trajectory(process, trajectory, branch, begin, end)
        seconds = {f"{cause}_s": round(row[f"{cause}_s"], 6) for cause in TURN_CAUSES
                   if _known(row[f"{cause}_s"]) and row[f"{cause}_s"]}
        args = {key: row[key] for key in row if key in _SHOWN or key.startswith("hit_")}
        self._slice(process, lane, f"turn {row['turn']}", begin, end, args | seconds)
        start, token = (min(max(_ns(row[name]), begin), end) if _known(row[name]) else end
                        for name in ("start_s", "first_token_s"))
        token = max(start, token)
        reload = max(begin, start - _ns(row["reload_s"])) if _known(row["reload_s"]) else start
        for name, low, high in (("queue", begin, reload), ("reload", reload, start), ("prefill", start, token),
                                ("decode", token, end)):
            if high > low:
                self._slice(process, lane, name, low, high, {})

    def _pause(self, row: Row, end: int) -> None:
        process, trajectory = _REPLICA + max(row["replica"], 0), row["trajectory"]
        begin = _ns(row["start_s"])
        end = max(begin, min(end, self.end_ns))
        branch = self.branches.pop((trajectory, row["turn"]), 0)
        lane = self._trajectory(process, trajectory, branch, begin, end)
        name = f"pause: {row['action']}" + (", forced out" if row["forced"] else "")
        args = {"tool": row["tool"], "private_tokens": row["private_tokens"], "private_bytes": row["private_bytes"]}
        if _known(row["predicted_s"]):
            args["predicted_s"] = row["predicted_s"]
        self._slice(process, lane, name, begin, end, args)

    def _trajectory(self, process: int, trajectory: int, branch: int, begin: int, end: int) -> int:
        name = f"trajectory {trajectory}" + (f", branch {branch}" if branch else "")
        return self.lanes.place(process, (trajectory, branch), name, begin, end, 10 + trajectory)

    def _links(self) -> None:
        """Write copies between tiers, each way on lanes of its own; a lane more where copies overlap."""
        for row in rows(self.folder, "moves", self.replication):
            if not _known(row["start_s"]):
                continue
            process, ends = _REPLICA + max(row["replica"], 0), (row["source"], row["target"])
            way = ("link in" if ends[1] == "hbm" else "link out" if ends[0] == "hbm" else
                   " to ".join(TIER_LABELS.get(tier, str(tier)) for tier in ends))
            begin = _ns(row["start_s"])
            end = max(begin, self._end(row))
            lane = self.lanes.place(process, ("link", way), way, begin, end, _WAYS.get(way, 3))
            self._slice(process, lane, row["kind"] + (", cancelled" if row["cancelled"] else ""), begin, end, {
                "trajectory": row["trajectory"], "bytes": row["bytes"], "from": row["source"], "to": row["target"],
                "queued_s": round(row["start_s"] - row["queued_s"], 6)})


def _known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
