"""What is measured on recorded trajectories before anything is fitted: one `Session` a trajectory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from workloads.stats import in_order, shared_tokens
from workloads.trajectory import Trajectory, Turn

#: A prompt under this share of the one before has been compacted.
SHRUNK = 0.8
#: Losing more tokens of the prompt before than this (and than two blocks of most traces) is a break.
LOST = 256


@dataclass(slots=True)
class Line:
    """One line of turns: a main line, a branch, a sub-agent.

    Attributes
    ----------
    prompts, outputs, added
        Tokens of each prompt and output, and of each prompt but the first what the one before does not have.
    growth
        Tokens the context grew by between turns, beyond what stayed of the output (not where it was compacted).
    waits
        By tool, seconds between turns (no joins).
    human
        Tools whose waits are a person's.
    steps
        Turns that follow one of the same line.
    kept
        Where the prefix broke without getting shorter: share of the prompt before that was kept.
    lost
        There, the tokens of the prompt before that were not.
    cycles
        Between compactions: (longest prompt, False), or (what the next would have been, True) where one follows.
    shrunk
        Of each compaction, the length afterwards as a share of before.
    head
        Tokens kept where it was compacted.
    """

    prompts: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    kept_output: int = 0
    added: list[int] = field(default_factory=list)
    growth: list[int] = field(default_factory=list)
    waits: dict[str, list[float]] = field(default_factory=dict)
    human: set[str] = field(default_factory=set)
    steps: int = 0
    kept: list[float] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    cycles: list[tuple[int, bool]] = field(default_factory=list)
    shrunk: list[float] = field(default_factory=list)
    head: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Session:
    """One trajectory: its main line, its children, and where they left the main line and came back.

    `forks` holds the number of children of each fork, `results` the tokens that came back at each join, a child each;
    `own_prompt` counts children whose prompt shares nothing with their parent's. `shared` is what its first prompt
    has in common with the first prompt of the trajectory before.
    """

    main: Line = field(default_factory=Line)
    children: list[Line] = field(default_factory=list)
    forks: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    own_prompt: int = 0
    shared: int = 0


def observe(trajectories: Iterable[Trajectory]) -> list[Session]:
    """Measure trajectories one by one; none of them is kept."""
    found: list[Session] = []
    first: Turn | None = None
    for trajectory in trajectories:
        turns = in_order(trajectory)
        session = _session(turns)
        session.shared = 0 if first is None else shared_tokens(first, turns[0])
        first = turns[0]
        found.append(session)
    return found


def _session(turns: list[Turn]) -> Session:
    session = Session()
    lines: dict[int, Line] = {}
    last: dict[int, Turn] = {}
    waited: dict[Turn, list[Turn]] = {}
    for turn in turns:
        for follower in turn.next:
            waited.setdefault(follower, []).append(turn)
    forks: dict[Turn, int] = {}
    for turn in turns:
        line = lines.get(turn.branch)
        if line is None:
            line = lines[turn.branch] = session.main if not lines else Line()
            parents = waited.get(turn, [])
            if line is not session.main:
                session.children.append(line)
                if parents:
                    forks[parents[-1]] = forks.get(parents[-1], 0) + 1
                    session.own_prompt += shared_tokens(parents[-1], turn) < parents[-1].prompt_tokens // 2
        before = last.get(turn.branch)
        joined = [other for other in waited.get(turn, []) if other.branch != turn.branch]
        line.prompts.append(turn.prompt_tokens)
        line.outputs.append(turn.output_tokens)
        line.kept_output += turn.kept_output
        if before is not None:
            _step(line, before, turn, bool(joined))
            if joined:
                grown = max(0, turn.prompt_tokens - before.prompt_tokens - before.kept_output)
                session.results += [grown // len(joined)] * len(joined)
        last[turn.branch] = turn
    for line in lines.values():
        line.cycles.append((max(line.prompts[-1], *line.prompts[_cycle_start(line):]), False))
    session.forks = list(forks.values())
    return session


def _cycle_start(line: Line) -> int:
    """Return the index of the first prompt after the last compaction."""
    start = 0
    for index in range(1, len(line.prompts)):
        if line.prompts[index] < SHRUNK * line.prompts[index - 1]:
            start = index
    return start


def _step(line: Line, before: Turn, turn: Turn, joins: bool) -> None:
    """Measure what happened between two turns of a line."""
    shared = shared_tokens(before, turn)
    line.steps += 1
    line.added.append(turn.prompt_tokens - shared)
    if turn.prompt_tokens < SHRUNK * before.prompt_tokens:
        grown = sum(line.growth) // len(line.growth) if line.growth else 0  # what it would have been
        line.cycles.append((before.prompt_tokens + before.kept_output + grown, True))
        line.shrunk.append(turn.prompt_tokens / before.prompt_tokens)
        line.head.append(shared)
    else:
        if not joins:
            line.growth.append(max(0, turn.prompt_tokens - before.prompt_tokens - before.kept_output))
        if before.prompt_tokens - shared > LOST:
            line.kept.append(shared / before.prompt_tokens)
            line.lost.append(before.prompt_tokens - shared)
    if not joins:
        line.waits.setdefault(turn.tool or "none", []).append(turn.wait_s)
        if turn.human:
            line.human.add(turn.tool or "none")
