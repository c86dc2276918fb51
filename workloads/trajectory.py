"""What arrives: trajectories of turns over append-only streams of content.

A *stream* is the content of one branch of one conversation (or of a shared prompt zone): tokens are only
ever appended to it, so a position in a stream names a token for good. A stream grows out of its parent at
`attach`: its content is the parent's first `attach` tokens followed by its own. A prompt is therefore just a
pair (stream, length), and the longest prefix two prompts share is found by walking up to a common ancestor,
in as many hops as there were branchings, whatever the length of the context in tokens.

Turns form a directed acyclic graph: each names the turns that follow it, and starts when all those it waits
for have ended (`pending`) and its own wait (a tool, a human) has passed. A chain is a plain agent; several
followers are a fan-out; a follower with `pending` > 1 is a join.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


class Stream:
    """Append-only content of one branch.

    Parameters
    ----------
    parent
        The stream this one grew out of, or None for a root (an unrelated prompt, a shared zone).
    attach
        Absolute position in the parent, in tokens, from which this stream has its own content (0 for a root).
    label
        What a user would call this content (``system``, ``repo/3``, ``turn text``); the summary names the label
        that cost most recomputed tokens.
    """

    __slots__ = ("attach", "label", "parent", "seen")

    def __init__(self, parent: Stream | None = None, attach: int = 0, label: str = "") -> None:
        if attach < 0 or (parent is None and attach):
            raise ValueError(f"a stream attaches at a position >= 0 of its parent (got {attach})")
        self.parent = parent
        self.attach = attach
        self.label = label
        #: Tokens of this stream that some turn has already computed: what a cache of infinite size would hold.
        #: Run state, kept here so that it is freed with the stream; a workload is read afresh for every run.
        self.seen = 0

    def __repr__(self) -> str:
        return f"Stream({self.label!r}, attach={self.attach})"


def trunk(stream: Stream, position: int) -> Stream:
    """Return the stream whose own content holds the token in front of `position`."""
    while stream.parent is not None and position <= stream.attach:
        stream = stream.parent
    return stream


class Turn:
    """One request: a prompt, an output, and what has to happen before it starts.

    Attributes
    ----------
    stream, prompt_tokens
        The prompt is the first `prompt_tokens` tokens (> 0) of `stream`.
    output_tokens
        Tokens generated (>= 1).
    kept_output
        The first so many output tokens stay in the stream right after the prompt, so their KV can be reused by
        the next turn; the rest is never seen again (stripped thinking, or a trace that does not say).
    wait_s
        Seconds from the end of the last turn it waits for until this turn is ready (tool, human, think time);
        for a turn that waits for none, from the start of its trajectory.
    tool
        What that wait is for; "" if nothing. Predictors learn per tool.
    human
        The wait is a person's, not a tool's.
    next
        Turns that wait for this one.
    pending
        How many turns must still end before this one may start (run state, counted down by the engine).
    prunes
        Turns that are cancelled when this one starts (a `first` join drops the losers of the race).
    branch
        0 for the main line, otherwise the number of the branch or sub-agent within the trajectory.
    index
        Position within the trajectory, from 0.
    """

    __slots__ = (
        "branch",
        "human",
        "index",
        "kept_output",
        "next",
        "output_tokens",
        "pending",
        "prompt_tokens",
        "prunes",
        "stream",
        "tool",
        "wait_s",
    )

    def __init__(self, stream: Stream, prompt_tokens: int, output_tokens: int, *, kept_output: int = 0,
                 wait_s: float = 0.0, tool: str = "", human: bool = False, branch: int = 0, index: int = 0) -> None:
        self.stream = stream
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.kept_output = kept_output
        self.wait_s = wait_s
        self.tool = tool
        self.human = human
        self.next: list[Turn] = []
        self.pending = 0
        self.prunes: list[Turn] = []
        self.branch = branch
        self.index = index

    def then(self, follower: Turn) -> Turn:
        """Make `follower` wait for this turn; returns `follower` so that chains read left to right."""
        self.next.append(follower)
        follower.pending += 1
        return follower


@dataclass(slots=True)
class Trajectory:
    """One agent's whole task.

    `arrival_s` is the absolute arrival time of an open workload (ignored when the loop is closed), `roots` are the
    turns that wait for no other, `turns` counts all turns of the graph, `group` names the sharing group (a
    repository, say) for routing and reports.
    """

    number: int
    arrival_s: float
    roots: list[Turn]
    turns: int
    group: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed loop: `concurrency` trajectories always alive; the next starts `think_s` after one ends.

    `ramp_s` spreads the first starts evenly over so many seconds.
    """

    concurrency: int
    think_s: float = 0.0
    ramp_s: float = 0.0


class Workload(Protocol):
    """What the engine pulls from. Each call of `trajectories` starts the same sequence afresh."""

    #: None when arrivals are open: then `Trajectory.arrival_s` never decreases.
    closed: Closed | None

    def trajectories(self, seed: int, replication: int) -> Iterator[Trajectory]:
        """Yield trajectories in order of arrival; endless for a synthetic spec, finite for a trace."""
        ...
