"""Do two policies see the same agents, and two runs the same bytes?"""

import hashlib
import subprocess
import sys
from itertools import islice

import pytest

import sim
import workloads
from workloads.arrivals import Arrivals
from workloads.generator import SyntheticWorkload
from workloads.stats import in_order


def fingerprint(name, seed, n=40):
    """A hash of everything that is drawn."""
    workload = SyntheticWorkload(workloads.library(name), Arrivals.model_validate({"poisson": {"rate": 1}}))
    digest = hashlib.sha256()
    for trajectory in islice(workload.trajectories(seed, 0), n):
        digest.update(repr((trajectory.number, trajectory.arrival_s, trajectory.group)).encode())
        for turn in in_order(trajectory):
            digest.update(repr((turn.prompt_tokens, turn.output_tokens, turn.kept_output, turn.wait_s, turn.tool,
                                turn.human, turn.branch, turn.pending, [f.index for f in turn.next],
                                turn.stream.attach, turn.stream.label)).encode())
    return digest.hexdigest()


@pytest.mark.parametrize("name", ["coding-agent", "deep-research", "tree-of-thought"])
def test_the_same_seed_gives_the_same_bytes_in_another_process(name):
    script = (f"import importlib.util as u; s = u.spec_from_file_location('t', {__file__!r}); "
              f"m = u.module_from_spec(s); s.loader.exec_module(m); print(m.fingerprint({name!r}, 3))")
    prints = {subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                             env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}).stdout.strip()
              for seed in ("1", "2")}
    assert prints == {fingerprint(name, 3)}
    assert fingerprint(name, 4) not in prints


SCENARIO = {
    "model": "llama-3.1-8b", "hardware": "dgx-h100", "parallelism": {"tp": 1}, "replicas": 1, "duration": 900,
    "warmup": 0, "engine": {"pool": "6 GB"}, "tiers": {"dram": {"capacity": "100 GB"}},
    "workload": {"agents": "swe-fixer", "arrivals": {"poisson": {"rate": "0.05/s"}}},
}


def test_policies_see_the_same_agents():
    """Every turn that two policies both got to is the same turn, though they serve it at other times."""
    seen = {}
    for policy in ("keep", "release", "drop", "offload"):
        turns = sim.run({**SCENARIO, "retention": policy}).turns
        seen[policy] = turns.set_index(["trajectory", "turn"])
    first = seen.pop("keep")
    assert len(first) > 200
    for turns in seen.values():
        both = first.index.intersection(turns.index)
        assert len(both) > 0.8 * len(first)
        for column in ("prompt_tokens", "output_tokens", "tool", "branch"):
            assert (first.loc[both, column] == turns.loc[both, column]).all()
        arrived = first.loc[both, "first"]
        assert (first.loc[both, "ready_s"][arrived] == turns.loc[both, "ready_s"][arrived]).all()
    assert any((turns.loc[both, "end_s"] != first.loc[both, "end_s"]).any() for turns in seen.values()
               for both in [first.index.intersection(turns.index)])
