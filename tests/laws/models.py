"""Reference models, slow and plain, and a hand-made cluster to hold the engine against them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import simpy

from sim.engine.buffer_pauses import BufferPauses
from sim.engine.buffers import BufferReplica
from sim.engine.cluster import Cluster
from sim.engine.host import Host, HostConfig, TierConfig
from sim.engine.pauses import Pauses
from sim.engine.replica import Replica
from sim.engine.transfers import Transfers
from sim.engine.write_backs import Writes
from sim.memory.allocators.contiguous import ContiguousAllocator
from sim.memory.allocators.paged import BlockPool
from sim.memory.buffer_cache import BufferCache
from sim.memory.cached_trees import tree_of
from sim.memory.kv_cache import KvCache
from sim.memory.links import Link
from sim.memory.tiers import Tier
from sim.policies.eviction import Eviction, Lru
from sim.policies.retention import Keep, Retention
from sim.policies.routing import RoundRobin, Routing
from sim.policies.schedule import Chunked, Schedule
from sim.records import MOVE_COLUMNS, PAUSE_COLUMNS, TIERS, TIMELINE_COLUMNS, TRAJECTORY_COLUMNS, TURN_COLUMNS
from sim.timing.roofline import Replica as Shape
from sim.timing.roofline import RooflineCost
from workloads.trajectory import Stream, Trajectory, Turn

RETENTIONS = get_args(get_args(Retention)[0])
EVICTIONS = get_args(get_args(Eviction)[0])
SCHEDULES = get_args(get_args(Schedule)[0])
ROUTINGS = get_args(get_args(Routing)[0])

# ------------------------------------------------------------------------------------------------ paged memory

Key = tuple[Stream, int]


def grown(parent: Stream | None, attach: int, label: str = "") -> Stream:
    """Return a stream out of the one whose own content ends at `attach`: an attach position never falls on the way."""
    while parent is not None and parent.parent is not None and parent.attach >= attach:
        parent = parent.parent
    return Stream(parent if attach else None, attach, label)


def chain(stream: Stream, upto_tokens: int) -> list[tuple[Stream, int]]:
    """Return (owner, tokens of the path that end in it), from the root down."""
    links = []
    at: Stream | None = stream
    while at is not None:
        links.append((at, upto_tokens))
        upto_tokens = min(upto_tokens, at.attach)
        at = at.parent
    return links[::-1]


def owner(stream: Stream, block: int, size: int) -> Stream:
    """Return the stream on `stream`'s path that block number `block` belongs to."""
    while stream.parent is not None and block < stream.attach // size:
        stream = stream.parent
    return stream


def path(stream: Stream, blocks: int, size: int) -> list[Key]:
    """Return the first `blocks` blocks of `stream`, by name."""
    return [(owner(stream, index, size), index) for index in range(blocks)]


@dataclass(eq=False)
class Table:
    """A running sequence: block table, what it pins, and how far it has computed."""

    stream: Stream
    limit: int
    hit: int
    pins: int
    blocks: dict[int, int] = field(default_factory=dict)
    end: int = 0


class BlockModel:
    """Every block has a name; every holder of it is listed; the free list is a list.

    Rules: content is cached block by block, each only behind its whole prefix. A pin covers the first so many blocks of
    a stream's path, those that are cached later too. A cached block without pin is dormant. Eviction takes, from the
    tails, dormant blocks that no cached block needs as its prefix, those of the stream used longest ago first; a stream
    is used when a pin that reached furthest into it is lifted. With `cow`, the last block of a finished sequence is
    cached half filled, and a longer copy of the same content takes its place; it is copied for its stream's own tokens.
    """

    def __init__(self, total: int, size: int, *, cow: bool, on_chunk: bool, whole_nodes: bool, enabled: bool) -> None:
        self.size, self.cow, self.on_chunk = size, cow, on_chunk
        self.whole_nodes, self.enabled = whole_nodes, enabled
        self.free = list(range(total))
        self.total = total
        self.cached: dict[Key, int] = {}
        self.filled: dict[Key, int] = {}
        self.tables: list[Table] = []
        self.keeps: list[tuple[Stream, int]] = []
        self.last_use: dict[Stream, float] = {}
        self.copies = 0
        self.dormant_block_s = 0.0
        self.now_s = 0.0
        #: Which of two streams used last at the same time goes first is open: the one that is gone elsewhere.
        self.gone: Callable[[Key], bool] = lambda key: False

    # -- what it says

    def pinned(self, *, running: bool = True, kept: bool = True) -> set[Key]:
        keys: set[Key] = set()
        if running:
            for table in self.tables:
                keys.update(path(table.stream, table.pins, self.size))
        if kept:
            for stream, blocks in self.keeps:
                keys.update(path(stream, blocks, self.size))
        return keys & self.cached.keys()

    def dormant(self) -> set[Key]:
        return self.cached.keys() - self.pinned()

    def only_kept(self) -> set[Key]:
        return self.pinned(running=False) - self.pinned(kept=False)

    def match(self, stream: Stream, prompt_tokens: int) -> int:
        if not self.enabled:
            return 0
        tokens, block = prompt_tokens - 1, 0
        while True:
            key = (owner(stream, block, self.size), block)
            whole = self.filled.get(key, 0) == (block + 1) * self.size
            if not whole or (block + 1) * self.size > tokens:
                break
            block += 1
        found = block * self.size
        if self.cow:
            for at, upto in chain(stream, tokens):
                if (at, block) in self.cached and min(upto, self.filled[at, block]) > at.attach:
                    found = max(found, min(upto, self.filled[at, block]))
        return found

    def context_blocks(self, stream: Stream) -> set[Key]:
        """Cached blocks on the path of `stream`."""
        return {key for key in self.cached if owner(stream, key[1], self.size) is key[0]}

    def private(self, stream: Stream) -> set[Key]:
        """Blocks of that context that no pin holds and that no cached block off its path has as its prefix."""
        mine = self.context_blocks(stream)
        needed: set[Key] = set()
        for at, index in self.cached.keys() - mine:
            needed.update(path(at, index, self.size))
        return (mine & self.dormant()) - needed

    def available(self, stream: Stream, limit: int, hit: int) -> int:
        woken = self.dormant() & set(path(stream, self._pins(limit, hit), self.size))
        return len(self.free) + len(self.dormant()) - len(woken)

    # -- what is done to it

    def advance(self, now_s: float) -> None:
        self.dormant_block_s += len(self.dormant()) * (now_s - self.now_s)
        self.now_s = now_s

    def open(self, stream: Stream, limit: int, hit: int) -> Table:
        table = Table(stream, limit, hit, self._pins(limit, hit), end=hit // self.size)
        for key in path(stream, hit // self.size, self.size):
            table.blocks[key[1]] = self.cached[key]
        self.copies += hit % self.size > 0
        self.tables.append(table)
        return table

    def grow(self, table: Table, tokens: int) -> None:
        while table.end * self.size < tokens:
            if not self.free:
                assert self.evict(-(-tokens // self.size) - table.end), "nothing to evict"
            block = self.free.pop()
            assert block not in self.cached.values()
            assert all(block not in other.blocks.values() for other in self.tables)
            table.blocks[table.end] = block
            table.end += 1

    def commit(self, table: Table, tokens: int) -> None:
        if self.enabled and self.on_chunk:
            self._hand_over(table, min(tokens, table.limit))

    def close(self, table: Table, tokens: int, *, finished: bool) -> None:
        tokens = min(tokens, table.limit)
        if finished and self.enabled:
            table.pins = max(table.pins, -(-table.limit // self.size))
            self._hand_over(table, tokens)
            if self.cow and tokens % self.size and tokens > table.stream.attach:
                self._cache(table, tokens // self.size, tokens)
        before = self._reach()
        self.tables.remove(table)
        self._rest(before)
        self._release(table.blocks.values())

    def keep(self, stream: Stream, blocks: int) -> tuple[Stream, int]:
        kept = (stream, blocks)
        self.keeps.append(kept)
        return kept

    def unkeep(self, kept: tuple[Stream, int]) -> None:
        before = self._reach()
        self.keeps.remove(kept)
        self._rest(before)

    def drop(self, keys: set[Key]) -> None:
        for key in keys:
            self._forget(key)

    def evict(self, count: int) -> int:
        freed = 0
        while freed < count:
            dormant, leaves = self.dormant(), self._leaves()
            if not leaves:
                break
            stream, block = min(leaves, key=lambda key: (self.last_use[key[0]], not self.gone(key),
                                                         -len(chain(key[0], 0))))
            while True:
                self._forget((stream, block))
                freed += 1
                block -= 1
                if not self.whole_nodes or (stream, block) not in dormant:
                    break
                if any((stream, block) in path(at, index, self.size) for at, index in self.cached):
                    break
        return freed

    def check(self) -> None:
        """Every block is free or held, never both; nothing is cached without its prefix."""
        held = set(self.cached.values())
        for table in self.tables:
            held.update(table.blocks.values())
        assert len(self.cached) == len(set(self.cached.values()))
        assert not held & set(self.free)
        assert len(held) + len(self.free) == self.total
        assert len(set(self.free)) == len(self.free)
        for stream, block in self.cached:
            assert all(key in self.cached for key in path(stream, block, self.size))

    # -- how

    def _leaves(self) -> set[Key]:
        needed: set[Key] = set()
        for at, index in self.cached:
            needed.update(path(at, index, self.size))
        return self.dormant() - needed

    def _pins(self, limit: int, hit: int) -> int:
        blocks = hit // self.size
        return max(blocks, -(-limit // self.size)) if self.enabled and self.on_chunk else blocks

    def _hand_over(self, table: Table, tokens: int) -> None:
        for block in range(tokens // self.size):
            self._cache(table, block, (block + 1) * self.size)

    def _cache(self, table: Table, block: int, filled: int) -> None:
        key = (owner(table.stream, block, self.size), block)
        if key not in self.cached:
            self.cached[key] = table.blocks[block]
            self.filled[key] = filled
        elif self.filled[key] < filled:
            self.filled[key] = filled

    def _forget(self, key: Key) -> None:
        block = self.cached.pop(key)
        del self.filled[key]
        assert all(block not in table.blocks.values() for table in self.tables), "a block in use was evicted"
        self.free.append(block)

    def _release(self, blocks: Any) -> None:
        held = set(self.cached.values())
        for table in self.tables:
            held.update(table.blocks.values())
        self.free.extend(block for block in set(blocks) if block not in held)

    def _reach(self) -> Counter[Stream]:
        """How far into each stream a pin reaches."""
        reach: Counter[Stream] = Counter()
        for stream, pins in [(t.stream, t.pins) for t in self.tables] + self.keeps:
            reach[stream] = max(reach[stream], pins)
            while stream.parent is not None:
                pins = min(pins, stream.attach // self.size)
                stream = stream.parent
                reach[stream] = max(reach[stream], pins)
        return reach

    def _rest(self, before: Counter[Stream]) -> None:
        after = self._reach()
        for stream, reached in before.items():
            if reached <= stream.attach // self.size:
                continue  # a pin that ends before the stream's own blocks is no use of it
            if after[stream] < reached and any(at is stream and block >= after[stream] for at, block in self.cached):
                self.last_use[stream] = self.now_s


class FollowingModel(BlockModel):
    """The same under a policy of its own: it evicts what is gone elsewhere, if that may go at all."""

    def evict(self, count: int) -> int:
        freed = 0
        while gone := [key for key in self._leaves() if self.gone(key)]:
            for key in gone:
                self._forget(key)
            freed += len(gone)
        assert freed >= count or not self._leaves(), "something else than a dormant leaf was evicted"
        return freed


# ------------------------------------------------------------------------------------------------ tier


class TierModel:
    """A set of named blocks per stream, each being copied or there; streams in order of their last use."""

    def __init__(self, capacity: int, block_bytes: int) -> None:
        self.capacity, self.block_bytes = capacity, block_bytes
        self.blocks: dict[Stream, dict[int, bool]] = {}
        self.copies: dict[Stream, list[tuple[int, int]]] = {}
        self.holds: Counter[Stream] = Counter()
        self.byte_s = self.now_s = 0.0
        self.evicted = 0

    def used(self) -> int:
        return sum(len(blocks) for blocks in self.blocks.values())

    def pinned(self, stream: Stream) -> bool:
        return bool(self.copies.get(stream)) or self.holds[stream] > 0

    def advance(self, now_s: float) -> None:
        self.byte_s += self.used() * self.block_bytes * (now_s - self.now_s)
        self.now_s = now_s

    def ready(self, stream: Stream) -> int:
        """How far the run of blocks that are there reaches."""
        blocks = self.blocks[stream]
        at = min(blocks)
        while blocks.get(at):
            at += 1
        return at

    def reserve(self, stream: Stream, first: int, end: int) -> bool:
        blocks = self.blocks.get(stream, {})
        joins = bool(blocks) and min(blocks) <= first <= self.ready(stream)
        if blocks and not joins and self.pinned(stream):
            return False
        old = set(blocks) if joins else set()
        new = set(range(max(old, default=first - 1) + 1, end)) if joins else set(range(first, end))
        others = [s for s in self.blocks if s is not stream and not self.pinned(s)]
        mine = len(blocks) - len(old)
        room = self.capacity - self.used() + mine
        if len(new) > room + sum(len(self.blocks[s]) for s in others):
            return False
        if blocks and not joins:
            del self.blocks[stream]
        for victim in others:
            while len(new) > self.capacity - self.used() and victim in self.blocks:
                del self.blocks[victim][max(self.blocks[victim])]
                self.evicted += 1
                if not self.blocks[victim]:
                    del self.blocks[victim]
        kept = self.blocks.pop(stream, {})
        self.blocks[stream] = kept | dict.fromkeys(new, False)
        self.copies.setdefault(stream, []).append((first, end))
        return True

    def copied(self, stream: Stream, copy: tuple[int, int]) -> None:
        self.copies[stream].remove(copy)
        for block in range(min(self.blocks[stream]), copy[1]):
            self.blocks[stream][block] = True
        self._settle(stream)

    def cancel(self, stream: Stream, copy: tuple[int, int]) -> None:
        self.copies[stream].remove(copy)
        self._settle(stream)

    def hold(self, stream: Stream) -> bool:
        if stream not in self.blocks:
            return False
        self.holds[stream] += 1
        self.blocks[stream] = self.blocks.pop(stream)
        return True

    def release(self, stream: Stream) -> None:
        self.holds[stream] -= 1
        self._settle(stream)

    def forget(self, stream: Stream) -> None:
        if not self.pinned(stream):
            self.blocks.pop(stream, None)

    def holds_block(self, stream: Stream, block: int, size: int) -> bool:
        """Whether that block of the stream's content can be read."""
        return self.blocks.get(owner(stream, block, size), {}).get(block, False)

    def reach(self, stream: Stream, tokens: int, have_tokens: int, size: int) -> int:
        """The block up to which a prompt is there, beyond what HBM has."""
        block = have_tokens // size
        while block < tokens // size and self.holds_block(stream, block, size):
            block += 1
        return block

    def _settle(self, stream: Stream) -> None:
        """Nothing is on its way any more: what was not brought is not there."""
        if not self.pinned(stream):
            self.blocks[stream] = {block: True for block, there in self.blocks[stream].items() if there}
            if not self.blocks[stream]:
                del self.blocks[stream]


# ------------------------------------------------------------------------------------------------ link


@dataclass(eq=False)
class MoveModel:
    """A copy: its way (link, direction), its rank, and what is left of it."""

    name: Any
    way: tuple[int, int]
    priority: int
    order: int
    latency_s: float
    bytes_left: float


class LinkModel:
    """Links of two ways each, moved forward from event to event.

    Each way goes on with its move until one of higher priority waits, or it ends; then comes the first in order of
    priority, then of arrival. A link's two ways share its cap while both are busy; all ways share the bus.
    """

    def __init__(self, links: list[tuple[float, float]], latency_s: float, both: float | None,
                 bus: float | None = None) -> None:
        self.links, self.latency_s, self.both, self.bus = links, latency_s, both, bus
        self.ways = [(link, way) for link in range(len(links)) for way in (0, 1)]
        self.moves: list[MoveModel] = []
        self.now_s = 0.0
        self.busy_s = dict.fromkeys(self.ways, 0.0)
        self.moved = dict.fromkeys(self.ways, 0.0)
        self.ended: dict[Any, float] = {}
        self.now: dict[tuple[int, int], MoveModel] = {}
        self._order = 0

    def submit(self, name: Any, way: tuple[int, int], priority: int, size: float) -> None:
        self._order += 1
        self.moves.append(MoveModel(name, way, priority, self._order, self.latency_s, size))
        self.serving(way)

    def find(self, name: Any) -> MoveModel:
        (found,) = [move for move in self.moves if move.name == name]
        return found

    def serving(self, way: tuple[int, int]) -> MoveModel | None:
        first = min((move for move in self.moves if move.way == way), key=lambda move: (move.priority, move.order),
                    default=None)
        now = self.now.get(way)
        if first is not None and (now not in self.moves or first.priority < now.priority):
            self.now[way] = now = first
        return now if first is not None else None

    def rates(self) -> dict[tuple[int, int], float]:
        """Bytes per second of the ways that are busy."""
        rates = {}
        for link, bandwidths in enumerate(self.links):
            busy = [way for way in (0, 1) if self.serving((link, way)) is not None]
            scale = min(1.0, self.both / sum(bandwidths)) if len(busy) == 2 and self.both is not None else 1.0
            rates.update({(link, way): bandwidths[way] * scale for way in busy})
        total = sum(rates.values())
        scale = min(1.0, self.bus / total) if self.bus is not None and total else 1.0
        return {way: rate * scale for way, rate in rates.items()}

    def run(self, until_s: float) -> None:
        while True:
            rates = self.rates()
            serving = [move for move in (self.serving(way) for way in rates) if move is not None]
            step = until_s - self.now_s
            for move in serving:
                step = min(step, move.latency_s if move.latency_s > 0 else move.bytes_left / rates[move.way])
            for move in serving:
                self.busy_s[move.way] += step
                if move.latency_s > 0:
                    move.latency_s = 0.0 if move.latency_s - step < 1e-12 else move.latency_s - step
                    continue
                carried = rates[move.way] * step
                if move.bytes_left - carried < 1e-9:
                    carried = move.bytes_left
                move.bytes_left -= carried
                self.moved[move.way] += carried
            self.now_s += step
            done = [move for move in serving if move.latency_s <= 0 and move.bytes_left <= 0]
            for move in done:
                self.ended[move.name] = self.now_s
                self.moves.remove(move)
            if not done and self.now_s >= until_s:
                return


# ------------------------------------------------------------------------------------------------ cluster


class Recorder:
    """A sink that keeps every record as a dict by column name."""

    def __init__(self) -> None:
        self.turns: list[dict[str, Any]] = []
        self.trajectories: list[dict[str, Any]] = []
        self.pauses: list[dict[str, Any]] = []
        self.moves: list[dict[str, Any]] = []
        self.samples: list[dict[str, Any]] = []

    def turn(self, record: tuple[Any, ...]) -> None:
        self.turns.append(dict(zip(TURN_COLUMNS, record, strict=True)))

    def trajectory(self, record: tuple[Any, ...]) -> None:
        self.trajectories.append(dict(zip(TRAJECTORY_COLUMNS, record, strict=True)))

    def pause(self, record: tuple[Any, ...]) -> None:
        self.pauses.append(dict(zip(PAUSE_COLUMNS, record, strict=True)))

    def move(self, record: tuple[Any, ...]) -> None:
        self.moves.append(dict(zip(MOVE_COLUMNS, record, strict=True)))

    def sample(self, record: tuple[Any, ...]) -> None:
        self.samples.append(dict(zip(TIMELINE_COLUMNS, record, strict=True)))


@dataclass(frozen=True)
class Agents:
    """What a workload is drawn from; the same values give the same trajectories."""

    seed: int = 0
    count: int = 4
    turns: int = 3
    #: Share of turns that fan out, and how the branches join: "all", "first" or "either".
    fan: float = 0.0
    join: str = "all"
    #: Shared zones before each trajectory's own content: 0, 1 (system) or 2 (system and repository).
    zones: int = 1
    #: Share of trajectories that repeat the prompts of one before them word for word.
    repeat: float = 0.0
    #: Mean seconds between arrivals, and of waits.
    gap_s: float = 0.05
    wait_s: float = 0.2
    tokens: int = 60


def trajectories(agents: Agents) -> Iterator[Trajectory]:
    """Draw trajectories."""
    rng = random.Random(agents.seed)
    system = Stream(None, 0, "system") if agents.zones else None
    position = rng.randint(1, agents.tokens) if system else 0
    repositories = []
    if agents.zones > 1 and system is not None:
        repositories = [(Stream(system, position, f"repo/{n}"), position + rng.randint(1, agents.tokens))
                        for n in range(2)]
    now_s = 0.0
    drawn: list[tuple[Stream, int, int]] = []
    for number in range(agents.count):
        now_s += rng.expovariate(1.0 / agents.gap_s)
        if drawn and rng.random() < agents.repeat:
            stream, begin, seed = rng.choice(drawn)
        else:
            parent, begin = rng.choice(repositories) if repositories else (system, position)
            stream, seed = Stream(parent, begin, "own"), rng.getrandbits(32)
        drawn.append((stream, begin, seed))
        yield _Drawing(agents, stream, begin, random.Random(seed), number, now_s).trajectory


class _Drawing:
    """One trajectory under way of being drawn."""

    def __init__(self, agents: Agents, stream: Stream, begin: int, rng: random.Random, number: int,
                 arrival_s: float) -> None:
        self.agents, self.rng = agents, rng
        self.turns: list[Turn] = []
        self.branches = 0
        self.line(stream, begin, rng.randint(1, agents.turns), [], 1, [], agents.fan)
        self.trajectory = Trajectory(number, arrival_s, [self.turns[0]], len(self.turns), group="g")

    def line(self, stream: Stream, history: int, length: int, after: list[Turn], pending: int, prunes: list[Turn],
             fan: float, branch: int = 0) -> Turn:
        rng, agents = self.rng, self.agents
        turn = None
        for index in range(length):
            history += rng.randint(1, agents.tokens)
            output = rng.choice((1, 2, rng.randint(1, agents.tokens)))
            kept = output if rng.random() < 0.7 else rng.randint(0, output)
            tool = rng.choice(("shell", "search")) if after else ""
            turn = Turn(stream, history, output, kept_output=kept, wait_s=self.wait() if after else 0.0, tool=tool,
                        branch=branch, index=len(self.turns))
            turn.prunes = prunes
            self.turns.append(turn)
            for earlier in after:
                earlier.next.append(turn)
            turn.pending = pending if after else 0
            history += kept
            after, pending, prunes = [turn], 1, []
            if index + 1 < length and rng.random() < fan:
                start = len(self.turns)
                ends = []
                for _ in range(rng.randint(2, 3)):
                    self.branches += 1
                    child = grown(stream, rng.choice((history, rng.randint(1, history))), "branch")
                    ends.append(self.line(child, max(history, child.attach), rng.randint(1, 2), [turn], 1, [],
                                          fan / 3, self.branches))
                join = agents.join if agents.join != "either" else rng.choice(("all", "first"))
                after, pending = ends, len(ends)
                if join == "first":
                    pending, prunes = 1, self.turns[start:]
        assert turn is not None
        return turn

    def wait(self) -> float:
        return self.rng.choice((0.0, self.rng.expovariate(1.0 / self.agents.wait_s)))


@dataclass(frozen=True)
class Setup:
    """A small cluster."""

    policy: Any = field(default_factory=Keep)
    schedule: Any = field(default_factory=Chunked)
    routing: Any = field(default_factory=RoundRobin)
    blocks: int = 100_000
    size: int = 16
    dram_blocks: int = 0
    nvme_blocks: int = 0
    remote_blocks: int = 0
    spills: bool = False
    #: Replicas on a node; nodes share what is remote.
    per_node: int = 99
    direct: bool = False
    exclusive: bool = False
    writes: Writes = field(default_factory=Writes)
    tier_eviction: Any = field(default_factory=Lru)
    least_tokens: int = 0
    bus_Bps: float = 0.0
    link_Bps: float = 4e8
    latency_s: float = 1e-4
    both: bool = False
    replicas: int = 1
    cow: bool = False
    on_chunk: bool = True
    whole_nodes: bool = False
    enabled: bool = True
    eviction: Any = field(default_factory=Lru)
    state_blocks: int = 0
    headroom: int = 0
    low: int = 0
    high: int = 0
    block_copy_s: float = 1e-4
    mode: str = "sum"
    most_alive: int | None = None
    stretches: bool = True
    #: Makes a contiguous allocator of so many slots (then `size` is 1); None for blocks and a prefix cache.
    buffers: Callable[[int], ContiguousAllocator] | None = None
    stall_s: float = 0.0
    #: Share by which a step takes longer while the link copies.
    step_slowdown: float = 0.0
    #: Looks at the cluster after every event.
    watch: Callable[[Cluster], None] | None = None

    def memory(self) -> KvCache:
        """Return the empty HBM of a replica."""
        if self.buffers is not None:
            return BufferCache(self.buffers(self.blocks), state_slots=self.state_blocks, slot_copy_s=self.block_copy_s,
                               stall_s=self.stall_s)
        pool = BlockPool(self.blocks, self.size)
        tree = tree_of(pool, self.eviction, whole_nodes=self.whole_nodes, exact_tail=self.cow)
        return KvCache(pool, tree, enabled=self.enabled, on_chunk=self.on_chunk, state_blocks=self.state_blocks)


#: More events than any of these small runs needs.
MOST_EVENTS = 60_000
#: Bytes of a token's KV, and a model that takes about 10 ms a step.
TOKEN_BYTES = 1000
SHAPE = Shape(active_params=1e9, weight_read_bytes=lambda tokens: 2e9 + 1e6 * tokens, full_layers=8, window_layers=0,
              window=0, d_attn=512, d_model=512, n_layers=8, kv_bytes_per_token=TOKEN_BYTES * 100.0, state_bytes=0.0,
              peak_flops=1e13, hbm_Bps=2.5e11, nvlink_Bps=1e11)


@dataclass
class Run:
    """A run that has ended."""

    setup: Setup
    recorder: Recorder
    cluster: Cluster
    #: Turns by trajectory and index, and what each waits for: turns, and how many of them.
    graph: dict[tuple[int, int], Turn]
    waits_for: dict[tuple[int, int], tuple[list[int], int]]
    arrivals: dict[int, float]
    end_s: float

    @property
    def finished(self) -> list[dict[str, Any]]:
        return [record for record in self.recorder.turns if record["status"] == "finished"]

    @property
    def by_turn(self) -> dict[tuple[int, int], dict[str, Any]]:
        return {(record["trajectory"], record["turn"]): record for record in self.recorder.turns}

    def counts(self) -> dict[str, int]:
        replicas = self.cluster.replicas
        hosts = {id(r.pauses.host): r.pauses.host for r in replicas}.values()
        return {
            "preemptions": sum(r.admission.relief.preemptions for r in replicas),
            "rejections": sum(r.admission.rejections for r in replicas),
            "deadlocks": sum(r.admission.relief.deadlocks for r in replicas),
            "evicted": sum(r.kv.tree.evicted for r in replicas),
            "copies": sum(r.kv.copies for r in replicas),
            "forced": sum(r.pauses.forced for r in replicas),
            "expired": sum(r.pauses.expired for r in replicas),
            "failures": sum(r.pauses.offload_failures for r in replicas),
            "prefetches": sum(r.pauses.prefetches.started for r in replicas),
            "skipped": sum(r.pauses.prefetches.skipped for r in replicas),
            **{name: sum({id(h.tier(name)): h.tier(name).evicted for h in hosts}.values()) for name in TIERS},
            "demoted": sum(h.demoted for h in hosts),
            **{name: sum(getattr(r.pauses.write_backs, name) for r in replicas if r.pauses.write_backs is not None)
               for name in ("written", "lost", "saved", "refused")},
            "steps": sum(r.steps for r in replicas),
        }


def tiers_of(setup: Setup, block_bytes: int) -> dict[str, TierConfig]:
    common: dict[str, Any] = {"exclusive": setup.exclusive, "eviction": setup.tier_eviction,
                              "least_tokens": setup.least_tokens}
    below = [name for name in ("nvme", "remote") if setup.spills and getattr(setup, f"{name}_blocks")]
    return {
        "dram": TierConfig(setup.dram_blocks * block_bytes, evict_to=below[0] if below else "", **common),
        "nvme": TierConfig(setup.nvme_blocks * block_bytes, setup.link_Bps / 4, setup.link_Bps / 2, setup.latency_s,
                           direct=setup.direct, evict_to=below[1] if len(below) == 2 else "", **common),
        "remote": TierConfig(setup.remote_blocks * block_bytes, setup.link_Bps / 3, setup.link_Bps / 3, setup.latency_s,
                             direct=setup.direct, **common)}


def run(setup: Setup, agents: Agents) -> Run:
    """Simulate `agents` on `setup` to the end and close the books."""
    env = simpy.Environment()
    recorder = Recorder()
    cluster = Cluster(env, recorder, setup.routing, setup.most_alive)
    block_bytes = setup.size * TOKEN_BYTES
    below = HostConfig(tiers_of(setup, block_bytes), setup.bus_Bps, 2.0 * block_bytes, setup.size,
                       private=setup.buffers is not None)
    shared: dict[str, Tier] = {}
    predictor = setup.policy.predictor.start({})
    cost = RooflineCost(SHAPE, setup.mode, 0.5, 0.8, 1e-3)
    for number in range(setup.replicas):
        if number % setup.per_node == 0:
            host = Host(env, below, block_bytes, shared)
            shared = {"remote": host.tier("remote")}
        kv = setup.memory()
        kind = BufferReplica if setup.buffers is not None else Replica
        replica = kind(env, cluster, number, kv, cost, setup.schedule, recorder, headroom_blocks=setup.headroom,
                       low_blocks=setup.low, high_blocks=setup.high, block_copy_s=setup.block_copy_s, layers=8,
                       step_slowdown=setup.step_slowdown, stretches=setup.stretches)
        link = Link(env, setup.link_Bps, setup.link_Bps, setup.latency_s, 1.5 * setup.link_Bps if setup.both else None,
                    host.bus)
        pauses = BufferPauses if setup.buffers is not None else Pauses
        replica.attach(pauses(env, replica, kv, Transfers(env, number, link, host, block_bytes, recorder), cost,
                              setup.policy, predictor, recorder, writes=setup.writes))
        cluster.replicas.append(replica)
    drawn = list(trajectories(agents))
    graph: dict[tuple[int, int], Turn] = {}
    waits_for: dict[tuple[int, int], tuple[list[int], int]] = {}
    for trajectory in drawn:
        number, todo = trajectory.number, list(trajectory.roots)
        while todo:
            turn = todo.pop()
            if (number, turn.index) not in graph:
                graph[number, turn.index] = turn
                todo.extend(turn.next)
                waits_for.setdefault((number, turn.index), ([], turn.pending))
                for follower in turn.next:
                    waits_for.setdefault((number, follower.index), ([], follower.pending))[0].append(turn.index)
    cluster.feed(iter(drawn), None)
    for _ in range(MOST_EVENTS):
        if env.peek() == math.inf:
            break
        env.step()
        if setup.watch is not None:
            setup.watch(cluster)
    else:
        raise AssertionError(f"the run does not end: {env.now} s after {MOST_EVENTS} events")
    end_s = env.now
    for replica in cluster.replicas:
        replica.accounts.close(end_s)
        for row in replica.accounts.samples:
            recorder.sample(row)
    return Run(setup, recorder, cluster, graph, waits_for, {t.number: t.arrival_s for t in drawn}, end_s)


def same(left: Any, right: Any, tolerance: float) -> bool:
    """Return whether two record values are equal, numbers within a relative tolerance."""
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=tolerance,
                                                                       abs_tol=tolerance)
    return bool(left == right)


def differences(left: list[dict[str, Any]], right: list[dict[str, Any]], tolerance: float = 0.0) -> list[str]:
    """Name the first values in which two lists of records differ, in the order of trajectory and turn."""
    def key(record: dict[str, Any]) -> tuple[int, int]:
        return record["trajectory"], record.get("turn", 0)

    left, right = sorted(left, key=key), sorted(right, key=key)
    found = [] if len(left) == len(right) else [f"{len(left)} records against {len(right)}"]
    for a, b in zip(left, right, strict=False):
        found += [f"{key(a)} {name}: {a[name]} != {b[name]}" for name in a if not same(a[name], b[name], tolerance)]
    return found[:5]


__all__ = ["EVICTIONS", "RETENTIONS", "SCHEDULES", "Agents", "BlockModel", "FollowingModel", "LinkModel", "Recorder",
           "Run", "Setup", "Table", "TierModel", "chain", "differences", "grown", "owner", "path", "replace", "run",
           "same", "trajectories"]
