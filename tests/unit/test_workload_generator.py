"""Does a spec become the agents it describes: their turns, what they share, and what breaks it?"""

from collections import Counter
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from workloads.arrivals import Arrivals
from workloads.generator import SyntheticWorkload
from workloads.spec import TrajectorySpec
from workloads.stats import in_order, shared_tokens, stats

PLAIN = {"prompt": [{"name": "system", "tokens": 1000, "shared": "all"}, {"name": "task", "tokens": 200}],
         "turns": 5, "output": 50, "observation": 100, "tools": {"tool": {"wait": 3}}}


def draw(spec, n=3, seed=7, replication=0, arrivals=None):
    workload = SyntheticWorkload(TrajectorySpec.model_validate(spec),
                                 Arrivals.model_validate(arrivals or {"closed": {"concurrency": 2}}))
    return list(islice(workload.trajectories(seed, replication), n))


def shape(trajectories):
    return [(t.number, t.arrival_s, t.group, [
        (turn.prompt_tokens, turn.output_tokens, turn.kept_output, turn.wait_s, turn.tool, turn.human, turn.branch,
         turn.index, turn.pending, [f.index for f in turn.next], [p.index for p in turn.prunes], turn.stream.attach)
        for turn in in_order(t)]) for t in trajectories]


def test_a_plain_agent_appends_to_one_stream():
    one, two, _ = draw(PLAIN)
    turns = in_order(one)
    assert [t.prompt_tokens for t in turns] == [1200, 1350, 1500, 1650, 1800]
    assert {t.stream for t in turns} == {turns[0].stream}
    assert [t.wait_s for t in turns] == [0, 3, 3, 3, 3]
    assert [t.pending for t in turns] == [0, 1, 1, 1, 1]
    assert all(t.kept_output == 50 for t in turns)
    assert shared_tokens(turns[0], in_order(two)[0]) == 1000
    assert turns[0].stream.parent is in_order(two)[0].stream.parent


def test_groups_share_their_zone_and_no_more():
    spec = {**PLAIN, "prompt": [{"name": "system", "tokens": 1000, "shared": "all"},
                                {"name": "repo", "tokens": {"uniform": {"low": 100, "high": 900}}, "shared": "group",
                                 "groups": {"count": 3, "zipf": 1}}]}
    firsts = {}
    for t in draw(spec, 60):
        turn = in_order(t)[0]
        for group, other in firsts.items():
            assert shared_tokens(turn, other) == (turn.prompt_tokens if group == t.group else 1000)
        firsts.setdefault(t.group, turn)
    assert set(firsts) == {"repo/0", "repo/1", "repo/2"}


def test_shared_content_behind_private_content_is_not_shared():
    spec = {**PLAIN, "prompt": [{"name": "task", "tokens": 200}, {"name": "system", "tokens": 1000, "shared": "all"}]}
    one, two, _ = draw(spec)
    assert shared_tokens(in_order(one)[0], in_order(two)[0]) == 0


def test_a_volatile_field_breaks_everything_behind_it():
    spec = {**PLAIN, "prompt": [{"name": "system", "tokens": 1000, "shared": "all"},
                                {"name": "clock", "tokens": 10, "shared": "none"}, {"name": "task", "tokens": 200}]}
    turns = in_order(draw(spec)[0])
    assert all(shared_tokens(a, b) == 1000 for a, b in pairwise(turns))
    assert all(t.stream.label == "clock" for t in turns)


def test_a_volatile_field_at_the_end_costs_the_output_only():
    spec = {**PLAIN, "prompt": [*PLAIN["prompt"], {"name": "conversation"},
                                {"name": "clock", "tokens": 10, "shared": "none"}]}
    turns = in_order(draw(spec)[0])
    assert [t.prompt_tokens for t in turns] == [1210, 1360, 1510, 1660, 1810]
    assert [shared_tokens(a, b) for a, b in pairwise(turns)] == [1200, 1350, 1500, 1650]
    assert all(t.kept_output == 0 for t in turns)


def test_stripped_thinking_is_not_reused():
    turns = in_order(draw({**PLAIN, "strip_thinking": 0.4})[0])
    assert [t.prompt_tokens for t in turns] == [1200, 1330, 1460, 1590, 1720]
    assert all(t.kept_output == 0 for t in turns)


def test_tool_list_change_breaks_at_its_zone():
    spec = {**PLAIN, "prompt": [{"name": "system", "tokens": 1000, "shared": "all"},
                                {"name": "tools", "tokens": 500, "shared": "all"}, {"name": "task", "tokens": 200}],
            "tool_list_change": {"zone": "tools", "probability": 1}}
    turns = in_order(draw(spec)[0])
    assert all(shared_tokens(a, b) == 1000 for a, b in pairwise(turns))


def test_unstable_serialization_breaks_inside_the_conversation():
    spec = {**PLAIN, "unstable_serialization": {"probability": 1, "kept": 0.5}}
    turns = in_order(draw(spec)[0])
    assert [shared_tokens(a, b) for a, b in pairwise(turns)] == [
        min(a.prompt_tokens, 1200 + (b.prompt_tokens - 1200) // 2) for a, b in pairwise(turns)]


def test_compaction_cuts_the_conversation_and_keeps_the_zones():
    spec = {**PLAIN, "turns": 12, "compaction": {"at": 2000, "to": 0.7}}
    turns = in_order(draw(spec)[0])
    assert max(t.prompt_tokens for t in turns) <= 2000
    cut = next(b for a, b in pairwise(turns) if b.prompt_tokens < a.prompt_tokens)
    assert cut.prompt_tokens == round(0.7 * 2100)
    assert shared_tokens(turns[cut.index - 1], cut) == 1200


def test_compaction_from_a_zone_on_to_a_drawn_length():
    spec = {**PLAIN, "turns": 12, "compaction": {"at": 2000, "to": {"uniform": {"low": 300, "high": 400}},
                                                 "zone": "system"}}
    turns = in_order(draw(spec)[0])
    cut = next(b for a, b in pairwise(turns) if b.prompt_tokens < a.prompt_tokens)
    assert 300 <= cut.prompt_tokens <= 400
    assert shared_tokens(turns[cut.index - 1], cut) == 0  # the first zone went too
    drawn = draw({**PLAIN, "turns": 30, "compaction": {"at": {"uniform": {"low": 1500, "high": 3000}}, "to": 0.5}}, 40)
    peaks = [max(t.prompt_tokens for t in in_order(trajectory)) for trajectory in drawn]
    assert 1300 < min(peaks) < 2000 < max(peaks) <= 3000


def test_serialization_from_a_zone_on():
    spec = {**PLAIN, "unstable_serialization": {"probability": 1, "kept": 0.25, "zone": "system"}}
    turns = in_order(draw(spec)[0])
    assert [shared_tokens(a, b) for a, b in pairwise(turns)] == [
        min(a.prompt_tokens, b.prompt_tokens // 4) for a, b in pairwise(turns)]


def test_the_gap_is_the_tool_the_client_and_the_approval():
    spec = {**PLAIN, "turns": 400, "client": 5, "tools": {
        "free": {"wait": 1}, "asked": {"wait": 2, "approval": {"probability": 0.5, "wait": 100}}}}
    turns = in_order(draw(spec)[0])[1:]
    assert {(t.tool, t.wait_s, t.human) for t in turns} == {("free", 6, False), ("asked", 7, False),
                                                            ("asked", 107, True)}
    assert 0.4 < sum(t.human for t in turns) / sum(t.tool == "asked" for t in turns) < 0.6


def test_groups_are_popular_by_zipf():
    spec = {**PLAIN, "turns": 1, "prompt": [{"name": "repo", "tokens": 10, "shared": "group",
                                             "groups": {"count": 20, "zipf": 1.2}}]}
    counts = Counter(t.group for t in draw(spec, 4000))
    weights = [k ** -1.2 for k in range(1, 21)]
    for rank in (1, 2, 5):
        assert counts[f"repo/{rank - 1}"] / 4000 == pytest.approx(weights[rank - 1] / sum(weights), rel=0.15)


def test_context_limit_ends_a_trajectory():
    turns = in_order(draw({**PLAIN, "turns": 50, "context_limit": 2000})[0])
    assert len(turns) == 6
    assert all(t.prompt_tokens + t.output_tokens <= 2000 for t in turns)


def test_a_first_prompt_beyond_the_limit_is_cut():
    task = {"name": "task", "tokens": {"uniform": {"low": 10, "high": 1000}}}
    drawn = [in_order(agent) for agent in draw({**PLAIN, "prompt": [task], "turns": 1, "context_limit": 500}, 40)]
    firsts = [turns[0].prompt_tokens for turns in drawn]
    assert max(firsts) == 450
    assert min(firsts) < 450
    assert {turns[0].output_tokens for turns in drawn} == {50}
    with pytest.raises(ValueError, match="context_limit: must be above the tokens of a first prompt, which has 1200"):
        TrajectorySpec.model_validate({**PLAIN, "context_limit": 500})


def test_join_all_waits_for_every_child_and_takes_their_outputs():
    spec = {**PLAIN, "turns": 3, "branching": {"at": [1], "children": 3, "turns": 2, "task": 10}}
    t = draw(spec)[0]
    turns = in_order(t)
    assert t.turns == len(turns) == 3 + 3 * 2
    fork, join = turns[1], turns[-1]
    children = [turn for turn in turns if turn.branch]
    assert [f.branch for f in fork.next] == [1, 2, 3]
    assert join.pending == 3
    assert join.prompt_tokens == fork.prompt_tokens + 50 + 3 * 50
    assert children[0].prompt_tokens == fork.prompt_tokens + 50 + 10
    assert shared_tokens(children[0], children[2]) == fork.prompt_tokens + 50
    assert shared_tokens(fork, join) == fork.prompt_tokens


def test_join_first_prunes_and_join_best_goes_on_from_a_child():
    branching = {"at": [0], "children": 3, "turns": 1, "join": "first"}
    turns = in_order(draw({**PLAIN, "turns": 2, "branching": branching})[0])
    join = turns[-1]
    assert join.pending == 1
    assert [turn.index for turn in join.prunes] == [1, 2, 3]
    assert all(join in child.next for child in join.prunes)
    turns = in_order(draw({**PLAIN, "turns": 2, "branching": {**branching, "join": "best"}})[0])
    join = turns[-1]
    assert join.pending == 3
    assert join.stream in {child.stream for child in turns[1:-1]}


def test_sub_agents_have_their_own_prompt_and_return_a_result():
    agent = {"prompt": [{"name": "sub", "tokens": 300, "shared": "all"}], "turns": 2, "output": 20, "observation": 30}
    spec = {**PLAIN, "turns": 2, "branching": {"at": [0], "join": "subagent", "result": 70, "agent": agent}}
    one, two, _ = draw(spec)
    turns = in_order(one)
    assert [t.prompt_tokens for t in turns] == [1200, 300, 350, 300, 350, 1200 + 50 + 2 * 70]
    assert shared_tokens(turns[0], turns[1]) == 0
    assert shared_tokens(turns[1], in_order(two)[1]) == 300
    assert turns[-1].tool == "sub-agent"


def test_nested_branches_stop_at_the_depth():
    spec = {**PLAIN, "turns": 2, "branching": {"probability": 1, "children": 2, "turns": 2, "depth": 2}}
    t = draw(spec, 1)[0]
    # main: 2 turns and one fork; each of 2 children: 2 turns and one fork; each of their 2 children: 2 turns
    assert t.turns == 2 + 2 * (2 + 2 * 2)


def test_same_seed_same_agents_whatever_the_arrivals():
    assert shape(draw(RICH, 20)) == shape(draw(RICH, 20))
    closed, poisson = shape(draw(RICH, 20)), shape(draw(RICH, 20, arrivals={"poisson": {"rate": 1}}))
    assert [row[2:] for row in closed] == [row[2:] for row in poisson]
    assert closed != shape(draw(RICH, 20, seed=8))
    assert closed != shape(draw(RICH, 20, replication=1))


RICH = {
    "prompt": [{"name": "system", "tokens": 500, "shared": "all"},
               {"name": "repo", "tokens": {"uniform": {"low": 10, "high": 900}}, "shared": "group",
                "groups": {"count": 4}},
               {"name": "task", "tokens": {"lognormal": {"median": 100, "sigma": 1}}}],
    "turns": {"lognormal": {"median": 8, "sigma": 1, "max": 40}},
    "tools": {"a": {"weight": 2, "wait": {"lognormal": {"median": 2, "sigma": 1}}},
              "ask": {"wait": 100, "human": True, "observation": 5}},
    "branching": {"probability": 0.2, "children": {"uniform": {"low": 1, "high": 3}}, "turns": 2, "depth": 2},
    "compaction": {"at": 6000, "to": 0.3}, "context_limit": 9000,
    "tool_list_change": {"zone": "system", "probability": 0.1}, "unstable_serialization": {"probability": 0.1},
}


@settings(max_examples=60)
@given(join=st.sampled_from(["all", "first", "best", "subagent"]), volatile=st.booleans(), tail=st.booleans(),
       strip=st.sampled_from([0, 0.3, 1]), limit=st.sampled_from([None, 600, 9000]), seed=st.integers(0, 1000))
def test_every_trajectory_is_sound(join, volatile, tail, strip, limit, seed):
    prompt = list(RICH["prompt"])
    if volatile:
        prompt.insert(1, {"name": "clock", "tokens": 7, "shared": "none"})
    if tail:
        prompt += [{"name": "conversation"}, {"name": "end", "tokens": 5}]
    spec = {**RICH, "prompt": prompt, "strip_thinking": strip, "context_limit": limit,
            "compaction": None if limit == 600 else RICH["compaction"],
            "branching": {**RICH["branching"], "join": join}}
    for t in draw(spec, 4, seed=seed):
        check_sound(t)


def check_sound(trajectory):
    """A graph in order, that ends; prompts that lie on their streams; kept output that overwrites nothing."""
    turns = in_order(trajectory)
    assert [turn.index for turn in turns] == list(range(trajectory.turns))
    waits = {turn: turn.pending for turn in turns}
    written = {}
    for turn in turns:
        assert waits[turn] <= 0, "a turn comes after those it waits for"
        for follower in turn.next:
            assert follower.index > turn.index
            waits[follower] -= 1
        assert turn.prompt_tokens >= max(1, turn.stream.attach)
        assert 0 <= turn.kept_output <= turn.output_tokens
        assert turn.wait_s >= 0
        if turn.kept_output:  # no two outputs at the same place
            assert written.get(turn.stream, -1) <= turn.prompt_tokens
            written[turn.stream] = turn.prompt_tokens + turn.kept_output
        depth, stream = 0, turn.stream
        while stream.parent is not None:
            assert stream.attach > 0
            assert stream.attach >= stream.parent.attach
            stream, depth = stream.parent, depth + 1
        assert depth <= 40
    assert {turn for turn in turns if not turn.pending} == set(trajectory.roots)


def test_open_arrivals_never_fall():
    times = [t.arrival_s for t in draw(PLAIN, 200, arrivals={"gamma": {"rate": 3, "cv": 2}})]
    assert times == sorted(times)
    assert times[0] > 0


def test_stats_of_a_plain_agent():
    found = stats(draw(PLAIN, 2))
    assert found["turns"] == 10
    prompts = [1200, 1350, 1500, 1650, 1800]
    hits = 2 * sum(prompts[:-1]) + 4 * 2 * 50 + 1000  # all but new content; the other's system prompt
    assert found["hit_rate"] == pytest.approx(hits / (2 * sum(prompts)))
    assert found["prompt_hit_rate"] == pytest.approx((hits - 400) / (2 * sum(prompts)))
    assert found["waits_by_tool"]["tool"]["p50"] == 3


@pytest.mark.parametrize("change", [
    {"turn": 3}, {"prompt": []}, {"prompt": [{"name": "a", "tokens": 1}, {"name": "a", "tokens": 2}]},
    {"prompt": [{"name": "a", "tokens": 1, "shared": "group"}]}, {"prompt": [{"name": "a"}]},
    {"prompt": [{"name": "a", "tokens": 1, "groups": {"count": 3}}]}, {"tools": {}}, {"tools": {"a": {"weight": 0}}},
    {"branching": {}}, {"branching": {"at": [0], "join": "best", "agent": {}}}, {"branching": {"probability": 2}},
    {"compaction": {"at": 100, "to": 200}}, {"compaction": {"at": 100}, "context_limit": 100},
    {"tool_list_change": {"zone": "nope", "probability": 0.1}}, {"compaction": {"at": 100, "zone": "nope"}},
    {"unstable_serialization": {"probability": 0.1, "zone": "nope"}}, {"compaction": {"at": 0}},
    {"tools": {"a": {"approval": {"probability": 1}}}}, {"client": "3 GB"}, {"strip_thinking": 1.5}, {"output": -1},
    {"prompt": [{"name": "conversation", "tokens": 4}]}, {"turns": "3 GB"}, {"output": "3 s"},
])
def test_nonsense_is_refused(change):
    with pytest.raises(ValidationError):
        TrajectorySpec.model_validate({**PLAIN, **change})
