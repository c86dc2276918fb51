"""Do a run's tables, summary and figures say how well its allocator used the pool?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sim
from sim.errors import InputError
from sim.metrics.space import fragmentation
from sim.report.plots import address_space, style

SCENARIO = {
    "name": "allocators", "seed": 3, "duration": 600, "warmup": 60, "model": "llama-3.1-70b", "hardware": "dgx-h100",
    "parallelism": {"tp": 8}, "retention": "keep",
    "workload": {"agents": "coding-agent", "arrivals": {"closed": {"concurrency": 16}}},
}
KINDS = ("paged", "static", "growth", "buddy")


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return {kind: sim.run({**SCENARIO, "engine": {"allocator": kind}}) for kind in KINDS}


def pool_tokens(result: Any) -> int:
    from sim.scenario.deployment import deploy

    place = deploy(result.scenario)
    return place.pool_blocks * place.block_size


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_cover_the_pool_and_agree_with_the_timeline(results: dict[str, Any], kind: str) -> None:
    result = results[kind]
    space, timeline = result.address_space, result.timeline
    assert 10 < space["time_s"].nunique() <= 64
    for time_s, parts in space.groupby("time_s"):
        assert parts["start"].iloc[0] == 0
        assert (parts["start"].iloc[1:].to_numpy() == parts["end"].iloc[:-1].to_numpy()).all()
        assert parts["end"].iloc[-1] == pool_tokens(result)
        sizes = (parts["end"] - parts["start"]).groupby(parts["use"]).sum()
        sample = timeline[timeline["time_s"] == time_s]
        if len(sample):
            assert sizes.get("useful", 0) == sample["useful_tokens"].iloc[0]
            assert sizes.get("useful", 0) + sizes.get("reserved", 0) == sample["allocated_tokens"].iloc[0]
            holes = (parts["end"] - parts["start"])[parts["use"] == "hole"]
            assert holes.max() == sample["largest_hole_tokens"].iloc[0] or not len(holes)
    assert (space["trajectory"] >= 0).any() == (kind != "paged")


@pytest.mark.parametrize("kind", KINDS)
def test_the_summary_averages_the_samples(results: dict[str, Any], kind: str) -> None:
    result = results[kind]
    measures = result.summary["allocation"]
    shares = result.fragmentation(measures["request_tokens"])
    after = shares[shares["time_s"] >= 60]
    assert measures["external_fragmentation"] == pytest.approx(after["external_fragmentation"].mean())
    assert measures["effective_occupancy"] == pytest.approx(after["effective_occupancy"].mean(), abs=0.1)
    assert 0 < measures["effective_occupancy"] <= measures["efficiency"] <= 1
    sample = result.timeline[result.timeline["time_s"] >= 60]
    low, high = sample["useful_tokens"].min() / pool_tokens(result), sample["useful_tokens"].max() / pool_tokens(result)
    assert low <= measures["effective_occupancy"] <= high


def test_blocks_waste_least_and_worst_case_buffers_most(results: dict[str, Any]) -> None:
    efficiency = {kind: result.summary["allocation"]["efficiency"] for kind, result in results.items()}
    assert efficiency["static"] < min(efficiency["growth"], efficiency["buddy"]) < 0.9 < efficiency["paged"]
    assert results["paged"].fragmentation(100_000)["external_fragmentation"].max() == 0.0


def test_a_larger_request_finds_what_is_free_more_scattered(results: dict[str, Any]) -> None:
    for kind in ("growth", "buddy"):
        shares = [results[kind].fragmentation(request)["external_fragmentation"] for request in (1, 5_000, 200_000)]
        assert shares[0].max() == 0.0
        assert (shares[0] <= shares[1]).all()
        assert (shares[1] <= shares[2]).all()
    with pytest.raises(InputError, match="request: expected tokens, 1 or more"):
        results["growth"].fragmentation(0)


def test_fragmentation_by_hand() -> None:
    space = {"time_s": np.array([0.0] * 4 + [5.0]), "replica": np.zeros(5, dtype=int),
             "start": np.array([0, 3, 4, 10, 0]), "end": np.array([3, 4, 10, 12, 12]),
             "use": np.array(["useful", "reserved", "hole", "hole", "hole"])}
    found = fragmentation({name: values[[0, 1, 2, 3, 4]] for name, values in space.items()}, 4)
    assert list(found["time_s"]) == [0.0, 5.0]
    assert list(found["allocation_efficiency"]) == [0.75, 1.0]
    assert list(found["effective_occupancy"]) == [0.25, 0.0]
    assert list(found["external_fragmentation"]) == [0.25, 0.0]
    assert list(fragmentation(space, 4, 2)["external_fragmentation"]) == [0.0, 0.0]
    none = {name: values[:0] for name, values in space.items()}
    assert all(len(values) == 0 for values in fragmentation(none, 4).values())


def test_a_picture_can_be_drawn_alone_and_side_by_side(results: dict[str, Any], tmp_path: Path) -> None:
    nearest = results["buddy"].pool_at(300.0)
    moments = results["buddy"].address_space["time_s"]
    assert nearest["time_s"].nunique() == 1
    assert abs(nearest["time_s"].iloc[0] - 300.0) == (moments - 300.0).abs().min()
    fullest = results["buddy"].pool_at()
    assert list(fullest["allocator"].unique()) == ["buddy"]
    ax = address_space(pd.concat([result.pool_at(300.0) for result in results.values()]), style.figure(8, 4)[1],
                       request=32_768, block_tokens={"paged": 16})
    assert [text.get_text() for text in ax.get_yticklabels()] == list(KINDS)
    one = results["growth"].plot.address_space(300.0, style.figure()[1], request=32_768)
    assert [text.get_text() for text in one.get_yticklabels()] == ["growth"]
    results["growth"].save(tmp_path / "run")
    again = sim.Result.load(tmp_path / "run")
    pd.testing.assert_frame_equal(again.pool_at(300.0), results["growth"].pool_at(300.0))
    assert again.fragmentation(5_000).equals(results["growth"].fragmentation(5_000))
    assert results["paged"].plot.address_space(ax=style.figure()[1], request=32_768).texts[0].get_text().endswith(
        "0% of free too scattered")


def test_several_replicas_have_a_row_each() -> None:
    result = sim.run({**SCENARIO, "parallelism": {"tp": 4}, "duration": 200,
                      "engine": {"allocator": {"kind": "static", "s_max": 40_000}}})
    assert list(result.pool_at(150.0)["allocator"].unique()) == ["static, replica 0", "static, replica 1"]
    assert result.summary["allocation"]["effective_occupancy"] <= 1
