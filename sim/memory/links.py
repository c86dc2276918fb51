"""A host link: two directions, each serving one move at a time, higher priorities first.

Every GPU of a replica has its own link and moves its own shard, in step with the others, so a replica sees one link
with the sum of their bandwidths. A move of higher priority preempts the one under way, which resumes later where it
stopped. While both directions are busy their sum may be capped (H100 over PCIe 5: about 50 GB/s one way, 83 both).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

import simpy

from sim.alarm import Alarm

#: What is served first: a turn that waits for its context, one that computes meanwhile, contexts fetched ahead of time,
#: contexts on their way out, and copies nobody waits for (write-back, from tier to tier).
RELOAD, PIPELINED, PREFETCH, OFFLOAD, BACKGROUND = range(5)


class Move:
    """One copy: `bytes_left` of `bytes_total` still to go; `done` is called when it ends."""

    __slots__ = ("asked_s", "bytes_left", "bytes_total", "cancelled", "done", "info", "latency_left_s", "priority",
                 "sequence", "start_s")

    def __init__(self, size: float, priority: int, done: Callable[[Move], None], info: Any, asked_s: float,
                 latency_s: float, sequence: int) -> None:
        self.bytes_total = self.bytes_left = size
        self.latency_left_s = latency_s
        self.priority = priority
        self.done = done
        self.info = info
        self.asked_s = asked_s
        self.start_s = -1.0
        self.cancelled = False
        self.sequence = sequence

    def __lt__(self, other: Move) -> bool:
        return (self.priority, self.sequence) < (other.priority, other.sequence)


class Direction:
    """One way of a link: a queue in order of priority, then of arrival."""

    __slots__ = ("_fresh", "_sequence", "_since_s", "_timer", "bandwidth_Bps", "current", "env", "latency_s", "link",
                 "moved_bytes", "queue", "queued_bytes", "rate_Bps", "served_s")

    def __init__(self, env: simpy.Environment, link: Link, bandwidth_Bps: float, latency_s: float) -> None:
        self.env = env
        self.link = link
        self.bandwidth_Bps = bandwidth_Bps
        self.rate_Bps = bandwidth_Bps
        self.latency_s = latency_s
        self.queue: list[Move] = []
        self.current: Move | None = None
        #: Seconds spent on moves of each priority, and bytes that have crossed.
        self.served_s = [0.0] * (BACKGROUND + 1)
        self.moved_bytes = 0.0
        #: Bytes of the moves that wait, without the one under way.
        self.queued_bytes = 0.0
        self._since_s = 0.0
        self._fresh = False
        self._timer = 0
        self._sequence = 0

    @property
    def busy_s(self) -> float:
        """Return the seconds spent on moves so far; `settle` brings them up to date."""
        return sum(self.served_s)

    def submit(self, size: float, priority: int, done: Callable[[Move], None], info: Any = None) -> Move:
        """Queue a move of `size` bytes; `done(move)` is called at its end."""
        now_s = self.env.now
        self._sequence += 1
        move = Move(size, priority, done, info, now_s, self.latency_s, self._sequence)
        if self.current is None:
            self.current = move
            self._fresh = True
            self._since_s = move.start_s = now_s
            self.link.rates_changed()
        elif priority < self.current.priority:
            self.settle()
            self._push(self.current)
            self._begin(move, now_s)
            self._schedule()
        else:
            self._push(move)
        return move

    def cancel(self, move: Move) -> None:
        """Give up a move that has not ended; `done` is not called."""
        move.cancelled = True
        if move is not self.current:
            self.queued_bytes -= move.bytes_left
            return
        self.settle()
        self._next()

    def promote(self, move: Move, priority: int) -> None:
        """Raise the priority of a move that has not ended."""
        if priority >= move.priority:
            return
        if move is self.current:
            self.settle()
            move.priority = priority
            return
        move.priority = priority
        heapify(self.queue)
        if self.current is not None and priority < self.current.priority:
            self.queue.remove(move)
            heapify(self.queue)
            self.queued_bytes -= move.bytes_left
            self.settle()
            self._push(self.current)
            self._begin(move, self.env.now)
            self._schedule()

    def wait_s(self, size: float, priority: int) -> float:
        """Estimate the time until a move of `size` bytes of that priority would end, if it were asked for now."""
        ahead = 0.0
        if self.current is not None and self.current.priority <= priority:
            ahead = self.current.bytes_left - self.rate_Bps * (self.env.now - self._since_s)
        if self.queued_bytes > 0.0:
            ahead += sum(m.bytes_left for m in self.queue if not m.cancelled and m.priority <= priority)
        return self.latency_s + (max(0.0, ahead) + size) / self.bandwidth_Bps

    def settle(self) -> None:
        """Bring the move under way up to now."""
        move = self.current
        now_s = self.env.now
        if move is not None:
            elapsed = now_s - self._since_s
            self.served_s[move.priority] += elapsed
            waited = move.latency_left_s
            if waited > elapsed:
                waited = elapsed
            move.latency_left_s -= waited
            before = move.bytes_left
            left = before - (elapsed - waited) * self.rate_Bps
            move.bytes_left = left = left if left > 0.0 else 0.0
            self.moved_bytes += before - left
        self._since_s = now_s

    def set_rate(self, rate_Bps: float) -> None:
        """Set the rate of the move under way; its end is planned anew if it has just begun or the rate has changed."""
        if rate_Bps != self.rate_Bps:
            self.settle()
            self.rate_Bps = rate_Bps
            self._schedule()
        elif self._fresh:
            self._schedule()

    def _push(self, move: Move) -> None:
        self.queued_bytes += move.bytes_left
        heappush(self.queue, move)

    def _begin(self, move: Move, now_s: float) -> None:
        self.current = move
        self._fresh = True
        self._since_s = now_s
        if move.start_s < 0.0:
            move.start_s = now_s

    def _next(self) -> None:
        self.current = None
        while self.queue:
            move = heappop(self.queue)
            if not move.cancelled:
                self.queued_bytes -= move.bytes_left
                self._begin(move, self.env.now)
                break
        self.link.rates_changed()

    def _schedule(self) -> None:
        self._fresh = False
        self._timer += 1
        move = self.current
        if move is not None:
            Alarm(self.env, move.latency_left_s + move.bytes_left / self.rate_Bps, self._ended, self._timer)

    def _ended(self, alarm: Alarm) -> None:
        if alarm.value != self._timer or self.current is None:
            return
        move = self.current
        self.settle()
        self.moved_bytes += move.bytes_left  # what rounding has left
        move.bytes_left = 0.0
        if self.queue:
            self._next()
        else:
            self.current = None
            self.link.rates_changed()
        move.done(move)


class Bus:
    """Host memory that several links share: the sum of all copies under way is capped at its bandwidth."""

    __slots__ = ("bandwidth_Bps", "links", "scale")

    def __init__(self, bandwidth_Bps: float) -> None:
        if bandwidth_Bps <= 0:
            raise ValueError(f"a bus needs a positive bandwidth (got {bandwidth_Bps} B/s)")
        self.bandwidth_Bps = bandwidth_Bps
        self.links: list[Link] = []
        #: What is left to each copy of the rate that its link allows.
        self.scale = 1.0

    def share(self, changed: Link) -> None:
        """Set the rates of all copies under way: what each link allows, scaled down alike if that is too much."""
        total = 0.0
        for link in self.links:
            total += link.out_Bps + link.in_Bps
        scale = self.bandwidth_Bps / total if total > self.bandwidth_Bps else 1.0
        if scale == self.scale:
            changed.apply(scale)
            return
        self.scale = scale
        for link in self.links:
            link.apply(scale)


class Link:
    """A way between two places, such as a replica's GPUs and its host's memory.

    Parameters
    ----------
    out_Bps, in_Bps
        Bandwidth away from the GPU and towards it, bytes per second, over all GPUs of the replica.
    latency_s
        Start-up time of a move.
    both_Bps
        Cap on the sum while both directions are busy; None for none.
    bus
        Host memory whose bandwidth the link shares with others; None if that is no limit.

    Raises
    ------
    ValueError
        If a bandwidth is not positive or the latency is negative.
    """

    def __init__(self, env: simpy.Environment, out_Bps: float, in_Bps: float, latency_s: float = 0.0,
                 both_Bps: float | None = None, bus: Bus | None = None) -> None:
        if out_Bps <= 0 or in_Bps <= 0 or latency_s < 0 or (both_Bps is not None and both_Bps <= 0):
            raise ValueError(f"a link needs positive bandwidths and a latency >= 0 (got {out_Bps}, {in_Bps}, "
                             f"{both_Bps} B/s, {latency_s} s)")
        self.both_Bps = both_Bps
        #: Rates of the copies under way as far as this link alone is concerned; 0 where there is none.
        self.out_Bps = self.in_Bps = 0.0
        self.out = Direction(env, self, out_Bps, latency_s)
        self.into = Direction(env, self, in_Bps, latency_s)
        self.bus = bus
        if bus is not None:
            bus.links.append(self)
        #: Called when the link starts to copy after a rest, and when it rests again.
        self.watch: Callable[[], None] | None = None
        self._was_busy = False

    @property
    def busy(self) -> bool:
        """Whether a copy is under way in either direction."""
        return self.out.current is not None or self.into.current is not None

    def ledger(self, now_s: float) -> list[float]:
        """Return the seconds so far by use, in the order of `records.LINK_USES`: of the way out, then of the way in."""
        rows: list[float] = []
        for way in (self.out, self.into):
            way.settle()
            rows += (*way.served_s, now_s - way.busy_s)
        return rows

    def rates_changed(self) -> None:
        """A direction started or stopped: share out the bandwidth anew."""
        out, into, bus = self.out, self.into, self.bus
        out_Bps = 0.0 if out.current is None else out.bandwidth_Bps
        in_Bps = 0.0 if into.current is None else into.bandwidth_Bps
        if self.both_Bps is not None and out_Bps and in_Bps and out_Bps + in_Bps > self.both_Bps:
            scale = self.both_Bps / (out_Bps + in_Bps)
            out_Bps *= scale
            in_Bps *= scale
        self.out_Bps, self.in_Bps = out_Bps, in_Bps
        if bus is None:
            self.apply(1.0)
        elif out_Bps or in_Bps or bus.scale != 1.0:
            bus.share(self)
        if self.watch is not None and self.busy != self._was_busy:
            self._was_busy = not self._was_busy
            self.watch()

    def apply(self, scale: float) -> None:
        """Set the rates of the copies under way to `scale` times what this link allows."""
        if self.out_Bps:
            self.out.set_rate(self.out_Bps * scale)
        if self.in_Bps:
            self.into.set_rate(self.in_Bps * scale)
