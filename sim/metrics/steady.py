"""Has the system settled? In words that say what a closed load can and cannot show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

#: A closed load is at its limit when turns queue for more than this share of their time,
QUEUED = 0.2
#: or when GPUs are busy for more than this share of theirs.
BUSY = 0.9


class Steady(NamedTuple):
    """A word or two, a sentence without a full stop, and whether that is a warning."""

    word: str
    text: str
    warns: bool


def steady(summary: Mapping[str, Any]) -> Steady:
    """Return whether waits have settled, and what an answer means.

    Where a fixed number of agents is always alive the queue cannot grow beyond them: such a load is steady even when
    it is far more than the system serves well. What shows that it is too much is time in queues, so that is said.
    """
    stable, closed = summary["checks"]["stable"], summary["checks"].get("closed_load", False)
    if stable is None:
        return Steady("too short to tell", "the measured span is too short to say whether the queue grows", True)
    if not stable:
        why = ("agents are still filling the system, or turns pile up; run longer or give a longer warmup" if closed
               else "more arrives than is served, so waits grow for as long as the run lasts")
        return Steady("NOT steady", f"the queue or the number of trajectories alive still grows: {why}", True)
    queued, busy = _queued(summary["ledger"]["turn_s"]), _busy(summary["ledger"]["gpu_s"])
    used = f"turns queue for {queued:.0%} of their time and GPUs are busy {busy:.0%}"
    if closed and (queued > QUEUED or busy > BUSY):
        return Steady("steady, at its limit", "a fixed number of agents cannot make the queue grow without end, but "
                      f"{used}: fewer agents would each be served sooner", False)
    return Steady("steady", f"neither the queue nor the number of trajectories alive grows; {used}", False)


def _queued(ledger: Mapping[str, float]) -> float:
    whole = sum(ledger.values())
    queued = sum(ledger.get(name, 0.0) for name in ("queue_blocks", "queue_budget", "preemption"))
    return queued / whole if whole else 0.0


def _busy(ledger: Mapping[str, float]) -> float:
    whole = sum(ledger.values())
    return 1.0 - ledger.get("idle", 0.0) / whole if whole else 0.0
