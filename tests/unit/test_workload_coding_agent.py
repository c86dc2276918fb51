"""Is `coding-agent` like the agents it was fitted to? Each row of the table in docs/workloads.md, within 10 %.

The spec was tuned by hand on other seeds than the one used here.
"""

import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import workloads
from workloads.arrivals import Arrivals
from workloads.generator import SyntheticWorkload
from workloads.stats import in_order, stats

PAGE = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text(encoding="utf-8")
#: What is recorded (kv-cache-tester; the last three TraceLab), and how it is found in what is drawn.
RECORDED = {
    "requests a trace, p50": 45, "requests a trace, p95": 232, "input tokens, p50": 104_644,
    "output tokens, p50": 216, "new tokens a turn, p50": 705, "new tokens a turn, mean": 3268,
    "gap after a tool call, p50": 9, "gap after a tool call, p90": 68, "gap after a tool call, p99": 610,
    "infinite-cache hit rate": 0.963, "turns that keep under half of the prompt": 0.017,
}


@pytest.fixture(scope="module")
def drawn():
    """Figures of 4,000 trajectories."""
    workload = SyntheticWorkload(workloads.library("coding-agent"),
                                 Arrivals.model_validate({"closed": {"concurrency": 1}}))
    gaps = []

    def watched():
        for trajectory in islice(workload.trajectories(90_001, 0), 4000):
            gaps.extend(turn.wait_s for turn in in_order(trajectory)
                        if turn.branch == 0 and turn.tool not in ("", "human", "sub-agent"))
            yield trajectory

    found = stats(watched())
    gap = dict(zip(("p50", "p90", "p99"), np.quantile(gaps, (0.5, 0.9, 0.99)), strict=True))
    names = {"requests a trace": "turns_per_trajectory", "input tokens": "prompt_tokens",
             "output tokens": "output_tokens", "new tokens a turn": "added_tokens"}
    figures = {row: found[names[row.split(",")[0]]][row.split(", ")[1]] for row in RECORDED
               if row.split(",")[0] in names}
    figures |= {f"gap after a tool call, {name}": float(value) for name, value in gap.items()}
    return {**figures, "infinite-cache hit rate": found["prompt_hit_rate"],
            "turns that keep under half of the prompt": found["break_rate"]}


@pytest.mark.parametrize("row", RECORDED)
def test_it_is_what_was_recorded(drawn, row):
    assert drawn[row] == pytest.approx(RECORDED[row], rel=0.1)


@pytest.mark.parametrize("row", RECORDED)
def test_the_page_says_the_same(drawn, row):
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {row} |"))
    recorded, shown = (float(re.sub(r"[^\d.]", "", cell)) * (0.01 if "%" in cell else 1)
                       for cell in line.split("|")[2:4])
    assert recorded == pytest.approx(RECORDED[row], rel=0.005)
    assert shown == pytest.approx(drawn[row], rel=0.03)


def test_few_calls_take_most_of_the_tools_time():
    """TraceLab: 4 % of calls are over 60 s, and hold 85 % of the time; the gap of a cache is another thing."""
    rng = np.random.default_rng(5)
    tools = [tool for tool in workloads.library("coding-agent").tools.values() if not tool.human]
    weights = np.array([tool.weight for tool in tools])
    counts = rng.multinomial(400_000, weights / weights.sum())
    own = np.concatenate([tool.wait.sample(rng, count) for tool, count in zip(tools, counts, strict=True)])
    assert 0.03 < np.mean(own > 60) < 0.05
    assert own[own > 60].sum() / own.sum() > 0.8
    assert np.quantile(own, 0.9) < 20
    assert np.quantile(own, 0.99) == pytest.approx(216, rel=0.1)
