"""Long studies (`pytest -m study`): is a fit as good as its traces, and is drawing fast?

The fit needs the recorded sessions: KVPLAN_SHARED names the folder that holds data/traces/kv-cache-tester.
"""

import os
import time
from pathlib import Path

import numpy as np
import pytest

import sim
import workloads
from workloads.arrivals import Arrivals
from workloads.fit import fit
from workloads.generator import SyntheticWorkload
from workloads.readers import open_trace

pytestmark = pytest.mark.study
SHARED = Path(os.environ["KVPLAN_SHARED"]) / "data" / "traces" / "kv-cache-tester" if "KVPLAN_SHARED" in os.environ \
    else None
SEEDS = range(5)


def test_a_million_turns_at_100_000_a_second():
    workload = SyntheticWorkload(workloads.library("coding-agent"),
                                 Arrivals.model_validate({"closed": {"concurrency": 1}}))
    begun, turns = time.process_time(), 0
    for trajectory in workload.trajectories(1, 0):
        turns += trajectory.turns
        if turns >= 1_000_000:
            break
    assert turns / (time.process_time() - begun) > 100_000


@pytest.fixture(scope="module")
def agents():
    if SHARED is None or not SHARED.exists():
        pytest.skip("KVPLAN_SHARED does not name the recorded sessions")
    return {"recorded": {"trace": str(SHARED), "repeat": 10}, "fitted": fit(open_trace(SHARED)).agents}


def simulated(agents, pool, seed):
    """Hit rate, occupied pool byte-seconds a turn, and resumed TTFT, of agents that keep arriving for a day."""
    found = sim.run({
        "seed": seed, "duration": "24 h", "warmup": "4 h", "model": "llama-3.1-70b", "hardware": "dgx-h100",
        "parallelism": {"tp": 8}, "engine": {"preset": "vllm", "pool": pool}, "retention": "release",
        "workload": {"agents": agents, "arrivals": {"poisson": {"rate": 12 / 3600}}}}).summary
    pool_byte_s = found["ledger"]["pool_byte_s"]
    occupied = sum(value for use, value in pool_byte_s.items() if use != "free")
    ttft = found["ttft_s"]["resumed"]
    return {"hit rate": found["hit_rate"]["total"], "pool byte-seconds a turn": occupied / found["turns"],
            "TTFT resumed, p50": ttft["p50"], "TTFT resumed, mean": ttft["mean"]}


@pytest.mark.parametrize("pool", ["20 TB", "1 TB"])
def test_a_fit_simulates_like_its_traces(agents, pool):
    """The median of five runs each; near the point where a pool collapses, single runs differ by orders."""
    medians = {kind: {name: np.median([run[name] for run in runs]) for name in runs[0]} for kind, runs in
               {kind: [simulated(given, pool, seed) for seed in SEEDS] for kind, given in agents.items()}.items()}
    print(pool, medians)
    for name, recorded in medians["recorded"].items():
        assert medians["fitted"][name] == pytest.approx(recorded, rel=0.15), name


def test_five_gigabytes_need_no_five_gigabytes(tmp_path):
    """A long file of single requests: memory stays where it was after the first tenth."""
    import resource

    file = tmp_path / "x.csv"
    with file.open("w") as handle:
        handle.write("session,turn,prompt,output,wait\n")
        for number in range(400_000):
            handle.write("".join(f"{number},{turn},{100 * (turn + 1)},5,3\n" for turn in range(5)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(1 for _ in open_trace(file, "sessions-csv")) == 400_000
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < file.stat().st_size
