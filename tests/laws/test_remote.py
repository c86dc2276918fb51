"""Is memory elsewhere shared by all nodes, filled by what is demoted, and as fast as the network and no faster?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import simpy

from sim.engine.host import Host, HostConfig, TierConfig
from sim.engine.transfers import Transfers
from sim.memory.links import BACKGROUND, OFFLOAD, RELOAD, Link
from sim.memory.tiers import cover
from sim.records import MOVE_COLUMNS, TIERS
from workloads.trajectory import Stream

BLOCK = 100
SIZE = 4


class Moves:
    """A sink that keeps the moves."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def move(self, record: tuple[Any, ...]) -> None:
        self.rows.append(dict(zip(MOVE_COLUMNS, record, strict=True)))


def nodes(env: simpy.Environment, count: int = 1, *, piece: float = 100.0, **tiers: TierConfig) -> list[Transfers]:
    """Return one replica on each of some nodes, with a host link of 1000 B/s."""
    shared: dict[str, Any] = {}
    made = []
    sink: Any = Moves()
    for number in range(count):
        host = Host(env, HostConfig(tiers, piece_bytes=piece, block_tokens=SIZE), BLOCK, shared)
        shared = {"remote": host.tier("remote")}
        made.append(Transfers(env, number, Link(env, 1000.0, 1000.0), host, BLOCK, sink))
    return made


def store(at: Transfers, tier: str, stream: Stream, blocks: int) -> None:
    """Write a context to a tier at once."""
    entry = at.host.tier(tier).reserve(stream, 0, blocks, at.env.now)
    assert entry is not None
    at.host.tier(tier).copied(entry, blocks, at.env.now)


REMOTE = TierConfig(10_000.0, 500.0, 250.0)


def test_a_context_stored_by_one_node_is_read_by_another() -> None:
    env = simpy.Environment()
    one, two = nodes(env, 2, dram=TierConfig(10_000.0), remote=REMOTE)
    shared, local = Stream(None, 0), Stream(None, 0)
    store(one, "remote", shared, 5)
    store(one, "dram", local, 5)
    assert cover(two.host.tiers, shared, 100, 0, SIZE) == [0, 0, 5]
    assert cover(two.host.tiers, local, 100, 0, SIZE) == [0, 0, 0]
    assert not two.host.empty
    ended: list[float] = []
    two.bring([0, 0, 5], "reload", 7, RELOAD, lambda: ended.append(env.now))
    env.run()
    # 500 bytes at 250 B/s, and the last piece of 100 over the host link at 1000 B/s
    assert ended == [pytest.approx(2.1)]
    (row,) = two.sink.rows
    assert (row["source"], row["target"], row["bytes"], row["replica"]) == ("remote", "hbm", 500, 1)
    assert (row["start_s"], row["end_s"]) == (0.0, pytest.approx(2.1))
    assert one.link.into.moved_bytes == 0.0
    assert two.link.into.moved_bytes == two.host.links[2].into.moved_bytes == 500.0


@pytest.mark.parametrize("direct", [True, False])
def test_rdma_goes_through_host_memory_in_pieces_or_directly(direct: bool) -> None:
    env = simpy.Environment()
    (one,) = nodes(env, remote=replace(REMOTE, direct=direct))
    expected_s = one.time_s("remote", 500.0, OFFLOAD)[0]
    ended: list[float] = []
    one.send("remote", 5, "offload", 7, OFFLOAD, lambda: ended.append(env.now))
    env.run()
    assert ended == [pytest.approx(1.0 if direct else 1.1)]
    assert expected_s == pytest.approx(1.0)  # of the slower way, before the last piece
    assert one.link.out.moved_bytes == (0.0 if direct else 500.0)


def test_what_overflows_goes_down_tier_by_tier() -> None:
    """The longer ago a context was written, the further down it lies; none is lost, none lies twice."""
    env = simpy.Environment()
    marks = {"low_fraction": 0.5, "high_fraction": 0.8}
    (one,) = nodes(env, dram=TierConfig(600.0, evict_to="nvme", **marks),
                   nvme=TierConfig(600.0, 50.0, 100.0, evict_to="remote", **marks), remote=REMOTE)
    streams = [Stream(None, 0) for _ in range(8)]
    for number, stream in enumerate(streams):
        env.run(until=100.0 * (number + 1))
        store(one, "dram", stream, 2)
        one.host.overflow(env.now)
        for earlier in streams[:number + 1]:  # what moves can be read meanwhile
            assert sum(cover(one.host.tiers, earlier, 100, 0, SIZE)) == 2
    env.run()
    where = [[sum(cover([tier], stream, 100, 0, SIZE)) for tier in one.host.tiers] for stream in streams]
    assert all(sum(blocks) == 2 for blocks in where)
    assert where[0] == [0, 0, 2]
    assert where[-1] == [2, 0, 0]
    depth = [blocks.index(2) for blocks in where]
    assert depth == sorted(depth, reverse=True)
    assert set(depth) == {0, 1, 2}
    assert one.host.demoted == len(one.sink.rows)
    assert {(row["kind"], row["source"], row["target"], row["replica"]) for row in one.sink.rows} == {
        ("demote", "dram", "nvme", -1), ("demote", "nvme", "remote", -1)}
    for index in range(len(TIERS)):
        assert one.host.tiers[index].used == sum(blocks[index] for blocks in where)


def test_from_storage_to_the_network_takes_the_slower_way_and_a_piece_of_the_faster() -> None:
    env = simpy.Environment()
    (one,) = nodes(env, nvme=TierConfig(1000.0, 50.0, 100.0, evict_to="remote", low_fraction=0.0, high_fraction=0.0),
                   remote=REMOTE)
    store(one, "nvme", Stream(None, 0), 5)
    one.host.overflow(0.0)
    assert one.host.links[2].out.wait_s(0.0, BACKGROUND) > 0.0
    env.run()
    (row,) = one.sink.rows
    assert row["end_s"] == pytest.approx(500 / 100.0 + 100 / 500.0)
    assert one.host.links[1].into.moved_bytes == one.host.links[2].out.moved_bytes == 500.0
