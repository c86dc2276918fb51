"""What a retention policy sees at a pause, what it may answer, and the options all of them share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from sim.policies.base import PolicyConfig
from sim.policies.prediction import Learned, Point, Prediction, Wait
from sim.units import Fraction

Action = Literal["keep", "release", "drop", "offload"]
TierName = Literal["dram", "nvme", "remote"]
Sees = Literal["nothing", "room", "costs"]


class Decision(NamedTuple):
    """What becomes of a paused context."""

    action: Action
    tier: TierName = "dram"
    """Where to, if it is offloaded."""
    ttl_s: float = math.inf
    """A kept context is released after so many seconds."""


KEEP, RELEASE, DROP = Decision("keep"), Decision("release"), Decision("drop")
#: By the tier it goes to.
OFFLOAD: dict[TierName, Decision] = {"dram": Decision("offload", "dram"), "nvme": Decision("offload", "nvme"),
                                     "remote": Decision("offload", "remote")}


class TierView(NamedTuple):
    """A tier below HBM, as seen when a pause begins."""

    free_bytes: float
    """Room, counting what its own eviction could free."""
    out_s: float
    """Time to move the private bytes there, with the queues as they are now."""
    back_s: float
    """Time to bring them back, likewise."""


@dataclass(slots=True)
class PauseView:
    """A pause, as a policy sees it. Read-only.

    Attributes
    ----------
    tool
        What the trajectory waits for.
    wait
        The predictor's distribution of the wait.
    private_tokens, private_bytes
        Context that no other turn or trajectory uses, and the bytes of HBM it takes over all GPUs of the replica: what
        dropping it frees.
    moved_bytes
        Bytes of a copy of it: without what is empty in its buffer, if it lies in one.
    context_tokens, context_bytes
        The whole context.
    batch_bytes
        Contexts of the turns that are running on the replica.
    recompute_s
        Time to compute the private tokens again on an idle replica.
    pool_bytes, free_fraction
        The pool, and the share of it that is free or dormant.
    waiting, blocked_share
        Turns queued; share of the last minutes during which the head of the queue lacked blocks.
    tiers
        The tiers that there are, by name.
    """

    tool: str
    wait: Wait
    private_tokens: int
    private_bytes: float
    moved_bytes: float
    context_tokens: int
    context_bytes: float
    batch_bytes: float
    recompute_s: float
    pool_bytes: float
    free_fraction: float
    waiting: int
    blocked_share: float
    tiers: dict[str, TierView]

    def room_in(self, tier: str) -> bool:
        """Return whether a copy of the private context fits in `tier`."""
        view = self.tiers.get(tier)
        return view is not None and self.moved_bytes <= view.free_bytes

    def back_s(self) -> float:
        """Return the shortest time to have the context again once it is gone: reloaded from DRAM or recomputed."""
        return min(self.recompute_s, self.tiers["dram"].back_s) if self.room_in("dram") else self.recompute_s


#: Stands for the view of a policy that looks at nothing.
UNSEEN = PauseView("", Point(0.0), 0, 0.0, 0.0, 0, 0.0, 0.0, 0.0, 1.0, 1.0, 0, 0.0, {})


class Prefetch(PolicyConfig):
    """Bring an offloaded context back before its trajectory returns."""

    quantile: float = Field(0.1, gt=0, lt=1)
    """The copy starts when so large a share of waits of that length would be over."""
    only_above_free: Fraction = 0.1
    """Only while at least this share of the pool is free or dormant."""


def _prefetch(value: Any) -> Any:
    """Let `true` stand for the defaults and `false` for none."""
    return {} if value is True else None if value is False else value


class RetentionConfig(PolicyConfig):
    """Options common to every retention policy."""

    predictor: Prediction = Learned()
    """How the length of a wait is predicted."""
    prefetch: Annotated[Prefetch | None, BeforeValidator(_prefetch)] = None
    """Bring offloaded contexts back ahead of time; none unless given."""
    reload: Literal["blocking", "pipelined"] = "blocking"
    """A turn waits for its reload before it computes, or computes its new tokens while the copy runs."""
    #: What the decision depends on: nothing; the context, its wait and the room in the tiers; also the load, and what
    #: it takes to move the context or to compute it. The engine spares itself the rest, which is NaN or 0 in the view.
    sees: ClassVar[Sees] = "costs"

    def targets(self) -> tuple[TierName, ...]:
        """Return the tiers to which a decision may send a context, from the top; none unless a policy says so."""
        return ()
