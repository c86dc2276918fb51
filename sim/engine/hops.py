"""Copies over one way or two: what crosses host memory goes piece by piece."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sim.memory.links import Direction, Move
from sim.records import Sink


def slowest_first(hops: list[Direction]) -> list[Direction]:
    """Return ways in the order of their bandwidths."""
    return sorted(hops, key=lambda hop: hop.bandwidth_Bps)


class Transfer:
    """One context on its way, in one or more copies side by side.

    Parameters
    ----------
    kind, trajectory, replica
        What the record of each copy says: why, for whom, on whose link.
    done
        Called when the last copy has ended.
    sink
        Takes the records.
    """

    __slots__ = ("_copies", "done", "kind", "replica", "sink", "trajectory")

    def __init__(self, kind: str, trajectory: int, replica: int, sink: Sink, done: Callable[[], None]) -> None:
        self.kind = kind
        self.trajectory = trajectory
        self.replica = replica
        self.sink = sink
        self.done = done
        self._copies: list[_Copy] = []

    def over(self, hops: Sequence[Direction], size: float, priority: int, piece_bytes: float,
             places: tuple[str, str]) -> None:
        """Start a copy of `size` bytes from one place to another over the ways between them, slowest first."""
        copy = _Copy(self, hops, size, places)
        self._copies.append(copy)
        copy.start(priority, piece_bytes)

    def cancel(self) -> None:
        """Stop what is under way; `done` is not called."""
        copies, self._copies = self._copies, []
        for copy in copies:
            copy.cancel()

    def promote(self, priority: int) -> None:
        """Raise the priority of what is under way."""
        for copy in self._copies:
            for direction, move in copy.legs:
                direction.promote(move, priority)

    def copied(self, copy: _Copy) -> None:
        """A copy has ended."""
        self._copies.remove(copy)
        if not self._copies:
            self.done()


class _Copy:
    """A copy over one way or two.

    Over two ways pieces follow each other: both ways are busy with all the bytes, side by side, and the copy ends one
    piece of the faster way after the later of the two, so it takes the slower way and one piece of the faster.
    """

    __slots__ = ("_asked_s", "_hops", "_piece", "_places", "_size", "_start_s", "_transfer", "legs")

    def __init__(self, transfer: Transfer, hops: Sequence[Direction], size: float, places: tuple[str, str]) -> None:
        self._transfer = transfer
        self._hops = hops
        self._size = size
        self._places = places
        self._asked_s = 0.0
        self._start_s = math.inf
        self._piece = 0.0
        #: The moves under way, and whose they are.
        self.legs: list[tuple[Direction, Move]] = []

    def start(self, priority: int, piece_bytes: float) -> None:
        """Ask for the moves."""
        slow, fast = self._hops[0], self._hops[-1]
        move = slow.submit(self._size, priority, self._ended)
        self.legs.append((slow, move))
        self._asked_s = move.asked_s
        if len(self._hops) > 1:
            self._piece = min(self._size, piece_bytes)
            if self._size > self._piece:
                self._begin(fast, self._size - self._piece, priority)

    def cancel(self) -> None:
        """Give up the moves under way."""
        now_s = self._hops[0].env.now
        for direction, move in self.legs:
            direction.cancel(move)
            if 0.0 <= move.start_s < self._start_s:
                self._start_s = move.start_s
        self._record(min(self._start_s, now_s), cancelled=True)

    def _begin(self, direction: Direction, size: float, priority: int) -> None:
        self.legs.append((direction, direction.submit(size, priority, self._ended)))

    def _ended(self, move: Move) -> None:
        """One of the moves has ended."""
        if 0.0 <= move.start_s < self._start_s:
            self._start_s = move.start_s
        if len(self.legs) > 1:
            self.legs = [leg for leg in self.legs if leg[1] is not move]
            return
        self.legs.clear()
        if self._piece > 0.0:
            size, self._piece = self._piece, 0.0
            self._begin(self._hops[-1], size, move.priority)
            return
        self._record(self._start_s, cancelled=False)
        self._transfer.copied(self)

    def _record(self, start_s: float, *, cancelled: bool) -> None:
        to = self._transfer
        to.sink.move((to.replica, to.trajectory, to.kind, *self._places, int(self._size), self._asked_s, start_s,
                      self._hops[0].env.now, cancelled))
