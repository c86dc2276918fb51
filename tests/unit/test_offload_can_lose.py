"""The scenario in which offloading loses: does it, and do the ledgers say why?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sim

FILE = Path(__file__).parents[2] / "scenarios" / "offload_can_lose.yaml"


@pytest.fixture(scope="module")
def results() -> dict[str, sim.Result]:
    variants = {"keep": ["retention=keep"], "drop": ["retention=drop"], "offload": [],
                "block": ["tiers.dram.layout=block"], "staged": ["tiers.dram.method=staged"]}
    return {name: sim.run(FILE, overrides=["duration=10 min", *changes]) for name, changes in variants.items()}


def shares(result: sim.Result, ledger: str) -> dict[str, float]:
    entries = result.summary["ledger"][ledger]
    whole = sum(entries.values())
    return {name: value / whole for name, value in entries.items()}


def resumed(result: sim.Result, statistic: str = "p50") -> float:
    return float(result.summary["ttft_s"]["resumed"][statistic])


def turns_per_s(result: sim.Result) -> float:
    return float(result.summary["throughput"]["turns_per_s"])


def test_offload_loses(results: dict[str, sim.Result]) -> None:
    keep, drop, offload = results["keep"], results["drop"], results["offload"]
    assert resumed(offload) > 50 * resumed(keep)
    assert resumed(offload) > 0.8 * resumed(drop)  # no better than to compute it all again
    assert turns_per_s(offload) < 0.5 * turns_per_s(keep)
    assert offload.summary["hit_rate"]["total"] > 0.9  # although nearly everything was found


def test_the_ledgers_say_why(results: dict[str, sim.Result]) -> None:
    offload = results["offload"]
    assert shares(offload, "turn_s")["reload"] > 0.8
    assert shares(results["keep"], "turn_s")["reload"] == 0.0
    assert offload.summary["binds"]["resource"] == "host_link"
    assert shares(offload, "pool_byte_s")["free"] > 0.1  # memory is not what is short
    way_back = offload.summary["ledger"]["link_s"]["host_in"]
    assert way_back["reload"] / sum(way_back.values()) > 0.85
    waits = offload.pauses["end_s"] - offload.pauses["start_s"]
    assert float(np.median(waits)) < 4.0
    moves: Any = offload.moves[offload.moves["kind"] == "reload"]
    queued, carried = moves["start_s"] - moves["queued_s"], moves["end_s"] - moves["start_s"]
    assert queued.median() > 3 * carried.median()  # loads wait for each other, not for their own bytes


@pytest.mark.parametrize("remedy", ["block", "staged"])
def test_larger_pieces_are_the_remedy(results: dict[str, sim.Result], remedy: str) -> None:
    cured = results[remedy]
    assert shares(cured, "turn_s")["reload"] < 0.1
    assert turns_per_s(cured) > 0.9 * turns_per_s(results["keep"])
