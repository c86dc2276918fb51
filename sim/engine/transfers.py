"""Copies between a replica's HBM and the tiers below it, whatever links they cross."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import simpy

from sim.engine.host import Host
from sim.memory.links import Direction, Link, Move
from sim.memory.tiers import Entry
from sim.records import Sink
from workloads.trajectory import Stream


class Transfer:
    """One context on its way, in one or more copies side by side.

    `done` is called when the last of them has ended; `cancel` gives up those that have not.
    """

    __slots__ = ("_legs", "_pending", "done", "kind", "trajectory")

    def __init__(self, kind: str, trajectory: int, done: Callable[[], None]) -> None:
        self.kind = kind
        self.trajectory = trajectory
        self.done = done
        self._legs: list[tuple[Direction, Move]] = []
        self._pending = 0

    def cancel(self) -> None:
        """Stop what is under way; `done` is not called."""
        for direction, move in self._legs:
            direction.cancel(move)
            move.info(move)
        self._legs.clear()

    def promote(self, priority: int) -> None:
        """Raise the priority of what is under way."""
        for direction, move in self._legs:
            direction.promote(move, priority)

    def begin(self, direction: Direction, size: float, priority: int, record: Callable[[Move], None],
              ended: Callable[[], None]) -> None:
        """Start a copy; `record` sees it at its end or when it is cancelled, `ended` only at its end."""
        self._pending += 1

        def finish(move: Move) -> None:
            self._legs.remove((direction, move))
            record(move)
            ended()
            self._pending -= 1
            if self._pending == 0:
                self.done()

        self._legs.append((direction, direction.submit(size, priority, finish, record)))


class Transfers:
    """The copies of one replica.

    Parameters
    ----------
    link
        The replica's way to host memory.
    host
        Its node's tiers.
    """

    def __init__(self, env: simpy.Environment, replica: int, link: Link, host: Host, block_bytes: int,
                 sink: Sink) -> None:
        self.env = env
        self.replica = replica
        self.link = link
        self.host = host
        self.block_bytes = block_bytes
        self.sink = sink

    def send(self, tier: str, blocks: int, kind: str, trajectory: int, priority: int,
             done: Callable[[], None]) -> Transfer:
        """Copy `blocks` blocks from HBM to a tier."""
        transfer = Transfer(kind, trajectory, done)
        size = float(blocks * self.block_bytes)
        record = self._recorder(kind, trajectory, "hbm", tier)
        disk = self.host.disk
        if tier == "dram" or disk is None:
            transfer.begin(self.link.out, size, priority, record, _nothing)
        elif self.host.config.direct:
            transfer.begin(disk.out, size, priority, record, _nothing)
        else:
            piece = min(size, self.host.config.piece_bytes)
            transfer.begin(disk.out, size, priority, record,
                           lambda: transfer.begin(self.link.out, piece, priority, _nothing_of, _nothing))
        return transfer

    def bring(self, blocks: Sequence[int], kind: str, trajectory: int, priority: int,
              done: Callable[[], None]) -> Transfer:
        """Copy blocks back to HBM: so many from each tier, in the order of `TIER_NAMES`."""
        transfer = Transfer(kind, trajectory, done)
        disk = self.host.disk
        if blocks[0]:
            transfer.begin(self.link.into, float(blocks[0] * self.block_bytes), priority,
                           self._recorder(kind, trajectory, "dram", "hbm"), _nothing)
        if len(blocks) > 1 and blocks[1] and disk is not None:
            size = float(blocks[1] * self.block_bytes)
            record = self._recorder(kind, trajectory, "nvme", "hbm")
            piece = min(size, self.host.config.piece_bytes)
            last = _nothing if self.host.config.direct else (
                lambda: transfer.begin(self.link.into, piece, priority, _nothing_of, _nothing))
            transfer.begin(disk.into, size, priority, record, last)
        return transfer

    def time_s(self, tier: str, size: float, priority: int) -> tuple[float, float]:
        """Return the seconds until `size` bytes would be out in a tier, and back, with the queues as they are now."""
        out_s, back_s = self.link.out.wait_s(size, priority), self.link.into.wait_s(size, priority)
        disk = self.host.disk
        if tier == "nvme" and disk is not None:
            out_s = max(out_s, disk.out.wait_s(size, priority))
            back_s = max(back_s, disk.into.wait_s(size, priority))
        return out_s, back_s

    def hold(self, stream: Stream | None) -> list[tuple[int, Entry]]:
        """Pin every entry of a stream and its ancestors while they are read; undo with `let_go`."""
        held: list[tuple[int, Entry]] = []
        while stream is not None:
            for index, tier in enumerate(self.host.tiers):
                entry = tier.hold(stream)
                if entry is not None:
                    held.append((index, entry))
            stream = stream.parent
        return held

    def let_go(self, held: list[tuple[int, Entry]]) -> None:
        """Undo `hold`."""
        for index, entry in held:
            tier = self.host.tiers[index]
            tier.release(entry, self.env.now)
            if self.host.config.exclusive:
                tier.forget(entry.stream, self.env.now)

    def _recorder(self, kind: str, trajectory: int, source: str, target: str) -> Callable[[Move], None]:
        def record(move: Move) -> None:
            now_s = self.env.now
            start_s = move.start_s if move.start_s >= 0.0 else now_s
            self.sink.move((self.replica, trajectory, kind, source, target, int(move.bytes_total), move.asked_s,
                            start_s, now_s, move.cancelled))
        return record


def _nothing() -> None:
    """Nothing follows."""


def _nothing_of(_move: Move) -> None:
    """Nothing is recorded."""


