"""What lies below a node's HBM: host memory and local storage, shared by the node's replicas."""

from __future__ import annotations

from dataclasses import dataclass

import simpy

from sim.memory.links import OFFLOAD, Bus, Link, Move
from sim.memory.tiers import Entry, Tier

#: Order in which a block is looked for.
TIER_NAMES = ("dram", "nvme")


@dataclass(frozen=True, slots=True)
class HostConfig:
    """Sizes and rates of one node below HBM.

    Attributes
    ----------
    dram_bytes, nvme_bytes
        Capacities; 0 for no such tier.
    dram_Bps
        Bandwidth of host memory over all copies; 0 for no limit.
    nvme_write_Bps, nvme_read_Bps
        Rates of local storage.
    low_fraction, high_fraction
        Watermarks of DRAM: above the second, the contexts used longest ago move to NVMe until the first is reached.
    spills
        Whether DRAM evicts to NVMe.
    direct
        NVMe copies go to the GPU directly (GPUDirect Storage) instead of through host memory.
    exclusive
        A context that has come back from a tier is not kept there.
    piece_bytes
        A copy through host memory goes piece by piece, so it takes the slower hop and one piece of the faster.
    """

    dram_bytes: float = 0.0
    nvme_bytes: float = 0.0
    dram_Bps: float = 0.0
    nvme_write_Bps: float = 0.0
    nvme_read_Bps: float = 0.0
    nvme_latency_s: float = 1e-4
    low_fraction: float = 0.9
    high_fraction: float = 0.95
    spills: bool = False
    direct: bool = False
    exclusive: bool = False
    piece_bytes: float = 8 * 2**20


class Host:
    """The tiers of one node.

    Parameters
    ----------
    block_bytes
        Bytes of a block over all GPUs of a replica.
    """

    def __init__(self, env: simpy.Environment, config: HostConfig, block_bytes: int) -> None:
        self.env = env
        self.config = config
        self.block_bytes = block_bytes
        self.dram = Tier(config.dram_bytes, block_bytes)
        self.nvme = Tier(config.nvme_bytes, block_bytes)
        self.tiers = (self.dram, self.nvme)
        self.bus = Bus(config.dram_Bps) if config.dram_Bps > 0 else None
        self.disk: Link | None = None
        if config.nvme_bytes > 0:
            self.disk = Link(env, config.nvme_write_Bps, config.nvme_read_Bps, config.nvme_latency_s)
        #: Blocks on their way from DRAM to NVMe; contexts that went there.
        self.spilling = 0
        self.spilled = 0

    @property
    def empty(self) -> bool:
        """Whether no tier holds anything."""
        return not self.dram.entries and not self.nvme.entries

    def tier(self, name: str) -> Tier:
        """Return a tier by its name."""
        return self.tiers[TIER_NAMES.index(name)]

    def spill(self, now_s: float) -> None:
        """Move contexts from DRAM to NVMe if DRAM is fuller than its high watermark."""
        config, dram = self.config, self.dram
        if not config.spills or self.disk is None:
            return
        if dram.used - self.spilling <= config.high_fraction * dram.capacity_blocks:
            return
        while dram.used - self.spilling > config.low_fraction * dram.capacity_blocks:
            entry = dram.oldest()
            if entry is None:
                return
            target = self.nvme.reserve(entry.stream, entry.first, entry.ready, now_s)
            if target is None:
                return
            dram.hold(entry.stream)
            blocks = entry.ready - entry.first
            self.spilling += blocks
            self.spilled += 1
            self.disk.out.submit(blocks * self.block_bytes, OFFLOAD, self._spilled, (entry, target, blocks))

    def _spilled(self, move: Move) -> None:
        info: tuple[Entry, Entry, int] = move.info
        entry, target, blocks = info
        self.spilling -= blocks
        now_s = self.env.now
        self.nvme.copied(target, entry.first + blocks, now_s)
        self.dram.release(entry, now_s)
        self.dram.forget(entry.stream, now_s)
