"""Is a model that does not fit refused, and does a pool that does not fit beside it say so?"""

from __future__ import annotations

import pytest

import sim
from sim.errors import InputError
from sim.metrics import wording
from sim.scenario import load
from sim.scenario.deployment import deploy
from sim.scenario.explain import explain


def scenario(**fields):
    return {"model": "llama-3.1-8b", "hardware": "dgx-h100", "duration": 5,
            "workload": {"agents": {"turns": 2, "tools": {"bash": {"wait": 1}}},
                         "arrivals": {"closed": {"concurrency": 1}}}, **fields}


def test_a_pool_beyond_hbm_says_by_how_much():
    ready = load(scenario(engine={"pool": "200 GB"}))
    place = deploy(ready)
    beyond = place.weight_bytes + 200e9 - place.gpu.hbm_bytes
    assert place.over_hbm_bytes == beyond > 0
    rows = {row.quantity: row.value for row in explain(ready)["rows"] if "WHAT-IF" in row.quantity}
    assert rows == {"WHAT-IF: beyond HBM": beyond}
    summary = sim.run(ready).summary
    assert summary["over_hbm_bytes"] == beyond
    said = dict(wording.facts(summary))["WHAT-IF"]
    assert f"{wording.number(beyond / 1e9)} GB" in said


def test_a_pool_that_fits_says_nothing():
    ready = load(scenario(engine={"pool": "20 GB"}))
    assert deploy(ready).over_hbm_bytes == 0
    assert not [row for row in explain(ready)["rows"] if "WHAT-IF" in row.quantity]
    assert "WHAT-IF" not in dict(wording.facts(sim.run(ready).summary))


def test_weights_beyond_hbm_are_refused_even_with_a_pool():
    with pytest.raises(InputError, match=r"^parallelism: .* for weights alone, .*\(got tp 1, pp 1\)$"):
        deploy(load(scenario(model="llama-3.1-405b", engine={"pool": "20 GB"})))
    deploy(load(scenario(model="llama-3.1-405b", parallelism={"tp": 8}, weights_dtype="fp8", engine={"pool": "20 GB"})))
