"""From measured sessions to a spec: one kind of agent, or several of different size in a mix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.errors import InputError
from workloads.config import WorkloadConfig
from workloads.fit.observe import Line, Session, observe
from workloads.fit.quality import Row, compare
from workloads.fit.sizes import ladder, thresholds
from workloads.fit.waits import fit_waits
from workloads.trajectory import Trajectory

_A_KIND = 4  # sessions that a kind of agent is fitted to, at least
_MOST_KINDS = 7
_EVENTS = 3  # compactions that tell the thresholds of a kind
_SHARED = 64  # tokens that two trajectories have in common before it counts
_PRIOR = 10  # turns that the rate of breaks of all kinds counts for in that of one
_CHECKED = 20_000  # turns that are drawn to see how good a fit is


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted spec.

    `agents` is what a scenario's `workload.agents` takes; `rows` compare what it draws with what was recorded.
    """

    agents: dict[str, Any]
    rows: list[Row]
    sessions: int
    turns: int

    @property
    def poor(self) -> list[Row]:
        """What the fit does not reproduce."""
        return [row for row in self.rows if row.verdict == "poor"]


def fit(trajectories: Iterable[Trajectory], name: str = "recorded agents") -> Fit:
    """Fit a spec to trajectories.

    Parameters
    ----------
    trajectories
        Recorded ones; they are measured one by one and not kept.
    name
        What the description calls them.

    Raises
    ------
    InputError
        There is no trajectory.

    Notes
    -----
    Long contexts and many turns do not come independently, so sessions are cut into a few kinds of 4 or more, alike in
    their longest prompt and their turns. A kind has its own turns, first prompt, growth and
    compaction; waits, outputs and breaks are fitted to all together.
    """
    from workloads.arrivals import Arrivals, ClosedLoop
    from workloads.source import build_spec

    sessions = observe(trajectories)
    if not sessions:
        raise InputError("the trace holds no trajectory to fit to")
    turns = sum(len(line.prompts) for session in sessions for line in (session.main, *session.children))
    parts = _kinds(sessions)
    common = _common([session.main for session in sessions])
    specs = [_kind(part, sessions, common) for part in parts]
    about = f"Fitted to {name}: {len(sessions):,} trajectories, {turns:,} turns."
    agents: dict[str, Any] = {"description": about, **specs[0]} if len(parts) == 1 else \
        {"description": about, "mix": [{"weight": len(part), "agents": spec}
                                       for part, spec in zip(parts, specs, strict=True)]}
    config = WorkloadConfig.model_validate({"agents": agents})
    drawn = build_spec(config.agents, Arrivals(closed=ClosedLoop(concurrency=1))).trajectories(20_000, 0)
    wanted = max(len(sessions), min(20 * len(sessions), _CHECKED * len(sessions) // turns))
    return Fit(agents, compare(sessions, observe(islice(drawn, wanted))), len(sessions), turns)


def _kinds(sessions: Sequence[Session]) -> list[list[Session]]:
    """Cut sessions into kinds, one cut after the other, each where it reduces most what varies within a kind."""
    shape = {id(session): np.log([max(session.main.prompts), len(session.main.prompts)]) for session in sessions}
    parts = [list(sessions)]
    whole = _squares(np.array(list(shape.values())))
    while len(parts) < _MOST_KINDS:
        best: tuple[float, int, list[Session], int] | None = None
        for place, part in enumerate(parts):
            for axis in (0, 1):
                ordered = sorted(part, key=lambda session: float(shape[id(session)][axis]))
                found = np.array([shape[id(session)] for session in ordered])
                for cut in range(_A_KIND, len(ordered) - _A_KIND + 1):
                    gain = _squares(found) - _squares(found[:cut]) - _squares(found[cut:])
                    if best is None or gain > best[0]:
                        best = gain, place, ordered, cut
        if best is None or best[0] < 0.02 * whole:
            break
        _, place, ordered, cut = best
        parts[place:place + 1] = [ordered[:cut], ordered[cut:]]
    return parts


def _squares(shape: NDArray[np.float64]) -> float:
    """Return the sum of squares within."""
    return float(len(shape) * shape.var(axis=0).sum())


def _kind(part: Sequence[Session], everyone: Sequence[Session], common: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of the sessions in `part`; what they are too few to tell is taken from `everyone`."""
    mains = [session.main for session in part]
    spec = {**common, **_line(mains, [session.main for session in everyone])}
    spec["turns"] = ladder([len(line.prompts) for line in mains])
    shared = int(np.median([session.shared for session in everyone[1:]])) if len(everyone) > 1 else 0
    spec["prompt"] = _zones(mains, shared, [tokens for session in everyone for tokens in session.main.head])
    if "unstable_serialization" in spec:
        spec["unstable_serialization"]["zone"] = spec["prompt"][0]["name"]
    children = [child for session in everyone for child in session.children]
    forks = [fork for session in everyone for fork in session.forks]
    steps = sum(session.main.steps for session in everyone)
    if children and forks and steps:
        spec["branching"] = _branching(everyone, children, forks, steps)
    return spec


def _common(lines: Sequence[Line]) -> dict[str, Any]:
    """Return the part of a spec that all kinds have in common: outputs and waits."""
    outputs = [tokens for line in lines for tokens in line.outputs]
    spec: dict[str, Any] = {"output": ladder(outputs)}
    kept = sum(line.kept_output for line in lines) / max(1, sum(outputs))
    if kept < 0.999:
        spec["strip_thinking"] = round(1 - kept, 4)
    return {**spec, "tools": _tools(lines)}


def _line(own: Sequence[Line], everyone: Sequence[Line]) -> dict[str, Any]:
    """Return the part of a spec that describes how the context of a line of turns grows and breaks."""
    spec: dict[str, Any] = {}
    growth = [tokens for line in own for tokens in line.growth] or [t for line in everyone for t in line.growth]
    spec["observation"] = ladder(growth) if growth else 0
    if any(line.kept for line in everyone):
        spec["unstable_serialization"] = _breaks(own, everyone)
    longest = max(prompt + output for line in everyone for prompt, output in
                  zip(line.prompts, line.outputs, strict=True))
    spec["context_limit"] = 2 * longest
    at = _compacted_at(own, everyone, beyond=1.9 * longest)
    if at is not None:
        spec["compaction"] = {"at": at, "zone": "opening",
                              "to": _shares([share for line in everyone for share in line.shrunk])}
    return spec


def _breaks(own: Sequence[Line], everyone: Sequence[Line]) -> dict[str, Any]:
    """Return how often prefixes break, and what is kept then.

    Long prompts lose a smaller share than short ones, which a spec cannot say: shares are raised so that the tokens
    lost are those recorded.
    """
    shares = np.array([share for line in everyone for share in line.kept])
    rate = shares.size / sum(line.steps for line in everyone)
    here, steps = sum(len(line.kept) for line in own), sum(line.steps for line in own)
    prompt = np.mean([tokens for line in everyone for tokens in line.prompts])
    lost = np.mean([tokens for line in everyone for tokens in line.lost])
    scale = min(1.0, float(lost / (prompt * (1 - shares).mean())))
    return {"probability": round((here + _PRIOR * rate) / (steps + _PRIOR), 5), "zone": "head",
            "kept": _shares(1 - scale * (1 - shares))}


def _compacted_at(own: Sequence[Line], everyone: Sequence[Line], beyond: float) -> dict[str, Any] | None:
    """Return the lengths at which contexts of this kind are compacted.

    A kind that was never compacted only because it never grew that long would be, had it; one that grew longer than
    any that was compacted would not.
    """
    cycles = [cycle for line in own for cycle in line.cycles]
    events = [length for line in everyone for length, event in line.cycles if event]
    longest = max(max(line.prompts) for line in own)
    if sum(event for _, event in cycles) >= _EVENTS:
        return thresholds(cycles, longest)
    if not events or longest > max(events):
        return thresholds(cycles, beyond)
    alike = [line for line in everyone if max(line.prompts) <= max(events)]
    return thresholds([cycle for line in alike for cycle in line.cycles], beyond)


def _shares(values: Sequence[float] | NDArray[np.float64]) -> dict[str, Any] | float:
    """Return a distribution of shares between 0 and 1."""
    found = np.clip(np.asarray(values), 0.0, 0.9999)
    if found.min() == found.max():
        return float(round(found[0], 4))
    points = {f"p{q}": round(float(value), 4) for q, value in
              zip((0, 10, 25, 50, 75, 90, 100), np.quantile(found, (0, .1, .25, .5, .75, .9, 1)), strict=True)}
    return {"quantiles": points}


def _tools(lines: Sequence[Line]) -> dict[str, Any]:
    waits: dict[str, list[float]] = {}
    for line in lines:
        for tool, values in line.waits.items():
            waits.setdefault(tool, []).extend(values)
    human = set().union(*(line.human for line in lines))
    return {tool: {"weight": len(values), "wait": fit_waits(values), **({"human": True} if tool in human else {})}
            for tool, values in sorted(waits.items(), key=lambda item: -len(item[1]))} or {"tool": {"wait": 0}}


def _zones(lines: Sequence[Line], shared: int, kept: Sequence[int]) -> list[dict[str, Any]]:
    """Return the zones of a prompt: what all share, what a compaction leaves, what a session opens with."""
    first = [line.prompts[0] for line in lines]
    common = min(shared, min(first) - 1) if shared >= _SHARED else 0
    head = max(common, min(int(np.median(kept)) if kept else 0, min(first) - 1))
    zones: list[dict[str, Any]] = [{"name": "common", "tokens": common, "shared": "all"}] if common else []
    return [*zones, {"name": "head", "tokens": head - common},
            {"name": "opening", "tokens": ladder([tokens - head for tokens in first])}]


def _branching(everyone: Sequence[Session], children: Sequence[Line], forks: Sequence[int],
               steps: int) -> dict[str, Any]:
    """Return how main lines branch, and what their children are."""
    results = [tokens for session in everyone for tokens in session.results]
    own = sum(session.own_prompt for session in everyone) * 2 >= len(children)
    branching: dict[str, Any] = {"probability": round(min(1.0, len(forks) / steps), 6), "children": ladder(forks),
                                 "join": "subagent", "result": ladder(results) if results else 0}
    turns = ladder([len(child.prompts) for child in children])
    if not own:
        return {**branching, "turns": turns}
    return {**branching, "agent": {"prompt": _zones(children, 0, []), "turns": turns, **_common(children),
                                   **_line(children, children)}}
