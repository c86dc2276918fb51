"""OpenTelemetry spans from JSON lines, cut down to what the GenAI conventions say of models, tools and agents.

A line is an OTLP export (`resourceSpans`, what the collector's file exporter writes), one OTLP span, or one span as the
Python SDK prints it (`context`, `parent_id`, ISO times, a plain mapping of attributes). Names follow the GenAI
semantic conventions 1.41 (github.com/open-telemetry/semantic-conventions, docs/gen-ai); those of earlier versions are
understood too. Contents of messages are not looked at, and not kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple

from sim.errors import InputError
from workloads.readers.base import Problems, document, integer, lines, listed, text
from workloads.readers.table import instant

MODEL, TOOL, AGENT, OTHER = "model", "tool", "agent", "other"
_KINDS = {
    "chat": MODEL, "text_completion": MODEL, "generate_content": MODEL, "execute_tool": TOOL, "invoke_agent": AGENT,
    "invoke_workflow": AGENT, "create_agent": OTHER, "embeddings": OTHER,
}
#: Today's name, then those of earlier conventions.
_INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
_CACHED = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
           "gen_ai.usage.input_tokens.cached")
_WANTED = frozenset({"gen_ai.operation.name", "gen_ai.conversation.id", "gen_ai.tool.name", "gen_ai.agent.name",
                     "error.type", *_INPUT, *_OUTPUT, *_CACHED})


class Span(NamedTuple):
    """What is kept of a span; times in microseconds since 1970."""

    kind: str
    line: int
    trace: str
    parent: str
    start_us: int
    end_us: int
    conversation: str
    name: str
    input: int
    output: int
    cached: int | None


def spans(path: Path, problems: Problems) -> Iterator[tuple[str, Span]]:
    """Yield (id, span) for every span of a file, in its order.

    Raises
    ------
    InputError
        The file cannot be read, or a span is wrong (unless such spans are skipped).
    """
    rows = iter([(0, document(path))]) if path.suffix == ".json" else lines(path, problems)
    for line, row in rows:
        try:
            for raw in unpacked(row):
                try:
                    yield _span(raw, line)
                except InputError as error:
                    problems.add(error, file=path, line=line or None)
        except InputError as error:
            problems.add(error, file=path, line=line or None)


def unpacked(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the spans of a line; InputError if it is none and holds none."""
    if "resourceSpans" not in row:
        if not {"spanId", "span_id", "context"} & row.keys():
            raise InputError("is neither a span nor an OTLP export of spans")
        yield row
        return
    for resource in listed(row, "resourceSpans", dict):
        for scope in listed(resource, "scopeSpans", dict):
            yield from listed(scope, "spans", dict)


def attributes(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a span that matter, as a plain mapping."""
    given = raw.get("attributes")
    if given is None or isinstance(given, dict):
        return {name: value for name, value in (given or {}).items() if name in _WANTED}
    found: dict[str, Any] = {}
    for item in listed(raw, "attributes", dict):
        key, value = text(item, "key", default=""), item.get("value")
        if key in _WANTED:
            if not isinstance(value, dict) or len(value) != 1:
                raise InputError("expected {key, value: {intValue: 1}}", field="attributes", got=key)
            ((kind, content),) = value.items()
            found[key] = _whole(content) if kind == "intValue" else content
    return found


def _span(raw: dict[str, Any], line: int) -> tuple[str, Span]:
    """Return the id of a span and what is kept of it."""
    context = raw.get("context", {})
    if not isinstance(context, dict):
        raise InputError("expected an object", field="context", got=context)
    ids = {**context, **{name: value for name, value in raw.items() if value is not None}}
    own = text(ids, "spanId" if "spanId" in ids else "span_id")
    trace = text(ids, "traceId" if "traceId" in ids else "trace_id", default="")
    parent = text(ids, "parentSpanId" if "parentSpanId" in ids else
                  "parent_span_id" if "parent_span_id" in ids else "parent_id", default="")
    found = attributes(raw)
    kind = _kind(found)
    start_us, end_us = _time(raw, "startTimeUnixNano", "start_time"), _time(raw, "endTimeUnixNano", "end_time")
    if end_us < start_us:
        raise InputError("lies before the start", field="endTimeUnixNano" if "endTimeUnixNano" in raw else "end_time",
                         got=end_us - start_us)
    conversation = text(found, "gen_ai.conversation.id", default="")
    name = text(found, "gen_ai.tool.name" if kind == TOOL else "gen_ai.agent.name", default="")
    tokens, output, cached = 0, 0, None
    if kind == MODEL:
        if found.get("error.type") is not None and not any(key in found for key in _INPUT):
            kind = OTHER  # a request that failed; nothing was generated
        else:
            tokens = integer(found, _first(found, _INPUT), least=1)
            output = max(1, integer(found, _first(found, _OUTPUT), default=1))
            cached = integer(found, _first(found, _CACHED), default=-1)
            cached = None if cached < 0 else min(cached, tokens)
    return own, Span(kind, line, intern(trace), parent, start_us, end_us, intern(conversation), intern(name), tokens,
                     output, cached)


def _kind(found: dict[str, Any]) -> str:
    operation = text(found, "gen_ai.operation.name", default="")
    if operation in _KINDS:
        return _KINDS[operation]
    return MODEL if not operation and any(key in found for key in _INPUT) else OTHER


def _first(found: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((name for name in names if found.get(name) is not None), names[0])


def _time(raw: dict[str, Any], nano: str, iso: str) -> int:
    """Return a point in time in microseconds, from nanoseconds (a number or its digits) or ISO 8601."""
    if raw.get(nano) is None and raw.get(iso) is not None:
        return instant(raw, iso)
    value = {nano: _whole(raw.get(nano))}
    if isinstance(value[nano], int) and not isinstance(value[nano], bool):
        if not 0 <= value[nano] < 2**63:
            raise InputError("expected nanoseconds since 1970", field=nano, got=value[nano])
        return int(value[nano]) // 1000
    return integer(value, nano)


def _whole(value: Any) -> Any:
    """Return the number in a text of digits (JSON has no 64-bit integers, so OTLP writes them as text)."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 25 else value
