"""The break-even map: do closed forms and the simulator name the same winner, wherever it is not a close call?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.report.plots.waits import Pause
from sim.scenario.deployment import deploy
from sim.scenario.explain import explain

CONTEXTS = np.geomspace(2_048, 120_000, 10).astype(int) // 16 * 16
WAITS_S = np.geomspace(0.02, 200.0, 10)
MU_DRAM = 0.05
#: A call is close when the runner-up costs less than this much more by the closed form.
CLOSE = 1.1


def on(rig: Any, policy: str, **fields: Any) -> Any:
    """Return a node with a slow link and a small pool, so that every action has its region."""
    return rig.scenario(pool=48e9, tflops=4_000.0, link_GBps=8.0, retention=policy,
                        tiers={"dram": {"capacity": "1 TiB"}}, engine={"schedule": rig.WHOLE}, **fields)


def spent(rig: Any, policy: str, context: int, wait_s: float) -> float:
    """Return what one pause costs by the ledgers of a run, in byte-seconds of HBM.

    What is kept or being copied is paid for in HBM, what lies in DRAM by its price, and while the GPUs compute tokens
    again the whole pool waits.
    """
    scenario = on(rig, policy)
    run = rig.run(scenario, rig.paused(context, wait_s))
    last = run.last
    below = sum(pause["hold_dram_byte_s"] for pause in run.pauses)
    again_s = last["gpu_recompute_cum_s"]
    return last["kept_byte_s"] + last["in_flight_byte_s"] + MU_DRAM * below + again_s * deploy(scenario).pool_bytes


def test_closed_forms_and_simulator_agree_on_the_winner(rig) -> None:
    form = Pause(deploy(on(rig, "keep")), mu_dram=MU_DRAM, mfu=1.0)
    agree, clear, winners = 0, 0, set()
    for context in CONTEXTS:
        for wait_s in WAITS_S:
            costs = {name: float(cost[0]) for name, cost in form.costs(context, np.array([wait_s])).items()}
            best, second = sorted(costs.values())[:2]
            if second < CLOSE * best:
                continue
            expected = min(costs, key=costs.__getitem__)
            found = {name: spent(rig, name, int(context), float(wait_s)) for name in ("keep", "offload", "drop")}
            clear += 1
            winners.add(expected)
            agree += min(found, key=found.__getitem__) == expected
    assert winners == {"keep", "offload", "drop"}
    assert clear >= 80
    assert agree >= 0.95 * clear


@pytest.mark.parametrize("context", [8_192, 32_768])
def test_explain_states_the_break_even_wait_of_the_map(rig, context: int) -> None:
    scenario = on(rig, "keep")
    stated = {row.quantity: row.value for row in explain(scenario)["rows"]}
    form = Pause(deploy(scenario), mu_dram=MU_DRAM)
    name = f"{context // 1024}k"
    assert stated[f"{name}: break-even wait, DRAM"] == pytest.approx(form.threshold_s(context))
    assert stated[f"{name}: reload from DRAM"] == pytest.approx(form.reload_s(context))
