"""Ledgers of one replica: where its pool's byte-seconds and its GPU seconds went, and samples of its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.engine.latencies import Latencies
from sim.engine.spaces import SpaceMaps

if TYPE_CHECKING:
    from sim.engine.replica import Replica

class Accounts:
    """Integrals over time of what a replica's blocks and its GPUs are used for.

    The owner calls `advance` before anything changes; blocks are counted as they stood since the last call. Blocks of
    running turns are attributed to decoding and prefilling in proportion to the contexts of the turns in each phase.
    """

    MOST_SAMPLES = 512

    __slots__ = ("_admission", "_batch", "_interval_s", "_loading_since", "_pool", "_since_s", "_tree", "copy_s",
                 "decode_s", "latencies", "leaving", "left", "loading", "next_sample_s", "prefill_s", "prefilling",
                 "recompute_s", "replica", "reserved", "samples", "slots", "spaces", "used")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self._admission = replica.admission
        self._batch = replica.batch
        self._tree = replica.kv.tree
        self._pool = replica.kv.pool
        #: Blocks on their way out of HBM, and blocks that copies under way will fill: of these also the sum of the
        #: times since which they are.
        self.leaving = self.loading = 0
        self._loading_since = 0.0
        #: Block-seconds: neither free nor dormant, of them of running turns in prefill, and on their way out; promised.
        self.used = self.prefilling = self.left = self.reserved = 0.0
        #: Slot-seconds unused in the last blocks of decoding turns.
        self.slots = 0.0
        self.prefill_s = self.recompute_s = self.decode_s = self.copy_s = 0.0
        self.latencies = Latencies()
        self.samples: list[tuple[float | int, ...]] = []
        self.spaces = SpaceMaps(replica)
        self._since_s = 0.0
        self._interval_s = 1.0
        self.next_sample_s = 0.0

    def advance(self, now_s: float) -> None:
        """Book the time since the last call."""
        elapsed = now_s - self._since_s
        if elapsed <= 0.0:
            return
        self._since_s = now_s
        tree, pool, batch = self._tree, self._pool, self._batch
        used = pool.total - pool.free - tree.dormant
        self.used += used * elapsed
        self.slots += batch.slots * elapsed
        context = self._admission.prefill_context
        if context:
            busy = used - tree.kept - self.loading - batch.slots / pool.block_tokens
            self.prefilling += busy * elapsed * context / (context + batch.context)
        if self.leaving:
            self.left += min(self.leaving, tree.kept) * elapsed  # what a running turn has begun to use is no one's else
        if self._admission.reserved:
            self.reserved += min(self._admission.reserved, pool.free) * elapsed

    def load(self, blocks: int, now_s: float) -> None:
        """So many more blocks (fewer if negative) are being filled by copies under way."""
        self.loading += blocks
        self._loading_since += blocks * now_s

    def grown(self, blocks: int, elapsed_s: float) -> None:
        """`blocks` free blocks were taken one after another over the last `elapsed_s` seconds of decoding."""
        self.used += blocks * elapsed_s * 0.5

    def filled(self, tokens: int, elapsed_s: float) -> None:
        """`tokens` slots that were empty were filled one after another over the last `elapsed_s` seconds."""
        self.slots -= tokens * elapsed_s * 0.5

    def close(self, now_s: float) -> None:
        """Book what is left at the end of a run, the part of a step under way too, and take the last sample."""
        self.advance(now_s)
        prefill_s, decode_s = self.replica.under_way(now_s)
        self.prefill_s += prefill_s
        self.decode_s += decode_s
        if self.samples and self.samples[-1][0] == now_s:
            self.samples.pop()
        self.sample(now_s)

    def sample(self, now_s: float) -> None:
        """Record the state; samples thin out as the run grows longer."""
        self.samples.append(self._row(now_s))
        self.spaces.take(now_s)
        self.latencies.close_window(now_s)
        if len(self.samples) >= self.MOST_SAMPLES:
            self.samples = self.samples[1::2]
            self._interval_s *= 2.0
            self.latencies.halve()
        self.next_sample_s = (now_s // self._interval_s + 1.0) * self._interval_s

    def _row(self, now_s: float) -> tuple[float | int, ...]:
        """Return the sample in the order of `records.TIMELINE_COLUMNS`."""
        replica = self.replica
        tree, pool = replica.kv.tree, replica.kv.pool
        size = replica.pauses.block_bytes
        wasted, reused = tree.dormant_block_s(now_s)
        tail = self.slots / pool.block_tokens
        pinned = tree.kept_block_s(now_s)
        loading = self.loading * now_s - self._loading_since
        running = self.used - pinned - loading
        used = (running - self.prefilling - tail, self.prefilling, pinned - self.left, reused, wasted, tail,
                self.reserved, self.left + loading)
        free = pool.total * now_s - sum(used)
        gpu = (self.prefill_s, self.recompute_s, self.decode_s, self.copy_s)
        return (now_s, replica.number, *(value * size for value in used), free * size, *gpu, now_s - sum(gpu),
                pool.total - pool.free, tree.dormant, tree.kept, replica.batch.size, len(replica.admission.prefills),
                replica.admission.queue.count, replica.cluster.alive, *replica.pauses.transfers.sample(now_s),
                *replica.extent())
