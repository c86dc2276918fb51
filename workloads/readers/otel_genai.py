"""OpenTelemetry GenAI spans: what an agent harness or its framework can export. See docs/trace_format.md.

Spans of model calls (`chat`, `text_completion`, `generate_content`) are the turns. Those with one
`gen_ai.conversation.id` (or, without, of one trace) are a trajectory, in order of time; a model call inside a nested
`invoke_agent` belongs to a sub-agent, whose end the caller's next turn waits for. A turn's wait is the time from the
end of what it waits for to its own start: named after the longest `execute_tool` span in it, `human` if a new trace or
a new top-level agent call begins, else `unknown`. Calls that overlap in time run at once.

Prompts are taken to extend the one before; a shorter one keeps what the provider read from its cache
(`gen_ai.usage.cache_read.input_tokens`). What the first call of an agent read from the cache is content that all
agents of that name share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.errors import InputError
from workloads.prompt import attached
from workloads.readers.base import Problems
from workloads.readers.otel_spans import AGENT, OTHER, TOOL, Span, attributes, spans, unpacked
from workloads.trajectory import Stream, Trajectory, Turn

_DEEPEST, _MOST_AGENTS = 1000, 50  # spans within spans, agents within agents


def sniff(row: dict[str, Any]) -> bool:
    """Return whether the first line of a file holds spans."""
    try:
        return "resourceSpans" in row or any("attributes" in raw and attributes(raw) is not None
                                             for raw in unpacked(row))
    except InputError:
        return False


def timed(path: Path) -> bool:
    """Return True: spans carry absolute times."""
    return True


@dataclass(slots=True)
class _Line:
    """The calls of one agent within a conversation: its models' and its tools', and the agents it called."""

    parent: str  # the agent that called it ("" for the top)
    branch: int = 0
    calls: list[tuple[str, Span]] = field(default_factory=list)  # with the top-level agent or trace it is part of
    tools: list[Span] = field(default_factory=list)
    children: list[_Line] = field(default_factory=list)

    def begin(self) -> int:
        """Return the start of its first call, in microseconds."""
        return self.calls[0][1].start_us


def read(path: Path, problems: Problems, block_size: int | None) -> Iterator[Trajectory]:
    """Yield the conversations of a file, in order of arrival; the first arrives at 0.

    Spans may stand in any order, so their numbers (not their contents) are all read first. One whose id another has, or
    that is, in the end, its own parent, is wrong.
    """
    found: dict[str, Span] = {}
    for own, span in spans(path, problems):
        if own in found:
            problems.add(InputError("is the id of two spans", field="spanId", got=own), file=path,
                         line=span.line or None)
        else:
            found[own] = span
    conversations = _conversations(found, problems, path)
    del found
    order = sorted(conversations.values(), key=_begin)
    del conversations
    shared: dict[str, Stream] = {}
    if order:
        begun = _begin(order[0])
    for lines in order:
        turns = _Conversation(shared).turns(lines)
        roots = [turn for turn in turns if not turn.pending]
        yield Trajectory(0, (_begin(lines) - begun) / 1e6, roots, len(turns), "", path.name)


def _begin(lines: dict[str, _Line]) -> int:
    return min(span.start_us for line in lines.values() for _, span in line.calls)


def _conversations(found: dict[str, Span], problems: Problems, path: Path) -> dict[str, dict[str, _Line]]:
    """Sort calls by conversation and agent."""
    conversations: dict[str, dict[str, _Line]] = {}
    for own, span in found.items():
        if span.kind in (OTHER, AGENT):
            continue
        try:
            agents, conversation = _above(own, found)
        except InputError as error:
            problems.add(error, file=path, line=span.line or None)
            continue
        lines = conversations.setdefault(conversation or f"trace {span.trace or own}", {})
        # The calls of an outermost agent are the main line, whatever the number of its invocations.
        agent = agents[0] if len(agents) > 1 else ""
        line = lines.setdefault(agent, _Line(agents[1] if len(agents) > 2 else ""))
        if span.kind == TOOL:
            line.tools.append(span)
        else:
            line.calls.append((agents[-1] if agents else span.trace, span))
    return {name: lines for name, lines in conversations.items() if any(line.calls for line in lines.values())}


def _above(own: str, found: dict[str, Span]) -> tuple[list[str], str]:
    """Return the agents a span lies in, innermost first, and the conversation it belongs to ("" if none says)."""
    agents: list[str] = []
    conversation = ""
    at: str = own
    for _ in range(_DEEPEST):
        span = found.get(at)
        if span is None:
            return agents, conversation
        if span.kind == AGENT and at != own:
            agents.append(at)
            if len(agents) > _MOST_AGENTS:
                break
        conversation = conversation or span.conversation
        at = span.parent
    raise InputError("is its own parent, or lies too deep in other spans", field="parentSpanId",
                     got=found[own].parent)


class _Conversation:
    """The turns of one conversation, each after those it waits for."""

    def __init__(self, shared: dict[str, Stream]) -> None:
        self._shared = shared
        self._turns: list[Turn] = []
        self._ends: list[int] = []  # recorded end of each turn, microseconds
        self._begun = 0

    def turns(self, lines: dict[str, _Line]) -> list[Turn]:
        """Return the turns of a conversation, whose lines are given by agent."""
        self._begun = _begin(lines)
        main = lines.setdefault("", _Line(""))
        for agent, line in lines.items():
            line.calls.sort(key=lambda call: (call[1].start_us, call[1].end_us))
            if agent and line.calls:
                caller = lines.get(line.parent, main)
                (caller if caller is not line and caller.calls else main).children.append(line)
        started = sorted((line for agent, line in lines.items() if agent and line.calls),
                         key=_Line.begin)
        for branch, line in enumerate(started, 1):
            line.branch = branch
        self._run(main, [])
        return self._turns

    def _run(self, line: _Line, after: list[int]) -> list[int]:
        """Append the turns of a line, which begins after the turns `after`; return what its end waits for."""
        pending = list(after)  # what the next call waits for
        group: list[int] = []  # calls under way at once
        group_after = pending
        children = deque(sorted(line.children, key=_Line.begin))
        last: Turn | None = None
        episode = ""
        for top, span in line.calls:
            while children and children[0].begin() <= span.start_us:
                pending = self._joined(children.popleft(), group or pending)
                group = []
            if group and span.start_us >= max(self._ends[index] for index in group):
                pending, group = group, []
            if not group:
                group_after = pending
            last = self._call(line, span, last, group_after, new=bool(episode) and top != episode)
            episode = top
            group.append(last.index)
        end = group or pending
        pending = end
        for child in children:  # none of the line's calls waits for these
            pending = self._joined(child, pending)
        return end if line.calls else pending

    def _joined(self, child: _Line, after: list[int]) -> list[int]:
        """Run a child after the turns `after`; return those and its end."""
        return [*after, *(turn for turn in self._run(child, after) if turn not in after)]

    def _call(self, line: _Line, span: Span, before: Turn | None, after: list[int], new: bool) -> Turn:
        """Append one model call that waits for the turns `after`."""
        known = [index for index in after if self._ends[index] <= span.start_us]
        ended = max((self._ends[index] for index in known), default=self._begun)
        wait_s = (span.start_us - ended) / 1e6
        joins = any(self._turns[index].branch > line.branch for index in known)
        tools = [tool for tool in line.tools if tool.end_us > ended - 1 and tool.start_us < span.start_us]
        longest = max(tools, key=lambda tool: tool.end_us - tool.start_us, default=None)
        tool = ""
        if known and before is not None:
            tool = "sub-agent" if joins else longest.name or "tool" if longest is not None else \
                "human" if new else "unknown"
        stream = self._stream(span, before)
        turn = Turn(stream, span.input, span.output, wait_s=wait_s, tool=tool, human=tool == "human",
                    branch=line.branch, index=len(self._turns))
        if before is not None and stream is before.stream and not before.kept_output \
                and span.input >= before.prompt_tokens + before.output_tokens:
            before.kept_output = before.output_tokens
        for index in known:
            self._turns[index].then(turn)
        self._turns.append(turn)
        self._ends.append(span.end_us)
        return turn

    def _stream(self, span: Span, before: Turn | None) -> Stream:
        """Return the stream of a call's prompt, given the call before it on its line."""
        if before is None:
            if not span.cached:
                return Stream(None, 0, "context")
            root = self._shared.setdefault(span.name, Stream(None, 0, span.name or "shared"))
            return Stream(root, span.cached, "context")
        if span.input >= before.prompt_tokens:
            return before.stream
        return attached(before.stream, min(span.cached or 0, before.prompt_tokens), "context")
