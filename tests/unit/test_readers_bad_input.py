"""Is anything wrong in a trace told in one line, with its place, and never a traceback or a hang?"""

import json
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from workloads.readers import FORMATS, Problems, guess, open_trace

TRACES = Path(__file__).parents[1] / "data" / "traces"
TURN = {"trajectory": "t", "turn": 0, "prompt": [["a", 10]], "output": 3}
ROW = {"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}
REQUEST = {"request_id": "a", "input_length": 600, "output_length": 3}


SPAN = {"spanId": "s", "startTimeUnixNano": "5000", "endTimeUnixNano": "9000",
        "attributes": {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 9}}
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
CSV = "session,prompt,output,wait\n"


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(("format", "content", "says"), [
    ("mooncake", "", r"x\.jsonl: is empty"),
    ("mooncake", "\n \n", r"x\.jsonl: is empty"),
    ("mooncake", jsonl(ROW)[:-9], r"x\.jsonl:1: is no JSON"),
    ("mooncake", "[1, 2]\n", r"x\.jsonl:1: expected a JSON object"),
    ("mooncake", jsonl(ROW, {**ROW, "input_length": -4}), r"x\.jsonl:2: input_length: expected .* \(got -4\)"),
    ("mooncake", jsonl({**ROW, "input_length": "600"}), r"input_length: expected a whole number"),
    ("mooncake", jsonl({**ROW, "input_length": True}), r"input_length: expected a whole number"),
    ("mooncake", jsonl({**ROW, "input_length": 0}), r"input_length"),
    ("mooncake", jsonl({**ROW, "output_length": 10**30}), r"output_length"),
    ("mooncake", jsonl({**ROW, "hash_ids": 3}), r"hash_ids: expected a list"),
    ("mooncake", jsonl({**ROW, "hash_ids": [1, "2"]}), r"hash_ids: expected a list of whole numbers \(got 2\)"),
    ("mooncake", jsonl({**ROW, "hash_ids": [1, 2, 3]}), r"hash_ids: 3 ids of 512 tokens"),
    ("mooncake", jsonl({**ROW, "hash_ids": [1, 1]}), r"hash_ids: comes back"),
    ("mooncake", jsonl(ROW, {**ROW, "hash_ids": [7, 1]}), r"x\.jsonl:2: hash_ids"),
    ("mooncake", jsonl({**ROW, "timestamp": 5}, ROW), r"x\.jsonl:2: timestamp: lies before"),
    ("mooncake", '{"timestamp": NaN}\n', "NaN is no number"),
    ("mooncake", '{"timestamp": ' + "9" * 5000 + "}\n", "is no JSON"),
    ("mooncake", "[" * 100_000, "is no JSON"),
    ("mooncake", '{"a":' * 100_000, "is no JSON"),
    ("kvplan", jsonl({**TURN, "after": [1]}), r"after: turn 0 waits for a turn that does not exist \(got 1\)"),
    ("kvplan", jsonl({**TURN, "after": [0]}), r"waits for itself"),
    ("kvplan", jsonl({**TURN, "after": [1]}, {**TURN, "turn": 1, "after": [0]}), r"waits for itself"),
    ("kvplan", jsonl(TURN, {**TURN, "turn": 1, "after": [0, 0]}), "twice"),
    ("kvplan", jsonl(TURN, TURN), r"x\.jsonl:2: turn: is the number of two turns"),
    ("kvplan", jsonl({**TURN, "turn": 1}), "turn 0 of trajectory t is missing"),
    ("kvplan", jsonl(TURN, {**TURN, "trajectory": "u"}, {**TURN, "turn": 1}), r":3: trajectory: comes back"),
    ("kvplan", jsonl({**TURN, "prunes": [4]}), "prunes"),
    ("kvplan", jsonl({**TURN, "prompt": []}), "prompt: holds no token"),
    ("kvplan", jsonl({**TURN, "prompt": [["a", 0]]}), "prompt: holds no token"),
    ("kvplan", jsonl({**TURN, "prompt": [["a", -1]]}), "prompt: expected pieces"),
    ("kvplan", jsonl({**TURN, "prompt": [["a"]]}), "prompt: expected pieces"),
    ("kvplan", jsonl({**TURN, "prompt": ["a"]}), "prompt: expected a list of list"),
    ("kvplan", jsonl({**TURN, "kept": 4}), "kept"),
    ("kvplan", jsonl({**TURN, "join": "any"}), "join: expected all or first"),
    ("kvplan", jsonl({**TURN, "human": 1}), "human: expected true or false"),
    ("kvplan", jsonl({**TURN, "wait_s": -1}), "wait_s"),
    ("kvplan", jsonl({**TURN, "trajectory": None}), "trajectory: is missing"),
    ("dynamo-agentic", jsonl({**REQUEST, "wait_for": ["b"]}),
     r"x\.jsonl:1: wait_for: waits for a request .* \(got b\)"),
    ("dynamo-agentic", jsonl({**REQUEST, "wait_for": ["a"]}), "waits for itself"),
    ("dynamo-agentic", jsonl({**REQUEST, "wait_for": ["b"]}, {**REQUEST, "request_id": "b", "wait_for": ["a"]}),
     "waits for itself"),
    ("dynamo-agentic", jsonl(REQUEST, REQUEST), r":2: request_id: is the id of two requests \(got a\)"),
    ("dynamo-agentic", jsonl({"request_id": "a"}), "input_length: is missing"),
    ("dynamo-agentic", jsonl({**REQUEST, "wait_for": [3]}), "wait_for"),
    ("dynamo-agentic", jsonl({**REQUEST, "tool_wait_ms": -3}), "tool_wait_ms"),
    ("kv-cache-tester", "{}", "requests: is missing"),
    ("kv-cache-tester", '{"requests": []}', "requests: holds no request"),
    ("kv-cache-tester", '{"requests": [{"t": 0, "in": -1, "out": 3}]}', r"requests\[0\]\.in"),
    ("kv-cache-tester", '{"requests": [3]}', "requests: expected a list of dict"),
    ("kv-cache-tester", '{"requests": [{"type": "subagent", "t": 1, "requests": [{"t": 0, "in": 4}]}]}',
     r"requests\[0\]\.requests\[0\]\.out: is missing"),
    ("kv-cache-tester", '{"requests": [\n{"t": 0, "in": 4, "out": }]}', r"x\.jsonl:2: is no JSON"),
    ("kv-cache-tester", '{"block_size": 0, "requests": []}', "block_size"),
    ("azure", "TIMESTAMP,ContextTokens\n", r"x\.jsonl:1: GeneratedTokens: the header lacks"),
    ("azure", AZURE + "2023-11-16 18:17:03,5\n", r"x\.jsonl:2: has 2 cells; the header has 3"),
    ("azure", AZURE + "yesterday,5,5\n", r"x\.jsonl:2: TIMESTAMP: expected a time"),
    ("azure", AZURE + "2023-11-16 18:17:03,-5,5\n", "ContextTokens: expected a number"),
    ("azure", AZURE + "2023-11-16 18:17:03,1.5,5\n", "ContextTokens: expected a whole number"),
    ("azure", AZURE + "2023-11-16 18:17:03,5,5\n2023-11-16 18:17:02,5,5\n", r":3: TIMESTAMP: lies before"),
    ("azure", AZURE + '"2023-11-16,5,5\n', "is no line of a CSV"),
    ("sessions-csv", "session,session,prompt,output\n", r"x\.jsonl:1: the header has a column twice"),
    ("sessions-csv", CSV + "a,5,5,-1\n", r"x\.jsonl:2: wait: expected a number from 0"),
    ("sessions-csv", CSV + "a,5,5,nan\n", "wait: expected a number"),
    ("sessions-csv", CSV + "a,5,5,1\nb,5,5,1\na,6,5,1\n", r":4: session: comes back"),
    ("sessions-csv", CSV + "a,,5,1\n", "prompt: is missing"),
    ("sessions-csv", "session,turn,prompt,output\na,0,5,5\na,0,6,5\n", r":3: turn: must rise"),
    ("sessions-csv", "session,prompt,output,reused\na,5,5,\na,6,5,7\n", r":3: reused: is more"),
    ("sessions-csv", "session,prompt,output,kept\na,5,5,6\n", r":2: kept: is more"),
    ("sessions-csv", "session,prompt,output,human\na,5,5,maybe\n", "human: expected true or false"),
    ("otel-genai", '{"a": 1}\n', "is neither a span nor"),
    ("otel-genai", jsonl(SPAN, SPAN), r"x\.jsonl:2: spanId: is the id of two spans"),
    ("otel-genai", jsonl({**SPAN, "parentSpanId": "s"}), r"x\.jsonl:1: parentSpanId: is its own parent"),
    ("otel-genai", jsonl({**SPAN, "parentSpanId": "t"}, {**SPAN, "spanId": "t", "parentSpanId": "s"}), "own parent"),
    ("otel-genai", jsonl({**SPAN, "endTimeUnixNano": "1"}), "endTimeUnixNano: lies before"),
    ("otel-genai", jsonl({**SPAN, "startTimeUnixNano": -1}), "startTimeUnixNano: expected nanoseconds"),
    ("otel-genai", jsonl({**SPAN, "startTimeUnixNano": "soon"}), "startTimeUnixNano: expected a whole number"),
    ("otel-genai", jsonl({**SPAN, "attributes": {"gen_ai.operation.name": "chat"}}),
     "gen_ai.usage.input_tokens: is missing"),
    ("otel-genai", jsonl({**SPAN, "attributes": [{"key": "gen_ai.operation.name", "value": 3}]}), "attributes"),
    ("otel-genai", jsonl({"resourceSpans": [{"scopeSpans": 3}]}), "scopeSpans: expected a list"),
])
def test_what_is_wrong_is_named(format, content, says, tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text(content)
    with pytest.raises(InputError, match=says) as caught:
        list(open_trace(file, format))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(file))
    problems = Problems("skip")
    list(open_trace(file, format, problems=problems))
    assert problems.skipped >= 1


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("content", [b"\xff\xfe\x00{", b"\x00" * 5000, b'{"a": "\xe9"}\n', b"\x89PNG\r\n\x1a\n\n\n{}"])
def test_binary_is_refused(format, content, tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_bytes(content)
    with pytest.raises(InputError):
        list(open_trace(file, format))
    with pytest.raises(InputError):
        guess(file)


def test_missing_files_and_folders(tmp_path):
    for format in (None, *FORMATS):
        with pytest.raises(InputError, match="does not exist"):
            list(open_trace(tmp_path / "nope", format))
    for format in (None, *FORMATS):
        with pytest.raises(InputError, match="folder"):
            list(open_trace(tmp_path, format))
    (tmp_path / "x.json").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        list(open_trace(tmp_path))


def test_a_huge_line_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("workloads.readers.base._LONGEST_LINE", 1000)
    file = tmp_path / "x.jsonl"
    file.write_text(jsonl(ROW) + '{"a": "' + "x" * 5000 + '"}\n' + jsonl({**ROW, "timestamp": 7}))
    with pytest.raises(InputError, match=":2: line is longer"):
        list(open_trace(file, "mooncake"))
    problems = Problems("skip")
    found = list(open_trace(file, "mooncake", problems=problems))
    assert [t.arrival_s for t in found] == [0, 0.007]
    assert problems.skipped == 1


def test_skipping_keeps_what_is_right(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text(jsonl(TURN, {**TURN, "turn": 1, "after": [7]}, {**TURN, "trajectory": "u"})
                    + "rubbish\n" + jsonl({**TURN, "trajectory": "v", "output": 0}, {**TURN, "trajectory": "w"}))
    problems = Problems("skip")
    found = list(open_trace(file, "kvplan", problems=problems))
    assert [t.turns for t in found] == [1, 1]  # t waits for no turn there is, v has a bad line; u and w are right
    assert problems.skipped == 3
    assert len(problems.first) == 3
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.json").write_text("{}")
    (tmp_path / "s" / "b.json").write_text((TRACES / "sessions" / "two.json").read_text())
    problems = Problems("skip")
    assert [t.source for t in open_trace(tmp_path / "s", "kv-cache-tester", problems=problems)] == ["b.json"]
    assert problems.skipped == 1


FIELDS = sorted({key for row in (TURN, ROW, REQUEST) for key in row}
                | {"after", "wait_for", "requests", "t", "in", "out", "type", "duration_ms", "prunes", "kept", "join",
                   "session_id", "delay", "block_size", "api_time", "stop", "spanId", "parentSpanId", "attributes",
                   "resourceSpans", "scopeSpans", "spans", "context", "startTimeUnixNano", "endTimeUnixNano",
                   "gen_ai.operation.name", "gen_ai.usage.input_tokens", "gen_ai.conversation.id"})
JUNK = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=4)
                    | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4), max_leaves=12)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=8), max_size=4),
       format=st.sampled_from(sorted(FORMATS)),
       base=st.sampled_from([{}, TURN, ROW, REQUEST, {"requests": [{"t": 0, "in": 9, "out": 1}]}, SPAN]))
def test_any_rubbish_is_an_input_error(rows, format, base, tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text(jsonl(*({**base, **row} for row in rows)))
    read_or_refuse(file, format)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["mooncake.jsonl", "dynamo.jsonl", "kvplan.jsonl", "sessions/one.json", "azure.csv",
                             "sessions.csv", "spans.jsonl"]),
       cut=st.integers(0, 2000), put=st.binary(max_size=6), drop=st.integers(0, 40))
def test_any_damage_is_an_input_error(name, cut, put, drop, tmp_path):
    raw = (TRACES / name).read_bytes()
    cut %= len(raw)
    file = tmp_path / f"x{Path(name).suffix}"
    file.write_bytes(raw[:cut] + put + raw[cut + drop:])
    format = guess(TRACES / name)
    read_or_refuse(file, format)


CELLS = st.sampled_from(["", "a", "b", "0", "5", "-1", "nan", "1e9", "7.5", "true", '"', "2023-11-16 18:17:03",
                         "9" * 50])


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.lists(CELLS, max_size=11), max_size=5), format=st.sampled_from(["azure", "sessions-csv"]),
       base=st.sampled_from(["", AZURE, CSV, "session,turn,prompt,output,wait,arrival,tool,human,kept,reused\n"]))
def test_any_table_is_an_input_error(rows, format, base, tmp_path):
    file = tmp_path / "x.csv"
    file.write_text(base + "".join(",".join(row) + "\n" for row in rows))
    read_or_refuse(file, format)


@pytest.mark.parametrize("format", FORMATS)
def test_a_line_of_ten_megabytes_is_no_trouble(format, tmp_path):
    file = tmp_path / "x.jsonl"
    for line in (b'{"a": "' + b"x" * 10**7 + b'"}\n', b"[" * 10**7 + b"\n", b"," * 10**7 + b"\n",
                 b'{"hash_ids": [' + b"1," * (5 * 10**6) + b"1]}\n", b"9" * 10**7):
        file.write_bytes(line)
        begun = time.process_time()
        read_or_refuse(file, format)
        assert time.process_time() - begun < 20


def read_or_refuse(file, format):
    """Read a file; a refusal is an InputError of one line, and skipping never refuses."""
    refused = None
    try:
        list(open_trace(file, format))
    except InputError as error:
        refused = str(error)
    assert refused is None or "\n" not in refused
    list(open_trace(file, format, on_error="skip"))
