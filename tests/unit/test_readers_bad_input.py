"""Is anything wrong in a trace told in one line, with its place, and never a traceback or a hang?"""

import json
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
                   "session_id", "delay", "block_size", "api_time", "stop"})
JUNK = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=4)
                    | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4), max_leaves=12)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=8), max_size=4),
       format=st.sampled_from(sorted(FORMATS)),
       base=st.sampled_from([{}, TURN, ROW, REQUEST, {"requests": [{"t": 0, "in": 9, "out": 1}]}]))
def test_any_rubbish_is_an_input_error(rows, format, base, tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text(jsonl(*({**base, **row} for row in rows)))
    read_or_refuse(file, format)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["mooncake.jsonl", "dynamo.jsonl", "kvplan.jsonl", "sessions/one.json"]),
       cut=st.integers(0, 2000), put=st.binary(max_size=6), drop=st.integers(0, 40))
def test_any_damage_is_an_input_error(name, cut, put, drop, tmp_path):
    raw = (TRACES / name).read_bytes()
    cut %= len(raw)
    file = tmp_path / f"x{Path(name).suffix}"
    file.write_bytes(raw[:cut] + put + raw[cut + drop:])
    format = guess(TRACES / name)
    read_or_refuse(file, format)


def read_or_refuse(file, format):
    """Read a file; a refusal is an InputError of one line, and skipping never refuses."""
    refused = None
    try:
        list(open_trace(file, format))
    except InputError as error:
        refused = str(error)
    assert refused is None or "\n" not in refused
    list(open_trace(file, format, on_error="skip"))
