"""OpenTelemetry GenAI spans: one OTLP export of spans a line and trajectory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workloads.stats import shared_tokens
from workloads.trajectory import Trajectory, Turn
from workloads.writers.base import Source, lines_of, once

_BEGIN_US = 946_684_800_000_000  # 2000-01-01
_MODEL_US = 1  # how long a model call takes: recorded model time is never replayed


def write_otel(trajectories: Source, path: Path) -> int:
    """Write trajectories as OpenTelemetry GenAI spans (times count from 2000-01-01); return how many.

    What trajectories share is lost but for what the first call reads from a cache, and so is part of a kept output.

    Raises
    ------
    InputError
        A trajectory is no line of turns with sub-agents.
    """
    count = 0
    with path.open("w", encoding="utf-8") as handle:
        for trajectory in once(trajectories):
            spans = _Spans(trajectory).spans
            row = {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "kvplan"}, "spans": spans}]}]}
            handle.write(json.dumps(row, separators=(",", ":")) + "\n")
            count += 1
    return count


class _Spans:
    """The spans of one trajectory."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.spans: list[dict[str, Any]] = []
        self._number = trajectory.number
        main, children = lines_of(trajectory, "a file of spans")
        now = _BEGIN_US + round(trajectory.arrival_s * 1e6)
        top = self._span("invoke_agent", now, now, "")
        last: Turn | None = None
        for index, turn in enumerate(main):
            begun = now
            for line in children.get(main[index - 1], []) if index else []:
                agent = self._span("invoke_agent", begun, begun, top)
                now = max(now, self._line(line, begun, agent))
            if turn.human and index:  # a person speaks: a new call of the agent
                self._close(top, now)
                top = self._span("invoke_agent", now + round(turn.wait_s * 1e6), now, "")
            now = self._call(turn, now, top, last)
            last = turn
        self._close(top, now)

    def _line(self, line: list[Turn], now: int, agent: str) -> int:
        last: Turn | None = None
        for turn in line:
            now = self._call(turn, now, agent, last)
            last = turn
        self._close(agent, now)
        return now

    def _call(self, turn: Turn, now: int, agent: str, last: Turn | None) -> int:
        """Add a model call after its wait; return its end."""
        start = now + round(turn.wait_s * 1e6)
        if turn.tool not in ("", "sub-agent", "unknown") and not turn.human and start > now:
            self._span("execute_tool", now, start, agent, **{"gen_ai.tool.name": turn.tool})
        cached = 0 if last is None else min(shared_tokens(last, turn), turn.prompt_tokens)
        self._span("chat", start, start + _MODEL_US, agent, **{
            "gen_ai.usage.input_tokens": turn.prompt_tokens, "gen_ai.usage.output_tokens": turn.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": cached})
        return start + _MODEL_US

    def _span(self, operation: str, start: int, end: int, parent: str, **more: str | int) -> str:
        own = f"{self._number:08x}{len(self.spans):08x}"
        named: dict[str, str | int] = {"gen_ai.operation.name": operation, **more,
                                       "gen_ai.conversation.id": f"trajectory-{self._number}"}
        attributes = [{"key": key, "value": {"intValue": str(value)} if isinstance(value, int)
                       else {"stringValue": value}} for key, value in named.items()]
        self.spans.append({"traceId": f"{self._number:032x}", "spanId": own, "parentSpanId": parent, "name": operation,
                           "startTimeUnixNano": str(start * 1000), "endTimeUnixNano": str(end * 1000),
                           "attributes": attributes})
        return own

    def _close(self, span: str, end: int) -> None:
        """Set the end of an agent's span."""
        found = self.spans[int(span[8:], 16)]
        found["endTimeUnixNano"] = str(max(end * 1000, int(found["startTimeUnixNano"])))
