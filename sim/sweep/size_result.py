"""What a capacity search gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sim.sweep.store import plain


@dataclass(frozen=True, slots=True)
class SizeResult:
    """The outcome of `sim.size`.

    Attributes
    ----------
    find, field, unit
        What was looked for, the scenario's field behind it, and the unit of the values.
    answer
        The largest load tried that meets the objectives (the fewest replicas that do); None when none did.
    low, high
        Its interval: the largest load that surely meets them (0 when none does), and the smallest that surely misses
        them (None when none did). For replicas: the fewest that may do, and the fewest that surely do.
    guess
        Where the closed forms said to begin.
    binds, binds_by, why
        The resource that binds: the one whose relief gives most, beyond chance (``relief``); None, and why, where no
        relief does (``unclear``); where none was measured, the one the ledgers show just beyond the answer, and what
        they say (``ledger``).
    missed_beyond
        Which objective is missed just beyond the answer, with figures.
    reliefs
        For each resource, and what to `buy` for it: what 25 % more of it makes of the answer (`answer`, `low`, `high`,
        `gain`, `change`), and whether that is beyond chance (`clear`: a better load surely meets the objectives, or
        what is missed just beyond the answer is surely better there; `effects` has the paired differences).
    candidates
        The loads tried for the answer, in order, each with its verdict (``meets``, ``misses``, ``unsure``), its
        replications, and each objective with mean and interval.
    simulations, simulations_in_all
        Runs for the answer; with those for the reliefs.
    objectives, summary
        At the answer: each objective with its interval; the summary of the first replication.
    """

    find: str
    field: str
    unit: str
    answer: float | None
    low: float | None
    high: float | None
    guess: float
    binds: str | None
    binds_by: str
    why: str
    missed_beyond: str
    reliefs: list[dict[str, Any]]
    candidates: list[dict[str, Any]]
    simulations: int
    simulations_in_all: int
    seed: int
    objectives: list[dict[str, Any]]
    summary: dict[str, Any] | None

    def data(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        names = [name for name in self.__dataclass_fields__ if name != "summary"]
        made: dict[str, Any] = plain({name: getattr(self, name) for name in names})
        made["shorter_than_trajectories"] = (None if self.summary is None else
                                             self.summary["checks"].get("shorter_than_trajectories"))
        made["usd_per_trajectory"] = None if self.summary is None else self.summary["cost"]["usd_per_trajectory"]
        return made

    def __repr__(self) -> str:
        return f"<SizeResult: {self.answer} {self.unit} ({self.low} to {self.high}), binds {self.binds or 'unclear'}>"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{text}</th>" for text in ("25 % more", "answer", "change"))
        rows = "".join(f"<tr><td>{row['what']}</td><td>{row['answer']:g}</td><td>{row['change']:+.0%}</td></tr>"
                       for row in self.reliefs)
        return f"<div><b>{repr(self)[1:-1]}</b><table><tr>{head}</tr>{rows}</table></div>"
