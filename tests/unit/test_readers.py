"""Do the readers see in a trace what was recorded?"""

import itertools
import json
import os
from pathlib import Path

import pytest

from workloads.arrivals import Arrivals
from workloads.convert import write_kvplan, write_mooncake
from workloads.generator import SyntheticWorkload
from workloads.readers import guess, open_trace
from workloads.readers.hashed import HashedPrompts
from workloads.spec import TrajectorySpec
from workloads.stats import in_order, shared_tokens, stats

TRACES = Path(__file__).parents[1] / "data" / "traces"
SHARED = Path(os.environ["KVPLAN_SHARED"]) / "data" / "traces" if "KVPLAN_SHARED" in os.environ else None
real = pytest.mark.skipif(SHARED is None or not SHARED.exists(), reason="KVPLAN_SHARED does not name the real traces")
FILES = {"sessions": "kv-cache-tester", "sessions/one.json": "kv-cache-tester", "mooncake.jsonl": "mooncake",
         "dynamo.jsonl": "dynamo-agentic", "kvplan.jsonl": "kvplan"}


def read(name, *args, **kwargs):
    return list(open_trace(TRACES / name, *args, **kwargs))


def alike(a, b):
    """Two lists of trajectories with the same turns, whose prompts share the same prefixes."""
    assert len(a) == len(b)
    before = []
    for one, two in zip(a, b, strict=True):
        assert (one.turns, one.group, one.arrival_s) == (two.turns, two.group, two.arrival_s)
        first, second = in_order(one), in_order(two)
        for x, y in zip(first, second, strict=True):
            for name in ("prompt_tokens", "output_tokens", "kept_output", "wait_s", "tool", "human", "branch",
                         "pending"):
                assert getattr(x, name) == getattr(y, name), name
            assert [f.index for f in x.next] == [f.index for f in y.next]
            assert sorted(p.index for p in x.prunes) == sorted(p.index for p in y.prunes)
            for u, v in before[-60:]:
                assert shared_tokens(u, x) == shared_tokens(v, y)
            before.append((x, y))
    assert stats(a) == stats(b)


@pytest.mark.parametrize(("name", "format"), FILES.items())
def test_the_format_is_guessed(name, format):
    assert guess(TRACES / name) == format


def test_kv_cache_tester_session():
    one, two = read("sessions")
    turns = in_order(one)
    assert (one.source, two.source, one.turns) == ("one.json", "two.json", 9)
    main = [t for t in turns if t.branch == 0]
    assert [t.prompt_tokens for t in main] == [650, 720, 800, 1000, 700, 720]
    # waits from the end of the one before (t + 2 s); the fourth from the last end of its sub-agents, 102.5 + 30.5
    assert [t.wait_s for t in main] == [0, 5, 91, 17, 8, 4]
    assert [t.tool for t in main] == ["", "tool", "human", "sub-agent", "tool", "unknown"]
    assert [t.human for t in main] == [False, False, True, False, False, False]
    subs = [t for t in turns if t.branch]
    assert [(t.branch, t.wait_s, t.tool) for t in subs] == [(1, 0.5, ""), (1, 5, "tool"), (2, 1, "")]
    assert [f.branch for f in main[2].next] == [1, 2, 0]
    assert main[3].pending == 3  # the parent's turn and both sub-agents
    # 10 blocks of 64 are shared; the tail of 10 tokens is not
    assert [shared_tokens(a, b) for a, b in itertools.pairwise(main)] == [640, 704, 768, 320, 640]
    assert shared_tokens(subs[0], subs[2]) == 128
    assert [t.output_tokens for t in in_order(two)] == [100, 1]
    assert all(t.kept_output == 0 for t in turns)


def test_mooncake_requests():
    rows = [in_order(t)[0] for t in read("mooncake.jsonl")]
    assert [t.prompt_tokens for t in rows] == [1300, 1400, 1536, 600, 2000]
    assert shared_tokens(rows[0], rows[1]) == 1024
    assert shared_tokens(rows[0], rows[2]) == 1300  # the same last block, as far as the shorter prompt fills it
    assert shared_tokens(rows[1], rows[4]) == 1400
    assert shared_tokens(rows[0], rows[3]) == 0
    assert rows[3].output_tokens == 1


def test_dynamo_requests():
    first, second = read("dynamo.jsonl")
    assert (first.arrival_s, second.arrival_s) == (0.5, 1.0)
    c1, c2, c3 = in_order(first)
    assert [t.wait_s for t in (c1, c2, c3)] == [0, 1, 0]
    assert (shared_tokens(c1, c2), shared_tokens(c2, c3)) == (300, 0)
    a1, b1, a2 = in_order(second)
    assert (b1.wait_s, b1.tool, a2.wait_s, a2.tool) == (0.1, "delay", 2.0, "shell")
    assert (a2.pending, [t.branch for t in (a1, b1, a2)]) == (2, [0, 1, 0])
    assert shared_tokens(b1, a2) == 1024
    with pytest.raises(ValueError, match="2 ids of 1024 tokens"):
        read("dynamo.jsonl", block_size=1024)


def test_kvplan_turns():
    one, two = read("kvplan.jsonl")
    assert (one.group, two.arrival_s) == ("repo/1", 2.5)
    t0, left, right, join = in_order(one)
    assert (left.branch, right.branch, join.pending, join.prunes) == (1, 2, 1, [left, right])
    assert (shared_tokens(t0, left), shared_tokens(left, right), shared_tokens(left, join)) == (180, 190, 190)
    assert shared_tokens(t0, in_order(two)[0]) == 140
    assert right.stream is not join.stream
    assert in_order(two)[1].human


@pytest.mark.parametrize("name", FILES)
def test_conversion_to_kvplan_and_back(name, tmp_path):
    original = read(name)
    write_kvplan(original, tmp_path / "x.jsonl")
    alike(original, list(open_trace(tmp_path / "x.jsonl")))


@pytest.mark.parametrize("join", ["all", "first", "best", "subagent"])
def test_conversion_of_generated_agents(join, tmp_path):
    spec = TrajectorySpec.model_validate({
        "prompt": [{"name": "system", "tokens": 500, "shared": "all"},
                   {"name": "repo", "tokens": 300, "shared": "group", "groups": {"count": 2}},
                   {"name": "task", "tokens": {"uniform": {"low": 1, "high": 90}}}],
        "turns": 6, "branching": {"probability": 0.4, "children": 2, "turns": 2, "depth": 2, "join": join},
        "unstable_serialization": {"probability": 0.2}, "compaction": {"at": 3000, "to": 0.4},
        "tool_list_change": {"zone": "repo", "probability": 0.1}})
    source = SyntheticWorkload(spec, Arrivals.model_validate({"poisson": {"rate": 1}})).trajectories(3, 0)
    original = [next(source) for _ in range(8)]
    write_kvplan(original, tmp_path / "x.jsonl")
    again = list(open_trace(tmp_path / "x.jsonl"))
    alike(original, again)
    write_kvplan(again, tmp_path / "y.jsonl")
    assert (tmp_path / "x.jsonl").read_text() == (tmp_path / "y.jsonl").read_text()


def test_conversion_to_mooncake_and_back(tmp_path):
    original = read("mooncake.jsonl")
    write_mooncake(original, tmp_path / "x.jsonl")
    again = list(open_trace(tmp_path / "x.jsonl"))
    rows = [(in_order(t)[0], in_order(u)[0]) for t, u in zip(original, again, strict=True)]
    for a, b in rows:
        assert (a.prompt_tokens, a.output_tokens) == (b.prompt_tokens, b.output_tokens)
        for c, d in rows:  # whole blocks are kept
            assert shared_tokens(a, c) // 512 == shared_tokens(b, d) // 512
    with pytest.raises(ValueError, match="single requests"):
        write_mooncake(read("kvplan.jsonl"), tmp_path / "y.jsonl")


def test_progress_is_told():
    told = []
    assert len(read("mooncake.jsonl", progress=told.append)) == sum(told) == 5


def test_hashed_prefix_continues_its_stream_or_branches_off():
    prompts = HashedPrompts(10)
    a, b, c, d = (prompts.place(*row) for row in (([1, 2], 20), ([1, 2, 3], 30), ([1, 2, 4], 30), ([1, 5], 20)))
    assert a is b
    assert (c.parent, c.attach, d.parent, d.attach) == (a, 20, a, 10)
    tails = [prompts.place([1, 2], 25), prompts.place([1, 2], 25), prompts.place([], 7)]
    assert [(t.parent, t.attach) for t in tails] == [(a, 20), (a, 20), (None, 0)]
    assert len(set(tails)) == 3
    for ids in ([1, 9, 3], [6, 6], [2], [9, 1], [1, 3]):
        with pytest.raises(ValueError, match="hash_ids"):
            prompts.place(ids, 10 * len(ids))
    with pytest.raises(ValueError, match="3 ids of 10 tokens"):
        prompts.place([1, 2, 3], 20)


def raw_hit_rate(requests, block):
    """Prompt tokens, and those of blocks seen before, straight from the hash ids."""
    filled = {}  # id -> tokens of its block that some prompt has filled
    hit = total = 0
    for ids, tokens in requests:
        total += tokens
        fills = [min(block, tokens - block * index) for index in range(len(ids))]
        for block_id, fill in zip(ids, fills, strict=True):
            if block_id not in filled:
                break
            hit += min(fill, filled[block_id])
            if filled[block_id] < block:
                break
        for block_id, fill in zip(ids, fills, strict=True):
            filled[block_id] = max(fill, filled.get(block_id, 0))
    return hit, total


def session_requests(requests):
    for request in requests:
        if request["type"] == "subagent":
            yield from session_requests(request["requests"])
        else:
            yield request["hash_ids"], request["in"]


def check_sessions(folder):
    hit = total = 0
    for file in sorted(folder.glob("*.json")):
        h, t = raw_hit_rate(session_requests(json.loads(file.read_text())["requests"]), 64)
        hit, total = hit + h, total + t
    found = stats(open_trace(folder))
    assert found["hit_rate"] == pytest.approx(hit / total, rel=1e-12)
    return found


def check_mooncake(file):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    hit, total = raw_hit_rate(((r["hash_ids"], r["input_length"]) for r in rows), 512)
    found = stats(open_trace(file))
    assert found["hit_rate"] == pytest.approx(hit / total, rel=1e-12)
    return found


def test_hit_rate_equals_a_plain_set_of_hashes():
    check_sessions(TRACES / "sessions")
    check_mooncake(TRACES / "mooncake.jsonl")


@real
def test_real_sessions():
    found = check_sessions(SHARED / "kv-cache-tester")
    assert (found["trajectories"], found["turns"], found["branches"]) == (52, 2852, 15)


@real
def test_real_conversations():
    assert check_mooncake(SHARED / "mooncake" / "conversation_trace.jsonl")["turns"] == 12_031
    assert check_mooncake(SHARED / "mooncake" / "synthetic_trace.jsonl")["turns"] == 3_993


@real
def test_real_sessions_convert(tmp_path):
    original = list(open_trace(SHARED / "kv-cache-tester"))[:8]
    write_kvplan(original, tmp_path / "x.jsonl")
    alike(original, list(open_trace(tmp_path / "x.jsonl")))


def test_the_example_of_the_documentation(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "trace_format.md").read_text(encoding="utf-8")
    (tmp_path / "x.jsonl").write_text(page.split("```json\n")[1].split("```")[0])
    (trajectory,) = open_trace(tmp_path / "x.jsonl")
    one, two = in_order(trajectory)
    assert shared_tokens(one, two) == 6800
    assert two.stream is one.stream
