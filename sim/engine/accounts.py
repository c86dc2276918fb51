"""Ledgers of one replica: where its pool's byte-seconds and its GPU seconds went, and samples of its state."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sim.engine.spaces import SpaceMaps
from sim.records import BUCKET_BASE

if TYPE_CHECKING:
    from sim.engine.replica import Replica

_LOG_BASE = math.log(BUCKET_BASE)

#: bucket -> token gaps, their seconds, steps, their seconds
Histogram = dict[int, tuple[float, float, float, float]]


class Latencies:
    """Histograms of step times and of the gaps between a stream's tokens, with buckets in constant ratio.

    Every step adds its length once, and once more for each decoding stream. Windows can be cut apart afterwards.
    """

    __slots__ = ("current", "windows")

    def __init__(self) -> None:
        self.current: Histogram = {}
        self.windows: list[tuple[float, Histogram]] = []

    def add(self, seconds: float, steps: float, streams: float) -> None:
        """Add `steps` steps of `seconds` each, seen by `streams` streams; a gap that is no step has `steps` 0."""
        if seconds <= 0.0:
            return
        gaps = steps * streams if steps else streams
        bucket = int(math.log(seconds) // _LOG_BASE)
        old = self.current.get(bucket)
        if old is None:
            self.current[bucket] = (gaps, gaps * seconds, steps, steps * seconds)
        else:
            self.current[bucket] = (old[0] + gaps, old[1] + gaps * seconds, old[2] + steps, old[3] + steps * seconds)

    def add_rising(self, first_s: float, last_s: float, steps: int, streams: int) -> None:
        """Add `steps` steps whose lengths rise evenly from `first_s` to `last_s`."""
        if steps == 1 or last_s < first_s * 1.0005 or int(math.log(first_s) // _LOG_BASE) == int(
                math.log(last_s) // _LOG_BASE):
            self.add((first_s + last_s) * 0.5, steps, streams)
            return
        rise = (last_s - first_s) / (steps - 1)
        done = 0
        while done < steps:
            begin = first_s + rise * done
            top = BUCKET_BASE ** (int(math.log(begin) // _LOG_BASE) + 1)
            count = min(steps - done, max(1, math.ceil((top - begin) / rise)))
            self.add(begin + rise * (count - 1) * 0.5, count, streams)
            done += count

    def close_window(self, now_s: float) -> None:
        """End the current window at `now_s`."""
        self.windows.append((now_s, self.current))
        self.current = {}

    def halve(self) -> None:
        """Join neighbouring windows, so that a long run keeps a bounded number of them."""
        pairs = [self.windows[index:index + 2] for index in range(0, len(self.windows), 2)]
        self.windows = [(pair[-1][0], merged(histogram for _, histogram in pair)) for pair in pairs]

    def token_gaps(self) -> list[tuple[float, dict[int, tuple[float, float]]]]:
        """Return the windows of gaps between tokens: (end, {bucket: (weight, seconds)})."""
        return [(end, {b: (v[0], v[1]) for b, v in histogram.items() if v[0]}) for end, histogram in self.windows]

    def step_times(self) -> list[tuple[float, dict[int, tuple[float, float]]]]:
        """Return the windows of step times: (end, {bucket: (weight, seconds)})."""
        return [(end, {b: (v[2], v[3]) for b, v in histogram.items() if v[2]}) for end, histogram in self.windows]


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """Return the sum of some histograms."""
    total: Histogram = {}
    for histogram in histograms:
        for bucket, new in histogram.items():
            old = total.get(bucket, (0.0, 0.0, 0.0, 0.0))
            total[bucket] = (old[0] + new[0], old[1] + new[1], old[2] + new[2], old[3] + new[3])
    return total


class Accounts:
    """Integrals over time of what a replica's blocks and its GPUs are used for.

    The owner calls `advance` before anything changes; blocks are counted as they stood since the last call. Blocks of
    running turns are attributed to decoding and prefilling in proportion to the contexts of the turns in each phase.
    """

    MOST_SAMPLES = 512

    __slots__ = ("_admission", "_batch", "_interval_s", "_pool", "_since_s", "_tree", "copy_s", "decode_s",
                 "decoding", "in_flight", "kept", "latencies", "leaving", "loading", "next_sample_s", "prefill_s",
                 "prefilling", "recompute_s", "replica", "reserved", "samples", "spaces", "tail")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self._admission = replica.admission
        self._batch = replica.batch
        self._tree = replica.kv.tree
        self._pool = replica.kv.pool
        #: Blocks on their way out of HBM, and blocks that copies under way will fill.
        self.leaving = self.loading = 0
        self.decoding = self.prefilling = self.kept = self.tail = self.reserved = self.in_flight = 0.0
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
        if elapsed > 0.0:
            self._since_s = now_s
            tree, pool, batch = self._tree, self._pool, self._batch
            kept = tree.kept
            running = pool.total - pool.free - tree.dormant - kept
            if self.leaving or self.loading:
                leaving, loading = min(self.leaving, kept), min(self.loading, running)
                kept -= leaving
                running -= loading
                self.in_flight += (leaving + loading) * elapsed
            if kept:
                self.kept += kept * elapsed
            if running > 0:
                tail = batch.slots / pool.block_tokens
                if tail > running:
                    tail = float(running)
                self.tail += tail * elapsed
                busy = (running - tail) * elapsed
                context = self._admission.prefill_context
                if context:
                    share = context / (context + batch.context)
                    self.prefilling += busy * share
                    busy -= busy * share
                self.decoding += busy
            if self._admission.reserved:
                self.reserved += min(self._admission.reserved, pool.free) * elapsed

    def grown(self, blocks: int, elapsed_s: float) -> None:
        """`blocks` free blocks were taken one after another over the last `elapsed_s` seconds of decoding."""
        self.decoding += blocks * elapsed_s * 0.5

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
        tree, pool, link = replica.kv.tree, replica.kv.pool, replica.pauses.transfers.link
        size = replica.pauses.block_bytes
        wasted, reused = tree.dormant_block_s(now_s)
        used = (self.decoding, self.prefilling, self.kept, reused, wasted, self.tail, self.reserved, self.in_flight)
        free = pool.total * now_s - sum(used)
        gpu = (self.prefill_s, self.recompute_s, self.decode_s, self.copy_s)
        link.out.settle()
        link.into.settle()
        return (now_s, replica.number, *(value * size for value in used), free * size, *gpu, now_s - sum(gpu),
                pool.total - pool.free, tree.dormant, tree.kept, replica.batch.size, len(replica.admission.prefills),
                replica.admission.queue.count, replica.cluster.alive, replica.pauses.host.dram.used * size,
                replica.pauses.host.nvme.used * size, link.out.busy_s, link.into.busy_s,
                *replica.extent())
