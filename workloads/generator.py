"""Draws trajectories from a spec: the graph of turns and the streams their prompts lie on.

A plain agent appends to one stream. What breaks a prefix (compaction, a changed tool list, unstable serialisation, a
volatile field) starts a new stream attached at the last position that did not change; children attach where their
parent's context ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np

from workloads.arrivals import Arrivals
from workloads.declared import declared_waits
from workloads.draws import Draws
from workloads.prompt import Layout, Prompt, attached, whole
from workloads.spec import Branching, TrajectorySpec
from workloads.trajectory import Closed, Stream, Trajectory, Turn

# What the random streams of a run are for; a trajectory's number follows.
_TRAJECTORY, _SHARED, _ARRIVALS = 0, 1, 2
_MOST_TURNS = 1_000_000


class SyntheticWorkload:
    """A `Workload` drawn from a spec.

    Parameters
    ----------
    spec
        The agent.
    arrivals
        Closed, or open with a rate (not a trace's times).
    others
        Other kinds of agents that arrive too, each with its weight.
    weight
        How often `spec` is drawn, relative to the others.

    Attributes
    ----------
    declared_waits
        The distribution of each tool's waits.
    """

    def __init__(self, spec: TrajectorySpec, arrivals: Arrivals,
                 others: Sequence[tuple[float, TrajectorySpec]] = (), weight: float = 1.0) -> None:
        self.spec = spec
        self.arrivals = arrivals
        self._specs = (spec, *(other for _, other in others))
        weights = np.cumsum([weight, *(share for share, _ in others)])
        self._bounds = (weights / weights[-1])[:-1]
        self.declared_waits = declared_waits([(weight, spec), *others])
        loop = arrivals.closed
        self.closed = None if loop is None else Closed(loop.concurrency, loop.think, loop.ramp)

    def trajectories(self, seed: int, replication: int) -> Iterator[Trajectory]:
        """Yield trajectories without end; each depends on (seed, replication, its number) only."""
        agents = [Agent(spec, (seed, replication, _SHARED, *([kind] if kind else [])))
                  for kind, spec in enumerate(self._specs)]
        times: Iterator[float] = repeat(0.0)
        if self.closed is None:
            times = self.arrivals.times(_stream(seed, replication, _ARRIVALS))
        for number, arrival_s in enumerate(times):
            rng = _stream(seed, replication, _TRAJECTORY, number)
            kind = int(np.searchsorted(self._bounds, rng.random(), side="right")) if self._bounds.size else 0
            yield agents[kind].trajectory(number, arrival_s, rng)


def _stream(seed: int, *key: int) -> np.random.Generator:
    """Return the random stream with this key, independent of all others."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=key)))


class _Line:
    """A line of turns so far: the stream, and how long zones and conversation are (tokens), next turn's included."""

    __slots__ = ("branch", "compacted", "depth", "history", "last", "layout", "stream")

    def __init__(self, layout: Layout, stream: Stream, history: int, branch: int, depth: int,
                 compacted: tuple[float, float] | None) -> None:
        self.layout = layout
        self.stream = stream
        self.history = history
        self.branch = branch
        self.depth = depth
        self.compacted = compacted  # prompt length above which it is compacted, and to what
        self.last: Turn | None = None


class _Tree:
    """The trajectory being drawn: its turns in an order in which every turn comes after those it waits for."""

    __slots__ = ("branches", "turns")

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.branches = 0


class Agent:
    """A spec made ready to draw from.

    Parameters
    ----------
    spec
        The agent.
    entropy
        (seed, replication, purpose, ...): what the lengths shared between trajectories are drawn from.
    """

    def __init__(self, spec: TrajectorySpec, entropy: tuple[int, ...]) -> None:
        self.spec = spec
        self.prompt = Prompt(spec, entropy)
        self._tools = list(spec.tools.items())
        weights = np.cumsum([tool.weight for _, tool in self._tools])
        self._tool_bounds = (weights / weights[-1])[:-1].tolist()
        self._names = [name for name, _ in self._tools]
        self._visible = 1.0 - spec.strip_thinking
        nested = spec.branching.agent if spec.branching is not None else None
        self._child = Agent(nested, (*entropy, 1)) if nested is not None else None

    def trajectory(self, number: int, arrival_s: float, rng: np.random.Generator) -> Trajectory:
        """Draw one trajectory."""
        layout = self.prompt.lay_out(rng)
        tree = _Tree()
        line = _Line(layout, layout.stream, layout.conversation, 0, 0, self._threshold(rng))
        self._run(tree, rng, line, whole(self.spec.turns, rng, 1, 1)[0], [])
        return Trajectory(number, arrival_s, [tree.turns[0]], len(tree.turns), layout.group)

    def _threshold(self, rng: np.random.Generator) -> tuple[float, float] | None:
        """Draw the prompt length above which a trajectory compacts its conversation, and to what."""
        compaction = self.spec.compaction
        if compaction is None:
            return None
        return float(compaction.at.sample(rng, 1)[0]), float(compaction.to.sample(rng, 1)[0])

    def calls(self, rng: np.random.Generator, n: int) -> tuple[list[int], list[str], list[float], list[bool]]:
        """Draw `n` tool calls: observation tokens, names, waits (s) and whether the wait is a person's."""
        bounds, spec = self._tool_bounds, self.spec
        which = [bisect_right(bounds, share) for share in rng.random(n).tolist()] if bounds else [0] * n
        observed, waits, human = [0] * n, [0.0] * n, [False] * n
        for index, (_, tool) in enumerate(self._tools):
            chosen = [i for i, drawn in enumerate(which) if drawn == index]
            if not chosen:
                continue
            count = len(chosen)
            drawn_waits = tool.wait.sample(rng, count).tolist()
            drawn_tokens = whole(tool.observation or spec.observation, rng, count, 0)
            for i, wait_s, tokens in zip(chosen, drawn_waits, drawn_tokens, strict=True):
                waits[i], observed[i] = wait_s, tokens
            if tool.human:
                for i in chosen:
                    human[i] = True
            if tool.approval is not None:
                asked = [i for i, share in zip(chosen, rng.random(count).tolist(), strict=True)
                         if share < tool.approval.probability]
                for i, wait_s in zip(asked, tool.approval.wait.sample(rng, len(asked)).tolist(), strict=True):
                    waits[i] += wait_s
                    human[i] = True
        if spec.client is not None:
            waits = [wait_s + more for wait_s, more in zip(waits, spec.client.sample(rng, n).tolist(), strict=True)]
        names = self._names
        return observed, [names[index] for index in which], waits, human

    # -- one line of turns ----------------------------------------------------------------------------------------

    def _run(self, tree: _Tree, rng: np.random.Generator, line: _Line, n: int, after: list[Turn]) -> None:
        """Append up to `n` turns to `line`, the first of which waits for the turns in `after`."""
        spec, layout = self.spec, line.layout
        n = min(n, _MOST_TURNS)
        branching = spec.branching if line.depth < (spec.branching.depth if spec.branching else 0) else None
        draws = Draws(self, rng, n, branching is not None)
        forks = draws.branches if branching is None or line.depth else draws.branches.union(branching.at)
        plain = layout.volatile is None and not layout.tail
        bounded = spec.context_limit is not None or line.compacted is not None
        breaks = draws.tools_changed or draws.reserialized
        turns, branch, visible = tree.turns, line.branch, self._visible
        waits_for, pending, prunes = after, len(after), []  # type: list[Turn], int, list[Turn]
        wait_s, tool, human = 0.0, "", False
        for i in range(n):
            output = draws.output[i]
            if bounded and not self._fit(line, output, first=line.last is None):
                return
            if line.history < 1:
                line.history = 1
            if breaks and i and (i in draws.tools_changed or i in draws.reserialized):
                self._break(line, i in draws.tools_changed, draws.reserialized.get(i))
            shown = output if visible == 1.0 else round(output * visible)
            stream = line.stream if plain else self._fresh(line)
            turn = Turn(stream, line.history + layout.tail, output,
                        kept_output=output if plain and shown == output else 0,
                        wait_s=wait_s, tool=tool, human=human, branch=branch, index=len(turns))
            turns.append(turn)
            for earlier in waits_for:
                earlier.next.append(turn)
            turn.pending = pending
            if prunes:
                turn.prunes = prunes
            line.last = turn
            line.history += shown
            if i + 1 == n:
                return
            if branching is not None and i in forks and len(tree.turns) < _MOST_TURNS:
                waits_for, pending, prunes, tool = self._fork(tree, rng, line, branching)
                wait_s, human = 0.0, False
            else:
                waits_for, pending, prunes = [turn], 1, []
                wait_s, tool, human = draws.wait[i + 1], draws.tool[i + 1], draws.human[i + 1]
                line.history += draws.observed[i + 1]

    def _fit(self, line: _Line, output: int, first: bool) -> bool:
        """Compact the conversation if it is due; return False if the turn exceeds the context limit even so."""
        spec, layout = self.spec, line.layout
        tail = layout.tail
        if line.compacted is not None and not first and line.history + tail > line.compacted[0]:
            self._compact(line, line.compacted[1], tail)
        limit = spec.context_limit
        if limit is not None and line.history + tail + output > limit:
            if not first:
                return False
            line.history = max(1, limit - output - tail)  # a first prompt that is too long is cut
            line.stream = attached(line.stream, line.history, "cut")
        return True

    def _compact(self, line: _Line, to: float, tail: int) -> None:
        """Replace the conversation, or more than that, by a summary."""
        zone = self.spec.compaction.zone if self.spec.compaction is not None else None
        start = line.layout.conversation if zone is None else line.layout.starts[zone]
        if line.history <= start:
            return
        target = to * (line.history + tail) if to < 1 else to
        line.history = min(line.history, max(start + 1, round(target) - tail))
        line.stream = attached(line.stream, start, "compaction")

    def _break(self, line: _Line, tools_changed: bool, reserialized: float | None) -> None:
        """Give `line` new content from where the tool list, or something in the conversation, has changed."""
        layout, cuts = line.layout, []  # type: Layout, list[tuple[int, str]]
        if tools_changed and self.spec.tool_list_change is not None:
            zone = self.spec.tool_list_change.zone
            cuts.append((layout.starts[zone], zone))
        if reserialized is not None:
            unstable = self.spec.unstable_serialization
            start = layout.conversation if unstable is None or unstable.zone is None else layout.starts[unstable.zone]
            cuts.append((start + int(reserialized * max(0, line.history - start)), "serialization"))
        position, label = min(cuts)
        line.stream = attached(line.stream, min(position, line.history), label)

    @staticmethod
    def _fresh(line: _Line) -> Stream:
        """Return a stream for this turn alone: new content from the volatile zone on, or behind the conversation."""
        layout = line.layout
        if layout.volatile is not None:
            return attached(line.stream, min(layout.volatile, line.history), layout.volatile_label)
        return attached(line.stream, line.history, layout.tail_label)

    # -- branches -------------------------------------------------------------------------------------------------

    def _fork(self, tree: _Tree, rng: np.random.Generator, line: _Line,
              branching: Branching) -> tuple[list[Turn], int, list[Turn], str]:
        """Run the children of the last turn; return what the parent's next turn waits for, how many, and prunes."""
        parent = line.last
        assert parent is not None
        count = whole(branching.children, rng, 1, 1)[0]
        start = len(tree.turns)
        ends = [self._spawn(tree, rng, line, branching, parent) for _ in range(min(count, 10_000))]
        lasts = [child.last for child in ends if child.last is not None]
        results = [0 if branching.join == "best" else turn.output_tokens for turn in lasts]
        if branching.result is not None:
            results = whole(branching.result, rng, len(lasts), 0)
        name = "sub-agent" if branching.join == "subagent" or self._child is not None else "branch"
        if branching.join == "first":
            line.history += results[0]
            return lasts, 1, tree.turns[start:], name
        if branching.join == "best":
            best = int(rng.integers(len(ends)))
            line.stream, line.history = ends[best].stream, ends[best].history + results[best]
        else:
            line.history += sum(results)
        return lasts, len(lasts), [], name

    def _spawn(self, tree: _Tree, rng: np.random.Generator, line: _Line, branching: Branching, parent: Turn) -> _Line:
        """Draw one child of `parent` and all its turns."""
        tree.branches += 1
        if self._child is not None:
            layout = self._child.prompt.lay_out(rng, line.layout.picks)
            child = _Line(layout, layout.stream, layout.conversation, tree.branches, 0, self._child._threshold(rng))
            self._child._run(tree, rng, child, whole(self._child.spec.turns, rng, 1, 1)[0], [parent])
            return child
        stream = attached(line.stream, line.history, f"branch {tree.branches}")
        task = whole(branching.task, rng, 1, 0)[0]
        child = _Line(line.layout, stream, line.history + task, tree.branches, line.depth + 1, line.compacted)
        self._run(tree, rng, child, whole(branching.turns, rng, 1, 1)[0], [parent])
        return child


