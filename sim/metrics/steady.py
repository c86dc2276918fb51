"""Has the system settled? In words that say what a closed load can and cannot show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from sim.metrics.binds import RESOURCES

#: The words that `steady` uses, worst first.
WORST = ("NOT steady", "too short", "too short to tell", "steady, at its limit", "steady")
#: A closed load is at its limit when turns wait, for room or for others, for more than this share of their time.
WAITING = 0.2
#: Beyond this share trajectories last long because they wait.
SWAMPED = 0.5
_WAITS = ("queue_blocks", "queue_budget", "reload", "interference", "preemption")


class Steady(NamedTuple):
    """A word or two, a sentence without a full stop, and whether that is a warning."""

    word: str
    text: str
    warns: bool


def steady(summary: Mapping[str, Any]) -> Steady:
    """Return whether waits have settled, and what an answer means.

    Where a fixed number of agents is always alive the queue cannot grow beyond them: such a load is steady even when
    it is far more than the system serves well. What shows that it is too much is the time that turns wait, so that
    is said.
    """
    stable, closed = summary["checks"]["stable"], summary["checks"].get("closed_load", False)
    waiting = _waiting(summary["ledger"]["turn_s"])
    swamped = not closed and stable is False and waiting > SWAMPED  # no length of the run would help
    if not swamped and (short := too_short(summary)):
        return Steady("too short", short, True)
    if stable is None:
        return Steady("too short to tell", "the measured span is too short to say whether the queue grows", True)
    if not stable:
        why = ("agents are still filling the system, or turns pile up; run longer or give a longer warmup" if closed
               else "more arrives than is served, so waits grow for as long as the run lasts")
        return Steady("NOT steady", f"the queue or the number of trajectories alive still grows: {why}", True)
    resource = summary["binds"]["resource"]
    used = f"turns wait, for room or for each other, for {waiting:.0%} of their time"
    if closed and waiting > WAITING:
        short = "" if resource in ("none", None) else f", and what runs short is {RESOURCES.get(resource, resource)}"
        return Steady("steady, at its limit", "a fixed number of agents cannot make the queue grow without end, but "
                      f"{used}{short}; fewer agents would each be served sooner", False)
    return Steady("steady", f"neither the queue nor the number of trajectories alive grows; {used}", False)


def too_short_of(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a line on those of several runs that are shorter than their trajectories; empty where none is."""
    short = {name: said for name, summary in summaries.items() if (said := too_short(summary))}
    if not short:
        return ""
    name, said = next(iter(short.items()))
    more = f" (and {len(short) - 1} more)" if len(short) > 1 else ""
    return f"too short: {name}{more}: {said}"


def too_short(summary: Mapping[str, Any]) -> str:
    """Return why a run is too short for its trajectories, and what to set; empty where it is long enough."""
    from sim.metrics.wording import seconds

    if not summary["checks"].get("shorter_than_trajectories"):
        return ""
    checks, waiting = summary["checks"], _waiting(summary["ledger"]["turn_s"])
    median, span = checks["trajectory_median_s"], seconds(checks["span_s"])
    enough = "a longer duration" if median is None else f"duration to {_hours(checks['warmup_s'] + 2 * median)} or more"
    seen = (f"too few of the trajectories end within the {span} measured" if median is None else
            f"half of the trajectories take longer than {seconds(median)}, and {span} are measured")
    ramp = ", and workload.arrivals.closed.ramp where all begin at once" if checks.get("closed_load") else ""
    if waiting > SWAMPED:
        return f"{seen}, because turns wait for {waiting:.0%} of their time; ask for less, or set {enough}"
    return f"{seen}, so contexts are young and a load seems to fit that later does not; set {enough}{ramp}"


def _hours(time_s: float) -> str:
    """Return a time as one writes it: whole minutes below an hour, whole hours above."""
    return f"{math.ceil(time_s / 60)} min" if time_s <= 3600 else f"{math.ceil(time_s / 3600)} h"


def _waiting(ledger: Mapping[str, float]) -> float:
    whole = sum(ledger.values())
    return sum(ledger.get(name, 0.0) for name in _WAITS) / whole if whole else 0.0
