"""What a summary's counts are called, each with what is counted."""

from __future__ import annotations

from collections.abc import Mapping

#: Count of summary.json -> what it counts; said as "12 blocks evicted ...".
COUNTED = {
    "evictions": "blocks evicted from the HBM cache", "forced_evictions": "pinned contexts given up for want of blocks",
    "preemptions": "running turns preempted", "rejections": "turns rejected as too long for the pool",
    "over_context_limit": "turns longer than the model's context", "deadlocks_broken": "deadlocks broken",
    "cow_copies": "blocks copied where contexts part", "offload_failures": "offloads without room",
    "dram_evictions": "blocks evicted from host DRAM", "nvme_evictions": "blocks evicted from NVMe",
    "remote_evictions": "blocks evicted from remote memory", "demotions": "contexts moved to a tier further down",
    "written_back_blocks": "blocks written back", "evicted_unwritten_blocks": "blocks evicted before they were written",
    "evicted_written_blocks": "blocks evicted after they were written",
    "write_backs_refused": "write-backs without room", "pins_expired": "pins expired",
    "prefetches": "contexts fetched ahead of time", "prefetches_cancelled": "fetches ahead of time cancelled",
    "prefetches_skipped": "fetches ahead of time skipped", "buffer_growths": "buffers that grew",
    "buffer_forks": "buffers copied at a branch", "buffer_copied_tokens": "tokens copied between buffers",
    "driver_calls": "calls to the driver for memory", "trace_errors_skipped": "rows of the trace skipped as wrong",
}
#: How the counts begin that belong to `beyond_tables`: look-ups beyond a measured table, and all look-ups in it.
OUTSIDE, ASKED = "outside_measured_", "lookups_measured_"


def named(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts by what they count, without those of measured tables (see `beyond_tables`)."""
    return {COUNTED.get(name, name.replace("_", " ")): count for name, count in counts.items()
            if not name.startswith((OUTSIDE, ASKED))}


def beyond_tables(counts: Mapping[str, int]) -> dict[str, tuple[int, int | None]]:
    """Return, for each measured table that was left, look-ups beyond what was measured, and all look-ups in it.

    A look-up is a step, or a stretch of decode steps whose times are worked out together. The second is None where an
    earlier version has not counted it.
    """
    return {name.removeprefix(OUTSIDE).replace("_", " "): (count, counts.get(ASKED + name.removeprefix(OUTSIDE)))
            for name, count in counts.items() if name.startswith(OUTSIDE) and count}
