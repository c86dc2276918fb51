"""What lies below a node's HBM: host memory, local storage, memory elsewhere; shared by the node's replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import simpy

from sim.engine.hops import Transfer, slowest_first
from sim.memory.links import BACKGROUND, Bus, Direction, Link
from sim.memory.tiers import Entry, Place, Tier, cover
from sim.policies.eviction import Eviction
from sim.records import LINK_USES, TIER_USES, TIERS, Sink
from workloads.trajectory import Stream


@dataclass(frozen=True, slots=True)
class TierConfig:
    """One tier of a node.

    Attributes
    ----------
    capacity_bytes
        What it holds.
    out_Bps, in_Bps, latency_s
        Its own link, away from the GPUs and towards them; 0 for host memory, which the replicas' links reach.
    direct
        Its copies go to the GPU directly (GPUDirect Storage or RDMA) instead of through host memory.
    evict_to
        Where entries go when it is fuller than its high watermark; empty for nowhere.
    low_fraction, high_fraction
        Watermarks: above the second, entries move on until the first is reached.
    exclusive
        A context that has come back from here is not kept here.
    eviction
        Who goes first; None for the entry used longest ago.
    least_tokens
        A prompt that finds fewer tokens below HBM computes them.
    """

    capacity_bytes: float = 0.0
    out_Bps: float = 0.0
    in_Bps: float = 0.0
    latency_s: float = 0.0
    direct: bool = False
    evict_to: str = ""
    low_fraction: float = 0.9
    high_fraction: float = 0.95
    exclusive: bool = False
    eviction: Eviction | None = None
    least_tokens: int = 0


@dataclass(frozen=True, slots=True)
class HostConfig:
    """The tiers of one node.

    Attributes
    ----------
    tiers
        By name, in any order; those of `records.TIERS` that are missing hold nothing.
    memory_Bps
        Bandwidth of host memory over all copies; 0 for no limit.
    piece_bytes
        A copy through host memory goes piece by piece, so it takes the slower hop and one piece of the faster.
    block_tokens
        Tokens of a block.
    private
        Each trajectory has its own entries: what one has stored, no other finds.
    """

    tiers: Mapping[str, TierConfig]
    memory_Bps: float = 0.0
    piece_bytes: float = 8 * 2**20
    block_tokens: int = 1
    private: bool = False


class Host:
    """The tiers of one node.

    Parameters
    ----------
    block_bytes
        Bytes of a block over all GPUs of a replica.
    shared
        Tiers that other nodes share, by name; they take the place of this node's own.

    Attributes
    ----------
    tiers, links, configs
        In the order of `records.TIERS`: the tier, its own link (None for host memory or where there is none), and its
        configuration.
    demoted
        Contexts that moved from one tier to another.
    """

    def __init__(self, env: simpy.Environment, config: HostConfig, block_bytes: int,
                 shared: Mapping[str, Tier] | None = None) -> None:
        self.env = env
        self.config = config
        self.block_bytes = block_bytes
        #: Takes the records of copies between tiers; the replica in whose name the node's own ledgers are booked.
        self.sink: Sink
        self.bookkeeper = -1
        self._owned = [name not in (shared or {}) for name in TIERS]
        self.bus = Bus(config.memory_Bps) if config.memory_Bps > 0 else None
        self.configs = tuple(config.tiers.get(name, TierConfig()) for name in TIERS)
        self.tiers = tuple((shared or {}).get(name) or self.store(one) for name, one in
                           zip(TIERS, self.configs, strict=True))
        #: The tiers that can hold anything, with their positions.
        self.stores = [(index, tier) for index, tier in enumerate(self.tiers) if tier.capacity_blocks]
        #: Which tiers send on what they have too much of, and where to.
        self._ways_down = [(index, TIERS.index(one.evict_to)) for index, one in enumerate(self.configs) if one.evict_to]
        self.links = tuple(self._link(one) for one in self.configs)
        #: Blocks on their way from each tier to another.
        self.demoting = [0] * len(TIERS)
        self.demoted = 0

    def store(self, config: TierConfig) -> Tier:
        """Return an empty tier of that configuration."""
        size = self.config.block_tokens
        tier = Tier(config.capacity_bytes, self.block_bytes, config.eviction, size)
        tier.least_blocks = -(-config.least_tokens // size)
        return tier

    @property
    def empty(self) -> bool:
        """Whether no tier holds anything."""
        return not max([len(tier.entries) for _, tier in self.stores], default=0)

    def tier(self, name: str) -> Tier:
        """Return a tier by its name."""
        return self.tiers[TIERS.index(name)]

    def place(self, stream: Stream, trajectory: int) -> Place:
        """Return where content of a stream lies that a trajectory stores or looks for."""
        return (trajectory, stream) if self.config.private else stream

    def cover(self, stream: Stream, tokens: int, have_tokens: int, trajectory: int) -> list[int]:
        """Return how many blocks each tier can add to the tokens that HBM holds (see `tiers.cover`)."""
        return cover(self.tiers, stream, tokens, have_tokens, self.config.block_tokens,
                     trajectory if self.config.private else -1)

    def ledgers(self, now_s: float) -> tuple[float, ...]:
        """Return what the node's links and tiers were used for so far, in the order of `records.TIMELINE_COLUMNS`.

        Tiers that other nodes share are booked by the node that made them.
        """
        rows: list[float] = []
        for link in self.links[1:]:
            rows += [0.0] * (2 * len(LINK_USES)) if link is None else link.ledger(now_s)
        for tier, owned in zip(self.tiers, self._owned, strict=True):
            rows += tier.ledger(now_s) if owned else (0.0,) * len(TIER_USES)
        return tuple(rows)

    def overflow(self, now_s: float) -> None:
        """Move contexts on from every tier that is fuller than its high watermark and has somewhere to send them."""
        for index, below in self._ways_down:
            self._demote(index, below, now_s)

    def hops(self, index: int, link: Link, *, out: bool) -> list[Direction]:
        """Return the ways a copy between HBM, over a replica's `link`, and a tier crosses, slowest first."""
        own = self.links[index]
        if own is None:
            ways = [link]
        elif self.configs[index].direct:
            ways = [own]
        else:
            ways = [link, own] if out else [own, link]
        return slowest_first([way.out if out else way.into for way in ways])

    def _link(self, config: TierConfig) -> Link | None:
        if config.capacity_bytes <= 0 or config.out_Bps <= 0:
            return None
        return Link(self.env, config.out_Bps, config.in_Bps, config.latency_s, None,
                    None if config.direct else self.bus)

    def _demote(self, index: int, below: int, now_s: float) -> None:
        tier, config = self.tiers[index], self.configs[index]
        staying = tier.used - self.demoting[index]
        if staying <= config.high_fraction * tier.capacity_blocks:
            return
        for entry in tier.victims():
            if staying <= config.low_fraction * tier.capacity_blocks:
                return
            blocks, lower = entry.ready - entry.first, self.tiers[below]
            if self.configs[below].evict_to and blocks > lower.capacity_blocks - lower.used:
                return  # what makes room there is on its way further down
            target = lower.reserve(entry.place, entry.first, entry.ready, now_s, owner=entry.owner,
                                   shared=entry.shared)
            if target is None:
                return
            staying -= blocks
            self.demoting[index] += blocks
            self.demoted += 1
            self._move(index, below, entry, target, max(0, entry.ready - max(entry.first, target.ready)))

    def _move(self, index: int, below: int, entry: Entry, target: Entry, blocks: int) -> None:
        """Copy an entry's blocks to a lower tier; they leave this one when the copy has ended."""
        end, held = entry.ready, entry.ready - entry.first
        self.tiers[index].pin(entry)

        def moved() -> None:
            now_s = self.env.now
            self.demoting[index] -= held
            self.tiers[below].copied(target, end, now_s)
            self.tiers[index].release(entry, now_s)
            self.tiers[index].forget(entry.place, now_s)
            self.overflow(now_s)

        ways = [way for way in (self.links[index], self.links[below]) if way is not None]
        hops = [way.into if way is self.links[index] else way.out for way in ways]
        transfer = Transfer("demote", entry.owner, -1, self.sink, moved)
        transfer.over(slowest_first(hops), float(blocks * self.block_bytes), BACKGROUND, self.config.piece_bytes,
                      (TIERS[index], TIERS[below]))
