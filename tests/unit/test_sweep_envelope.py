"""Are an envelope's closed forms bounds, and its answers those of a search?"""

from __future__ import annotations

import pandas as pd
import pytest

import sim
from sim.scenario.deployment import deploy
from sim.sweep import estimate

BASE = {"model": "llama-3.1-8b", "hardware": "dgx-h100", "replicas": 1, "duration": "200 s", "warmup": 0,
        "retention": "keep", "slo": {"ttft_resumed": {"p95": "2 s"}}}
RATE, COST = "trajectories_per_h_most", "usd_per_trajectory_least"


def agents(prompt, output, wait_s=1.0, concurrency=64):
    return {"workload": {"arrivals": {"closed": {"concurrency": concurrency}}, "agents": {
        "prompt": [{"name": "p", "tokens": prompt}], "turns": 3, "output": output, "observation": 100,
        "tools": {"t": {"wait": {"exponential": {"mean": wait_s}}}}}}}


@pytest.mark.parametrize(("prompt", "output"), [(8000, 10), (200, 400), (2000, 100)])
@pytest.mark.parametrize("policy", ["keep", "release", "offload"])
def test_no_load_exceeds_the_bound(prompt, output, policy):
    """Agents enough to keep the replica busy come near it where nothing is computed again, and never pass it.

    From the first second on: then nothing that ends was begun before.
    """
    scenario = sim.load(BASE | agents(prompt, output, concurrency=200) | {
        "retention": policy, "tiers": {"dram": {"capacity": "1 TiB"}}})
    most = estimate.most_rate(scenario, estimate.demand(scenario))
    reached = sim.run(scenario).summary["throughput"]["trajectories_per_s"]
    assert reached <= most
    if policy == "keep":  # others may compute much again
        assert reached > 0.5 * most


def test_the_bounds_of_an_envelope():
    frame = sim.envelope(BASE | agents(100, 10), contexts=[8192, 32768], sharing=[0, 0.75], waits=[5],
                         hardware=["dgx-h100", "dgx-b200"], simulate=False, jobs=1)
    rows = frame.set_index(["hardware", "context_tokens", "sharing"])
    assert (rows.loc[(slice(None), 8192, 0.0), RATE].values > rows.loc[(slice(None), 32768, 0.0), RATE].values).all()
    assert rows.loc[("dgx-h100", 32768, 0.75), RATE] > rows.loc[("dgx-h100", 32768, 0.0), RATE]
    assert rows.loc[("dgx-b200", 32768, 0.0), RATE] > rows.loc[("dgx-h100", 32768, 0.0), RATE]
    price = deploy(sim.load(BASE | agents(100, 10))).price_usd_per_gpu_hour
    h100 = frame[frame["hardware"] == "dgx-h100"]
    assert (h100[RATE] * h100[COST]).tolist() == pytest.approx((h100["gpus"] * price).tolist())
    front = sim.pareto(frame, RATE, COST)
    assert front["cheapest"].sum() == 4
    with pytest.raises(sim.InputError, match="usd_per_trajectory_least"):
        sim.pareto(frame)


def test_an_answer_does_not_depend_on_how_it_is_worked_out():
    """Replications at once or in turn; a scenario that asks for more replications gets the same start."""
    base = BASE | {"duration": "30 s", "warmup": 0, "engine": {"schedule": {"max_seqs": 2}}} | agents(100, 10)
    given = {"contexts": [8192], "sharing": [0], "waits": [5], "hardware": ["dgx-h100"]}
    one, other = sim.envelope(base, jobs=1, **given), sim.envelope(base | {"replications": 3}, jobs=2, **given)
    pd.testing.assert_frame_equal(one, other)
    row = one.iloc[0]
    assert row["low"] <= row["concurrency"] >= 1
    assert row["trajectories_per_h"] <= row[RATE]
    assert row["usd_per_trajectory"] >= row[COST]
