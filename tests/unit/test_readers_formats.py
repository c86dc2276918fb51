"""Azure, CSV of sessions, OpenTelemetry spans: is what they record what is read, and does it survive conversion?"""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from sim.cli import main
from sim.errors import InputError
from workloads.arrivals import Arrivals
from workloads.convert import WRITERS, write
from workloads.generator import SyntheticWorkload
from workloads.readers import FORMATS, guess, open_trace
from workloads.spec import TrajectorySpec
from workloads.stats import in_order, shared_tokens, stats

TRACES = Path(__file__).parents[1] / "data" / "traces"
SHARED = Path(os.environ["KVPLAN_SHARED"]) / "data" / "traces" if "KVPLAN_SHARED" in os.environ else None
real = pytest.mark.skipif(SHARED is None or not SHARED.exists(), reason="KVPLAN_SHARED does not name the real traces")


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_azure(tmp_path):
    file = written(tmp_path / "x.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
                                       "2023-11-16 18:17:05.4799600,110,0\n")
    assert guess(file) == "azure"
    one, two = open_trace(file)
    assert (one.arrival_s, two.arrival_s) == (0, 1.5)
    assert (one.roots[0].prompt_tokens, one.roots[0].output_tokens, two.roots[0].output_tokens) == (4808, 10, 1)
    assert shared_tokens(one.roots[0], two.roots[0]) == 0
    newer = written(tmp_path / "y.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                        "2024-05-10 00:00:00.009930+00:00,2162,5\n"
                                        "2024-05-10 00:00:01.009930+00:00,3,5\n")
    assert [t.arrival_s for t in open_trace(newer)] == [0, 1]


@real
def test_real_azure():
    found = list(open_trace(SHARED / "azure" / "AzureLLMInferenceTrace_code.csv"))
    assert len(found) == 8819
    assert sum(t.roots[0].prompt_tokens for t in found) / 8819 == pytest.approx(2048, rel=0.01)


SESSIONS = """session,turn,prompt,output,wait,arrival,tool,human,kept,reused
a,0,1000,50,0,2.5,,,,
a,1,1200,60,3,,shell,,,
a,2,1210,70,100,,,true,,
a,3,400,10,5,,shell,,,300
b,0,500,5,,4,,,,
"""


def test_sessions(tmp_path):
    file = written(tmp_path / "x.csv", SESSIONS)
    assert guess(file) == "sessions-csv"
    a, b = open_trace(file)
    assert (a.arrival_s, b.arrival_s, a.turns, b.turns) == (2.5, 4, 4, 1)
    turns = in_order(a)
    assert [t.wait_s for t in turns] == [0, 3, 100, 5]
    assert [(t.tool, t.human) for t in turns] == [("", False), ("shell", False), ("tool", True), ("shell", False)]
    # there is room for the first output, not for the second; the last prompt says what it shares
    assert [t.kept_output for t in turns] == [50, 0, 0, 0]
    assert [shared_tokens(x, y) for x, y in pairwise(turns)] == [1000, 1200, 300]
    assert shared_tokens(turns[0], b.roots[0]) == 0
    other = written(tmp_path / "y.csv", "Session_ID,Input_Tokens,Output_Tokens\ns,10,2\ns,9,2\n")
    assert [t.prompt_tokens for t in in_order(next(open_trace(other)))] == [10, 9]


def span(own, operation, start, end, parent="", conversation="c", **more):
    known = {"gen_ai.operation.name": operation, "gen_ai.conversation.id": conversation, **more}
    return {"traceId": f"t{conversation}", "spanId": own, "parentSpanId": parent, "name": operation,
            "startTimeUnixNano": str(start * 10**9), "endTimeUnixNano": str(end * 10**9),
            "attributes": [{"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else
                            {"stringValue": value}} for key, value in known.items()]}


def tokens(prompt, output, cached=None):
    usage = {"gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": output}
    return usage if cached is None else {**usage, "gen_ai.usage.cache_read.input_tokens": cached}


SPANS = [
    span("c3", "chat", 40, 43, "a1", **tokens(2000, 30)),  # spans come in any order
    span("a1", "invoke_agent", 9, 60),
    span("c1", "chat", 10, 12, "a1", **tokens(1000, 50)),
    span("x1", "execute_tool", 12, 17, "a1", **{"gen_ai.tool.name": "shell"}),
    span("x0", "execute_tool", 12, 13, "a1", **{"gen_ai.tool.name": "read"}),
    span("c2", "chat", 18, 20, "a1", **tokens(1500, 60)),
    span("x2", "execute_tool", 20, 39, "a1", **{"gen_ai.tool.name": "task"}),
    span("a2", "invoke_agent", 21, 38, "x2"),  # a sub-agent
    span("s1", "chat", 22, 24, "a2", **tokens(300, 20)),
    span("s2", "chat", 30, 37, "a2", **tokens(400, 20)),
    span("http", "GET", 22, 24, "s1"),
    span("a3", "invoke_agent", 100, 110),  # the person comes back
    span("c4", "chat", 103, 104, "a3", **tokens(600, 5, 450)),
    span("bad", "chat", 105, 106, "a3", **{"error.type": "timeout"}),
    span("d1", "chat", 50, 51, "", "d", **{"gen_ai.usage.prompt_tokens": 70, "gen_ai.usage.completion_tokens": 3}),
]


def python_printed(raw):
    """The same span as the Python SDK prints it."""
    attributes = {item["key"]: next(iter(item["value"].values())) for item in raw["attributes"]}
    attributes = {key: int(value) if value.isdigit() else value for key, value in attributes.items()}

    def iso(nano):
        return f"1970-01-01T00:{int(nano) // 60 // 10**9:02}:{int(nano) // 10**9 % 60:02}.000000Z"

    return {"name": raw["name"], "context": {"trace_id": raw["traceId"], "span_id": raw["spanId"]},
            "parent_id": raw["parentSpanId"] or None, "start_time": iso(raw["startTimeUnixNano"]),
            "end_time": iso(raw["endTimeUnixNano"]), "attributes": attributes}


@pytest.mark.parametrize("form", ["export", "span", "python", "document"])
def test_spans(form, tmp_path):
    one = {"resourceSpans": [{"scopeSpans": [{"spans": SPANS[:4]}, {"spans": SPANS[4:]}]}]}
    rows = {"export": [one], "span": SPANS, "python": list(map(python_printed, SPANS)), "document": [one]}[form]
    text = json.dumps(one, indent=1) if form == "document" else "".join(json.dumps(row) + "\n" for row in rows)
    file = written(tmp_path / ("x.json" if form == "document" else "x.jsonl"), text)
    assert guess(file) == "otel-genai"
    c, d = open_trace(file)
    assert (c.arrival_s, d.arrival_s, c.turns, d.turns) == (0, 40, 6, 1)
    main = [t for t in in_order(c) if not t.branch]
    sub = [t for t in in_order(c) if t.branch]
    assert [t.prompt_tokens for t in main] == [1000, 1500, 2000, 600]
    assert [(t.tool, t.wait_s, t.human) for t in main] == [
        ("", 0, False), ("shell", 6, False), ("sub-agent", 3, False), ("human", 60, True)]
    assert [(t.prompt_tokens, t.wait_s) for t in sub] == [(300, 2), (400, 6)]
    assert main[2].pending == 2
    assert [t.kept_output for t in main] == [50, 60, 0, 0]
    assert shared_tokens(main[2], main[3]) == 450
    assert [t.prompt_tokens for t in in_order(d)] == [70]


def test_agents_after_each_other_and_calls_at_once(tmp_path):
    spans = [span("w", "invoke_workflow", 0, 100), span("a", "invoke_agent", 0, 10, "w"),
             span("b", "invoke_agent", 20, 30, "w"), span("a1", "chat", 1, 5, "a", **tokens(10, 1)),
             span("a2", "chat", 2, 7, "a", **tokens(10, 1)), span("a3", "chat", 9, 10, "a", **tokens(20, 1)),
             span("b1", "chat", 21, 22, "b", **tokens(30, 1))]
    (found,) = open_trace(written(tmp_path / "x.jsonl", "".join(json.dumps(row) + "\n" for row in spans)))
    a1, a2, a3, b1 = in_order(found)
    assert (a1.pending, a2.pending, a3.pending, b1.pending) == (0, 0, 2, 1)
    assert (a2.wait_s, a3.wait_s, b1.wait_s) == (1, 2, 11)


SPEC = {"prompt": [{"name": "system", "tokens": 512, "shared": "all"},
                   {"name": "task", "tokens": {"uniform": {"low": 10, "high": 900}}}], "turns": 8,
        "tools": {"shell": {"wait": {"lognormal": {"median": 3, "sigma": 1}}},
                  "ask": {"wait": 60, "human": True}}, "compaction": {"at": 4000, "to": 0.5}}
SUB = {"probability": 0.3, "children": 2, "join": "subagent", "result": 50,
       "agent": {"prompt": [{"name": "sub", "tokens": 200}], "turns": 2, "tools": {"shell": {"wait": 1}}}}


def drawn(n=12, **more):
    spec = TrajectorySpec.model_validate({**SPEC, **more})
    source = SyntheticWorkload(spec, Arrivals.model_validate({"poisson": {"rate": 1}})).trajectories(3, 0)
    return [next(source) for _ in range(n)]


SINGLE = {"mooncake", "azure"}
PLAIN = {"sessions-csv"}


@pytest.mark.parametrize("to", WRITERS)
def test_there_and_back(to, tmp_path):
    original = drawn(turns=1) if to in SINGLE else drawn() if to in PLAIN else drawn(branching=SUB)
    path = tmp_path / f"x{'.csv' if to in ('azure', 'sessions-csv') else '' if to == 'kv-cache-tester' else '.jsonl'}"
    assert write(original, path, to) == len(original)
    assert guess(path) == to
    again = list(open_trace(path))
    assert len(again) == len(original)
    block = {"mooncake": 512, "dynamo-agentic": 512, "kv-cache-tester": 64}.get(to, 1)
    for one, two in zip(original, again, strict=True):
        if to != "kv-cache-tester":
            assert two.arrival_s - again[0].arrival_s == pytest.approx(one.arrival_s - original[0].arrival_s, abs=2e-3)
        first, second = sorted_turns(one), sorted_turns(two)
        for x, y in zip(first, second, strict=True):
            assert (x.prompt_tokens, x.output_tokens) == (y.prompt_tokens, y.output_tokens)
            assert x.wait_s == pytest.approx(y.wait_s, abs=2e-6)
            if to in ("kvplan", "sessions-csv", "otel-genai"):
                assert x.human == y.human
                fits = any(f.branch == x.branch and f.prompt_tokens >= x.prompt_tokens + x.output_tokens
                               for f in x.next)
                assert y.kept_output == x.kept_output or not fits  # whether it stays shows in the turn after it
        for x, y, u, v in zip(first, first[1:], second, second[1:], strict=False):
            grew = y.prompt_tokens >= x.prompt_tokens and shared_tokens(x, y) < x.prompt_tokens  # spans cannot tell
            if x.branch == y.branch and to != "azure" and not (to == "otel-genai" and grew):
                exact, found = shared_tokens(x, y), shared_tokens(u, v)
                assert found == exact if block == 1 else exact - block < found <= exact
    if to in ("kvplan", "dynamo-agentic", "kv-cache-tester", "mooncake"):
        a, b = original[0].roots[0], original[1].roots[0]
        assert shared_tokens(again[0].roots[0], again[1].roots[0]) == shared_tokens(a, b) == 512


def sorted_turns(trajectory):
    """The turns by branch: formats differ in the order they write branches in."""
    return sorted(in_order(trajectory), key=lambda turn: (turn.branch, turn.index))


@pytest.mark.parametrize(("to", "more"), [
    ("mooncake", {}), ("azure", {}), ("sessions-csv", {"branching": SUB}),
    ("dynamo-agentic", {"branching": {"at": [1], "join": "first"}}),
    ("otel-genai", {"branching": {"at": [1], "join": "first"}}),
    ("kv-cache-tester", {"branching": {"probability": 1, "turns": 2, "depth": 2}}),
])
def test_what_a_format_cannot_say_is_refused(to, more, tmp_path):
    with pytest.raises(InputError, match=r"holds|has no join"):
        write(drawn(**more), tmp_path / "x", to)
    assert to == "kv-cache-tester" or not (tmp_path / "x").exists()


def test_a_conversion_reads_twice_and_holds_nothing(tmp_path):
    calls = []

    def afresh():
        calls.append(1)
        return open_trace(TRACES / "mooncake.jsonl")

    write(afresh, tmp_path / "x.jsonl", "kvplan")
    assert len(calls) == 2
    assert stats(open_trace(tmp_path / "x.jsonl")) == stats(open_trace(TRACES / "mooncake.jsonl"))


def test_the_command_counts_what_it_skips(tmp_path, capsys):
    file = written(tmp_path / "x.csv", SESSIONS + "c,0,none,5,,5,,,,\n")
    for arguments in (["stats", file, "--on-error", "skip"],
                      ["convert", file, "-o", tmp_path / "y.jsonl", "--on-error", "skip"]):
        with pytest.raises(SystemExit) as left:
            main(["workload", *map(str, arguments)])
        assert left.value.code == 0
        told = capsys.readouterr().err
        assert "skipped 1" in told
        assert "x.csv:7: prompt: expected a whole number (got none)" in told
    with pytest.raises(SystemExit) as left:
        main(["workload", "convert", str(file), "-o", str(tmp_path / "z"), "--to", "nope"])
    assert left.value.code == 2
    assert set(FORMATS) == set(WRITERS)
