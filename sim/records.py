"""What the engine emits, and nothing else: plain tuples with named columns.

The engine appends; metrics and reports read. Every column carries its unit in its name: `_s` seconds of simulated
time, `_bytes`, `_tokens`, `_blocks`, `_byte_s` byte-seconds. The tables here are the documentation of the Parquet
files of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

#: Causes that a turn's time (end_s - ready_s) is divided into; they sum to it exactly.
TURN_CAUSES = ("queue_blocks", "queue_budget", "reload", "prefill", "recompute", "interference", "decode", "preemption")

#: Uses that the pool's byte-seconds (pool bytes x time) are divided into; they sum to it exactly.
POOL_USES = ("decoding", "prefilling", "kept", "dormant_reused", "dormant_wasted", "tail_waste", "reserved",
             "in_flight", "free")

#: Uses that a replica's GPU time is divided into; they sum to the run's length exactly.
GPU_USES = ("prefill", "recompute", "decode", "copy_stall", "idle")

#: Tiers below HBM, and what they are called; their order is the one in which a block is looked for.
TIER_LABELS = {"dram": "host DRAM", "nvme": "NVMe", "remote": "remote memory"}
TIERS = tuple(TIER_LABELS)

#: Uses that a tier's byte-seconds (capacity x time) are divided into; they sum to it exactly.
TIER_USES = {"writing": "being written", "reused": "read later", "unread": "not read, or not yet", "free": "free"}

#: What one way of a link is busy with, in order of priority, and its idle time; they sum to the run's length exactly.
LINK_USES = {"reload": "reloads that turns wait for", "pipelined_reload": "reloads beside a prefill",
             "prefetch": "contexts fetched ahead of time", "offload": "contexts on their way out",
             "background": "write-back, and copies between tiers", "idle": "nothing"}

#: column -> (pyarrow type name, what it says)
TURN_COLUMNS: dict[str, tuple[str, str]] = {
    "trajectory": ("int64", "number of the trajectory"),
    "turn": ("int32", "index of the turn within the trajectory, from 0"),
    "branch": ("int32", "0 for the main line, else the branch or sub-agent"),
    "replica": ("int32", "replica that served it"),
    "first": ("bool", "a first turn of its trajectory (it waited for no other turn)"),
    "tool": ("string", "what the trajectory waited for before this turn"),
    "status": ("string", "finished, rejected, pruned or unfinished"),
    "ready_s": ("float64", "time at which the turn could have started (arrival, or return of the tool)"),
    "start_s": ("float64", "time at which its first prompt token was scheduled"),
    "first_token_s": ("float64", "time of the first output token"),
    "end_s": ("float64", "time of the last output token"),
    "prompt_tokens": ("int64", "prompt length"),
    "output_tokens": ("int64", "output length"),
    "hit_hbm_tokens": ("int64", "prompt tokens found in HBM"),
    **{f"hit_{tier}_tokens": ("int64", f"prompt tokens found in {name} and reloaded")
       for tier, name in TIER_LABELS.items()},
    "ceiling_tokens": ("int64", "prompt tokens an infinite cache would have held"),
    "recomputed_tokens": ("int64", "prompt tokens computed although some earlier turn had computed them"),
    "preemptions": ("int32", "times this turn was preempted"),
    **{f"{cause}_s": ("float64", f"time by cause: {cause}") for cause in TURN_CAUSES},
}

TRAJECTORY_COLUMNS: dict[str, tuple[str, str]] = {
    "trajectory": ("int64", "number of the trajectory"),
    "group": ("string", "sharing group (a repository, say)"),
    "source": ("string", "trace file it came from, if any"),
    "status": ("string", "finished, rejected or unfinished"),
    "start_s": ("float64", "time of arrival"),
    "end_s": ("float64", "time of its last turn's end"),
    "turns": ("int32", "turns finished"),
    "prompt_tokens": ("int64", "sum over turns"),
    "output_tokens": ("int64", "sum over turns"),
    "hit_tokens": ("int64", "prompt tokens found in any tier, sum over turns"),
    "wait_s": ("float64", "time spent in pauses during which no turn of the trajectory was in the system"),
}

PAUSE_COLUMNS: dict[str, tuple[str, str]] = {
    "trajectory": ("int64", "number of the trajectory"),
    "turn": ("int32", "index of the turn that ended"),
    "replica": ("int32", "replica that held it"),
    "tool": ("string", "what it waits for"),
    "start_s": ("float64", "end of the turn"),
    "end_s": ("float64", "return"),
    "predicted_s": ("float64", "expected wait when the decision was taken (nan if none was asked for)"),
    "action": ("string", "keep, release, drop or offload"),
    "private_tokens": ("int64", "tokens of its context that no one else used"),
    "private_bytes": ("int64", "their bytes over all GPUs of the replica"),
    "hold_hbm_byte_s": ("float64", "byte-seconds held in HBM during the pause"),
    **{f"hold_{tier}_byte_s": ("float64", f"byte-seconds held in {name} during the pause")
       for tier, name in TIER_LABELS.items()},
    "forced": ("bool", "a kept pause that was demoted because memory ran short"),
}

MOVE_COLUMNS: dict[str, tuple[str, str]] = {
    "replica": ("int32", "replica whose link carried it; -1 between tiers of a node"),
    "trajectory": ("int64", "trajectory it belongs to"),
    "kind": ("string", "offload, write_back, reload, prefetch or demote"),
    "source": ("string", "tier it left"),
    "target": ("string", "tier it reached"),
    "bytes": ("int64", "bytes moved over all GPUs of the replica"),
    "queued_s": ("float64", "time at which it was asked for"),
    "start_s": ("float64", "time at which the copy began"),
    "end_s": ("float64", "time at which it ended or was cancelled"),
    "cancelled": ("bool", "cancelled before its end"),
}

#: Cumulative columns end in `_byte_s` or `_cum_s`; the others are values at the instant.
TIMELINE_COLUMNS: dict[str, tuple[str, str]] = {
    "time_s": ("float64", "instant of the sample"),
    "replica": ("int32", "replica"),
    **{f"{use}_byte_s": ("float64", f"pool byte-seconds so far: {use}") for use in POOL_USES},
    **{f"gpu_{use}_cum_s": ("float64", f"GPU time so far: {use}") for use in GPU_USES},
    "used_blocks": ("int64", "blocks not free"),
    "dormant_blocks": ("int64", "blocks in the prefix cache that nobody uses"),
    "kept_blocks": ("int64", "blocks pinned for a paused trajectory"),
    "decoding": ("int32", "turns decoding"),
    "prefilling": ("int32", "turns in prefill"),
    "waiting": ("int32", "turns queued"),
    "alive": ("int32", "trajectories alive, over all replicas"),
    **{f"{tier}_bytes": ("int64", f"bytes held in {name} by this replica's node")
       for tier, name in TIER_LABELS.items()},
    "link_out_cum_s": ("float64", "time so far the link towards the host was busy"),
    "link_in_cum_s": ("float64", "time so far the link from the host was busy"),
    **{f"host_{way}_{use}_cum_s": ("float64", f"time so far the link {toward} the host served {says}")
       for way, toward in (("out", "towards"), ("in", "from")) for use, says in LINK_USES.items()},
    **{f"{tier}_{way}_{use}_cum_s": ("float64", f"time so far the way {toward} {name} served {says}; once a node")
       for tier, name in TIER_LABELS.items() if tier != "dram"
       for way, toward in (("out", "to"), ("in", "from")) for use, says in LINK_USES.items()},
    **{f"{tier}_{use}_byte_s": ("float64", f"byte-seconds of {name} so far: {says}; once a node")
       for tier, name in TIER_LABELS.items() for use, says in TIER_USES.items()},
    "useful_tokens": ("int64", "token slots of the pool that hold a token (with blocks, only the last ones of decoding "
                               "turns are looked into)"),
    "allocated_tokens": ("int64", "token slots that belong to a sequence or to the prefix cache"),
    "largest_hole_tokens": ("int64", "free token slots that lie together (with blocks, all free ones)"),
}

SPACE_COLUMNS: dict[str, tuple[str, str]] = {
    "time_s": ("float64", "instant of the picture, at most 64 in a run"),
    "replica": ("int32", "replica"),
    "start": ("int64", "first token slot of the segment"),
    "end": ("int64", "slot behind its last one"),
    "use": ("string", "useful, reserved (taken but empty) or hole; blocks go by count, as their places do not matter"),
    "trajectory": ("int64", "whose buffer it is; -1 for a hole and for blocks"),
}

TABLES: Mapping[str, dict[str, tuple[str, str]]] = {
    "turns": TURN_COLUMNS, "trajectories": TRAJECTORY_COLUMNS, "pauses": PAUSE_COLUMNS, "moves": MOVE_COLUMNS,
    "timeline": TIMELINE_COLUMNS, "address_space": SPACE_COLUMNS,
}


class Sink(Protocol):
    """Where records go. A record is a tuple in the order of the table's columns."""

    def turn(self, record: tuple[Any, ...]) -> None:
        """Take a row of TURN_COLUMNS."""

    def trajectory(self, record: tuple[Any, ...]) -> None:
        """Take a row of TRAJECTORY_COLUMNS."""

    def pause(self, record: tuple[Any, ...]) -> None:
        """Take a row of PAUSE_COLUMNS."""

    def move(self, record: tuple[Any, ...]) -> None:
        """Take a row of MOVE_COLUMNS."""

    def sample(self, record: tuple[Any, ...]) -> None:
        """Take a row of TIMELINE_COLUMNS."""


@dataclass(slots=True)
class RunTotals:
    """What a run adds up besides its records.

    `itl_windows` holds, for each window between two samples, its end and a histogram {bucket: (weight, seconds)} of
    inter-token latencies; `step_windows` the same of step times. Bucket i covers [base**i, base**(i+1)) seconds with
    `base` = BUCKET_BASE.
    """

    end_s: float = 0.0
    replicas: int = 0
    pool_bytes: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    itl_windows: list[tuple[float, dict[int, tuple[float, float]]]] = field(default_factory=list)
    step_windows: list[tuple[float, dict[int, tuple[float, float]]]] = field(default_factory=list)
    bound_s: dict[str, float] = field(default_factory=dict)
    breakers: dict[str, int] = field(default_factory=dict)
    alive_integral_s: float = 0.0
    alive_max: int = 0
    events: int = 0
    steps: int = 0
    prediction_error: dict[str, float] = field(default_factory=dict)
    band: dict[str, float] = field(default_factory=dict)
    #: Rows of SPACE_COLUMNS.
    spaces: list[tuple[Any, ...]] = field(default_factory=list)
    #: Token slots of a replica's pool.
    pool_tokens: int = 0
    #: Tokens into which a request may be cut: a block; 0 where it needs one piece.
    piece_tokens: int = 0


#: Ratio between neighbouring histogram buckets: percentiles read from a histogram are within 1 %.
BUCKET_BASE = 1.01
