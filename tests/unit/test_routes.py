"""Are turns that came back to another replica counted, and said only when there are any?"""

from __future__ import annotations

import pytest

import sim
from sim.metrics.wording import facts

RUN = {"seed": 3, "duration": 300, "warmup": 30, "model": "llama-3.1-8b", "hardware": "dgx-h100", "replicas": 3,
       "engine": {"pool": "12 GiB"},
       "workload": {"agents": "coding-agent", "arrivals": {"closed": {"concurrency": 9}}}}


def counted(result):
    """Count again, from the table of turns."""
    turns = result.turns[result.turns["replica"] >= 0].sort_values(["trajectory", "branch", "turn"])
    before = turns.groupby(["trajectory", "branch"])["replica"].shift()
    turns = turns.assign(follows=before.notna(), moved=before.notna() & (before != turns["replica"]))
    done = turns[(turns["status"] == "finished") & (turns["ready_s"] >= result.summary["checks"]["warmup_s"])]
    moved, stayed = done[done["moved"]], done[done["follows"] & ~done["moved"]]

    def found(rows):
        return rows.filter(like="hit_").to_numpy().sum() / rows["prompt_tokens"].sum()

    return {"moved": len(moved) / (len(moved) + len(stayed)), "found_moved": found(moved),
            "found_stayed": found(stayed),
            "recomputed_moved": moved["recomputed_tokens"].sum() / done["prompt_tokens"].sum()}


def test_turns_that_leave_their_replica_are_counted_and_said():
    result = sim.run(RUN | {"routing": "round_robin"})
    expected = counted(result)
    assert result.summary["routing"] == pytest.approx(expected)
    assert expected["moved"] > 0.4
    said = dict(facts(result.summary))["routing"]
    assert f"{expected['moved']:.0%} of resumed turns went to another replica" in said


@pytest.mark.parametrize("changes", [{}, {"replicas": 1, "routing": "round_robin"}])
def test_nothing_is_said_where_turns_stay(changes):
    summary = sim.run(RUN | changes).summary
    assert "routing" not in dict(facts(summary))
    assert (summary["routing"] is None) == ("replicas" in changes)
    assert summary["routing"] is None or summary["routing"]["moved"] == 0
