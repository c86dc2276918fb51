"""A turn inside a replica, from the moment it is ready to its last token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.memory.kv_cache import Sequence
from sim.records import TIERS
from workloads.trajectory import Stream, Turn

if TYPE_CHECKING:
    from sim.engine.pause import Pause
    from sim.engine.session import Session
    from sim.engine.transfers import Transfer


#: What a turn finds below HBM that finds nothing there.
NO_HITS = (0,) * len(TIERS)
#: Stands for the block table of a turn that holds none.
NO_SEQUENCE = Sequence(Stream(), 0, 0)


class Job:
    """Running state of one turn.

    `position` counts the tokens whose KV exists, `target` those that must exist before the next output token;
    `generated` counts output tokens. The first output token comes with the last prompt token's step, every further
    one with a decode step, so the last output token's KV is never written.
    """

    __slots__ = (
        "admitted_s",
        "blocked_mark_s",
        "cancelled",
        "ceiling",
        "finish_step",
        "first_s",
        "generated",
        "held_s",
        "hit_below",
        "hit_hbm",
        "hit_tokens",
        "interference_mark_s",
        "interference_s",
        "joined_s",
        "joined_step",
        "loaded_s",
        "lost_before_s",
        "lost_s",
        "pause",
        "position",
        "preempted_s",
        "preemptions",
        "promised",
        "queue_blocks_s",
        "ready_s",
        "recomputed",
        "replica",
        "sequence",
        "session",
        "start_s",
        "state",
        "target",
        "tool",
        "transfer",
        "turn",
    )

    WAITING: Final = 0
    JOINING: Final = 1
    LOADING: Final = 2
    PREFILL: Final = 3
    HELD: Final = 4
    DECODE: Final = 5
    ENDED: Final = 6

    #: Steps its batch, seconds heads of the queue, and seconds prompt chunks had taken when it joined the one or other.
    joined_step: int
    blocked_mark_s: float
    interference_mark_s: float

    def __init__(self, session: Session, turn: Turn, tool: str, ready_s: float, pause: Pause | None) -> None:
        self.session = session
        self.turn = turn
        self.tool = tool
        self.ready_s = ready_s
        #: The pause this turn ends, whose blocks stay pinned until it is admitted.
        self.pause = pause
        #: Its block table, from admission to its end.
        self.sequence: Sequence = NO_SEQUENCE
        self.cancelled = False
        self.target = turn.prompt_tokens
        self.replica = self.finish_step = -1
        #: `promised`: block index up to which admission has promised blocks to it.
        self.state = self.position = self.generated = self.preemptions = self.promised = 0
        #: Prompt tokens found: in all, in HBM, and in each tier below it.
        self.hit_tokens = self.hit_hbm = self.ceiling = self.recomputed = 0
        self.hit_below = NO_HITS
        #: -1 until it happens: admitted, loaded from a lower tier, first chunk scheduled, first token out, preempted.
        self.admitted_s = self.loaded_s = self.start_s = self.first_s = self.preempted_s = -1.0
        #: `joined_s`, `held_s`: seconds it waited for a prefetch before it was queued, and for a pipelined reload after
        #: its prefill.
        self.queue_blocks_s = self.interference_s = self.lost_s = self.lost_before_s = self.joined_s = self.held_s = 0.0
        self.transfer: Transfer | None = None
