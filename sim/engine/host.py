"""A node's host memory, shared by its replicas."""

from __future__ import annotations

from sim.memory.tiers import Tier


class Host:
    """The tiers of one node below HBM.

    Parameters
    ----------
    dram_bytes
        Capacity of the DRAM tier; 0 for none.
    block_bytes
        Bytes of a block over all GPUs of a replica.
    """

    __slots__ = ("dram",)

    def __init__(self, dram_bytes: float, block_bytes: int) -> None:
        self.dram = Tier(dram_bytes, block_bytes)
