"""How a replica's KV pool is divided: what `engine.allocator` stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.engine.buffers import BufferReplica
from sim.memory.allocators.buddy import BuddyAllocator
from sim.memory.allocators.contiguous import ContiguousAllocator
from sim.memory.allocators.growth import GrowthAllocator
from sim.memory.allocators.static import StaticAllocator
from sim.memory.buffer_cache import BufferCache
from sim.scenario.allocators import Buddy, Growth, Static

if TYPE_CHECKING:
    from sim.engine.replica import Replica
    from sim.scenario.deployment import Deployment


def buffer_cache(deployment: Deployment) -> BufferCache:
    """Return an empty pool with the contiguous allocator of a deployment."""
    chosen, state = deployment.allocator, deployment.state_slots
    total = deployment.pool_blocks
    allocator: ContiguousAllocator
    stall_s = 0.0
    if isinstance(chosen, Static):
        allocator = StaticAllocator(total, chosen.slots(0, state))
    elif isinstance(chosen, Growth):
        initial = chosen.initial if isinstance(chosen.initial, int) else None
        allocator = GrowthAllocator(total, chosen.factor, initial, chosen.fit)
        stall_s = chosen.malloc_stall
    elif isinstance(chosen, Buddy):
        allocator = BuddyAllocator(total, chosen.smallest)
    else:
        raise ValueError(f"not a contiguous allocator (got {chosen!r})")
    return BufferCache(allocator, state_slots=state, slot_copy_s=2.0 * deployment.block_bytes / deployment.hbm_Bps,
                       stall_s=stall_s)


def buffer_counts(replicas: Sequence[Replica]) -> dict[str, int]:
    """Return what contiguous buffers cost over a run; nothing where there are none."""
    caches = [replica.buffers for replica in replicas if isinstance(replica, BufferReplica)]
    if not caches:
        return {}
    return {"buffer_growths": sum(kv.growths for kv in caches), "buffer_forks": sum(kv.forks for kv in caches),
            "buffer_copied_tokens": sum(kv.copied for kv in caches), "driver_calls": sum(kv.calls for kv in caches)}
