"""Copies between a replica's HBM and the tiers below it, whatever links they cross."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import simpy

from sim.engine.hops import Transfer
from sim.engine.host import Host
from sim.memory.links import Link
from sim.memory.tiers import Entry
from sim.records import LINK_USES, TIER_USES, TIERS, Sink
from workloads.trajectory import Stream

__all__ = ["Transfer", "Transfers"]


#: The ledgers of a node, as the other replicas of it book them.
_NOTHING = (0.0,) * (2 * len(LINK_USES) * (len(TIERS) - 1) + len(TIER_USES) * len(TIERS))


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
        host.sink = sink
        if host.bookkeeper < 0:
            host.bookkeeper = replica
        #: The ways to each tier and back, slowest first.
        self._out, self._back = ([host.hops(index, link, out=out) for index in range(len(TIERS))]
                                 for out in (True, False))

    def send(self, tier: str, blocks: int, kind: str, trajectory: int, priority: int,
             done: Callable[[], None]) -> Transfer:
        """Copy `blocks` blocks from HBM to a tier."""
        transfer = Transfer(kind, trajectory, self.replica, self.sink, done)
        self._start(transfer, TIERS.index(tier), blocks, priority, out=True)
        return transfer

    def bring(self, blocks: Sequence[int], kind: str, trajectory: int, priority: int,
              done: Callable[[], None]) -> Transfer:
        """Copy blocks back to HBM: so many from each tier, in the order of `records.TIERS`."""
        transfer = Transfer(kind, trajectory, self.replica, self.sink, done)
        for index, count in enumerate(blocks):
            if count:
                self._start(transfer, index, count, priority, out=False)
        return transfer

    def time_s(self, tier: str, size: float, priority: int) -> tuple[float, float]:
        """Return the seconds until `size` bytes would be out in a tier, and back, with the queues as they are now."""
        index = TIERS.index(tier)
        out_s = max([hop.wait_s(size, priority) for hop in self._out[index]])
        back_s = max([hop.wait_s(size, priority) for hop in self._back[index]])
        return out_s, back_s

    def sample(self, now_s: float) -> tuple[float, ...]:
        """Return bytes below HBM and ledgers of links and tiers, as `records.TIMELINE_COLUMNS` ends with them."""
        host, link = self.host, self.link
        mine = link.ledger(now_s)
        ledgers = host.ledgers(now_s) if host.bookkeeper == self.replica else _NOTHING
        return (*(tier.used * self.block_bytes for tier in host.tiers), link.out.busy_s, link.into.busy_s, *mine,
                *ledgers)

    def hold(self, stream: Stream, tokens: int, have_tokens: int, trajectory: int) -> list[tuple[int, Entry]]:
        """Pin the entries that a trajectory reads the first `tokens` tokens of a stream from; undo with `let_go`.

        Those of the first `have_tokens`, which HBM holds, are not read, but have been used.
        """
        held: list[tuple[int, Entry]] = []
        now_s, host = self.env.now, self.host
        at: Stream | None = stream
        while at is not None:
            place = (trajectory, at) if host.config.private else at
            for index, tier in host.stores:
                if tokens <= have_tokens:
                    tier.touch(place, now_s)
                    continue
                entry = tier.hold(place, now_s)
                if entry is not None:
                    held.append((index, entry))
            if at.attach < tokens:
                tokens = at.attach
            at = at.parent
        return held

    def let_go(self, held: list[tuple[int, Entry]]) -> None:
        """Undo `hold`."""
        now_s = self.env.now
        for index, entry in held:
            tier = self.host.tiers[index]
            tier.release(entry, now_s)
            if self.host.configs[index].exclusive:
                tier.forget(entry.place, now_s)

    def _start(self, transfer: Transfer, index: int, blocks: int, priority: int, *, out: bool) -> None:
        places = ("hbm", TIERS[index]) if out else (TIERS[index], "hbm")
        hops = (self._out if out else self._back)[index]
        transfer.over(hops, float(blocks * self.block_bytes), priority, self.host.config.piece_bytes, places)
