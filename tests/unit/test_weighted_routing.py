"""Does a router with several weighted scores choose as llm-d's scorers do, by hand and in a run?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sim
from sim.engine.sent import Sent
from sim.errors import InputError
from sim.policies.routing import Weighted
from workloads.trajectory import Stream


class View:
    """Three replicas; what no test asks for is not there."""

    def __init__(self, **seen: Any) -> None:
        self.seen = seen
        self.asked: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return 3

    def __getattr__(self, name: str) -> Any:
        return lambda: self.seen[name]

    def sent(self, capacity: int, head: int) -> list[int]:
        self.asked.append((capacity, head))
        return self.seen["sent"] if capacity == 500_000 else self.seen["host_sent"]


def only(**weights: float) -> Weighted:
    return Weighted(**{"waiting": 0, "turns": 0, "kv_use": 0, "prefix": 0, "host_prefix": 0} | weights)


def test_a_choice_worked_out_by_hand():
    """Waiting 0, 4, 2 scores 1, 0, 1/2; a use of 0.9, 0.5, 0.2 scores 0.1, 0.5, 0.8; sent 0, 4096, 2048 of 4,096
    scores 0, 1, 1/2. With 1 : 1 : 1 the sums are 1.1, 1.5, 1.8; with 2 : 2 : 8 they are 2.2, 9, 6.6."""
    view = View(waiting=[0, 4, 2], kv_use=[0.9, 0.5, 0.2], sent=[0, 4096, 2048])
    assert only(waiting=1, kv_use=1, prefix=1).choose(view, None, 0, 30_000) == 2
    assert only(waiting=2, kv_use=2, prefix=8).choose(view, None, 0, 30_000) == 1
    assert view.asked == [(500_000, 4096)] * 2


def test_each_score_alone():
    assert only(waiting=1).choose(View(waiting=[3, 2, 5]), None, 0, 100) == 1
    assert only(turns=1).choose(View(loads=[3, 2, 1]), None, 0, 100) == 2
    assert only(kv_use=1).choose(View(kv_use=[0.2, 0.1, 0.3]), None, 0, 100) == 1
    assert only(prefix=1, knows="held").choose(View(matches=[0, 64, 96]), None, 0, 100) == 2
    assert only(host_prefix=1, knows="held").choose(View(host_matches=[80, 64, 0]), None, 0, 100) == 0
    assert only(host_prefix=1, host_remembers=656_000).choose(View(host_sent=[0, 9, 4]), None, 0, 100) == 1


def test_active_requests_are_measured_against_the_most_and_waiting_ones_against_the_range():
    """Of 8, 9 and 10 turns the first scores 1/5 when they are active, 1 when they wait: 0.3 of a prefix decides."""
    view = View(loads=[8, 9, 10], waiting=[8, 9, 10], sent=[0, 30, 30])
    assert only(turns=1, prefix=1).choose(view, None, 0, 100) == 1
    assert only(waiting=1, prefix=1).choose(view, None, 0, 100) == 0


def test_equals_take_turns_and_a_short_prompt_is_its_own_head():
    view = View(waiting=[0, 1, 0], kv_use=[0.0] * 3, sent=[0] * 3)
    assert [Weighted().choose(view, None, turn, 100) for turn in range(4)] == [0, 2, 0, 2]
    assert view.asked == [(500_000, 100)] * 4
    assert only().choose(View(), None, 5, 100) == 2


def test_what_was_sent_is_remembered_up_to_the_capacity_and_the_rest_from_its_end():
    one, two, memory = Stream(), Stream(), Sent(100)
    memory.add(one, 60)
    memory.add(two, 60)
    assert (memory.match(one, 60), memory.match(two, 60), memory.tokens) == (40, 60, 100)
    memory.add(one, 60)
    assert (memory.match(one, 60), memory.match(two, 60)) == (60, 40)
    memory.add(two, 500)
    assert (memory.match(one, 60), memory.match(two, 500)) == (0, 100)


def test_a_branch_is_remembered_with_what_it_grew_out_of():
    shared = Stream()
    left, right = Stream(shared, 50), Stream(shared, 50)
    memory = Sent(1000)
    memory.add(left, 80)
    assert (memory.match(left, 80), memory.match(right, 80), memory.match(shared, 80)) == (80, 50, 50)
    small = Sent(60)
    small.add(left, 80)
    assert (small.match(left, 80), small.match(right, 80)) == (60, 50)


@st.composite
def prompts(draw: st.DrawFn) -> list[tuple[Stream, int]]:
    streams = [Stream()]
    for _ in range(draw(st.integers(0, 6))):
        parent = draw(st.sampled_from([None, *streams]))
        streams.append(Stream() if parent is None else Stream(parent, draw(st.integers(parent.attach, 60))))
    return draw(st.lists(st.tuples(st.sampled_from(streams), st.integers(1, 80)), min_size=1, max_size=12))


def path(stream: Stream, tokens: int) -> list[tuple[Stream, int]]:
    """Name every token of a prompt by the stream it lies in and its position."""
    at: Stream | None = stream
    found: list[tuple[Stream, int]] = []
    while at is not None:
        found = [(at, position) for position in range(at.attach, tokens)] + found
        tokens = min(tokens, at.attach)
        at = at.parent
    return found


def common(one: tuple[Stream, int], other: tuple[Stream, int]) -> int:
    count = 0
    for left, right in zip(path(*one), path(*other), strict=False):
        if left != right:
            break
        count += 1
    return count


@given(prompts(), st.integers(1, 300))
def test_no_more_is_remembered_than_fits_and_nothing_that_was_not_sent(sent: list[tuple[Stream, int]], capacity: int):
    memory, endless = Sent(capacity), Sent(1 << 60)
    for index, prompt in enumerate(sent):
        earlier = max((common(prompt, before) for before in sent[:index]), default=0)
        assert endless.match(*prompt) == earlier
        assert memory.match(*prompt) <= earlier
        memory.add(*prompt)
        endless.add(*prompt)
        assert memory.tokens <= capacity
        if endless.tokens <= capacity:
            assert memory.match(*prompt) == endless.match(*prompt) == prompt[1]


RUN = {"seed": 2, "duration": "60 s", "warmup": 0, "model": "llama-3.1-8b", "hardware": "dgx-h100", "replicas": 4,
       "engine": {"pool": "20 GB"},
       "workload": {"arrivals": {"closed": {"concurrency": 24}}, "agents": {"turns": 1, "output": 200, "prompt": [
           {"name": "system", "tokens": 8000, "shared": "group", "groups": {"count": 12}},
           {"name": "question", "tokens": 200}]}}}


def homes(result: sim.Result) -> float:
    """Return on how many replicas a group's prompts were served, on average."""
    turns = result.turns.merge(result.trajectories[["trajectory", "group"]], on="trajectory")
    return float(turns[turns["replica"] >= 0].groupby("group")["replica"].nunique().mean())


def test_with_weight_on_the_prefix_a_group_stays_where_it_was_sent():
    known, blind = (sim.run(RUN | {"routing": {"policy": "weighted", "prefix": weight}}) for weight in (1000, 0))
    assert homes(known) == 1.0
    assert homes(blind) > 2.0
    assert known.summary["hit_rate"]["hbm"] > blind.summary["hit_rate"]["hbm"]


def test_what_is_held_below_hbm_counts_only_where_it_is_asked_for():
    below = {"nodes": 4, "replicas": 1, "engine": {"pool": "2.5 GB"},
             "tiers": {"dram": {"capacity": "40 GB", "write": "on_compute"}}}
    weights = {"policy": "weighted", "knows": "held", "waiting": 0, "kv_use": 0}
    asked, not_asked = (sim.run(RUN | below | {"routing": weights | changes})
                        for changes in ({"prefix": 0, "host_prefix": 1}, {"prefix": 1}))
    assert homes(asked) < 2.5 < homes(not_asked)
    assert asked.summary["hit_rate"]["dram"] > 0.1


@pytest.mark.parametrize(("field", "value", "says"), [
    ("prefix", -1, "routing.prefix: must be greater than or equal to 0"),
    ("kv_use", ".inf", "routing.kv_use"), ("head", 0, "routing.head"), ("knows", "all", "routing.knows")])
def test_bad_weights_are_refused(field: str, value: Any, says: str):
    with pytest.raises(InputError, match=says.replace(".", r"\.")):
        sim.run(RUN | {"routing": {"policy": "weighted", field: value}})
