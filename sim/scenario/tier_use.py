"""Which tiers below HBM a scenario writes to, and what to set where it writes to none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.records import TIER_LABELS, TIERS

if TYPE_CHECKING:
    from sim.scenario.model import Scenario


def unwritten(scenario: Scenario) -> dict[str, str]:
    """Return the tiers that nothing in the scenario writes to: name -> why, and what to set.

    A tier is written to by the retention policy (`RetentionConfig.targets`), by `tiers.dram.write`, or by a tier that
    is full and evicts to it. A tier of size zero is none, and that is said of it.
    """
    reached, given = _reached(scenario), _given(scenario)
    return {name: _advice(scenario, name, reached) if name in given else
            f"its capacity is 0, so it is as if it were not there; set tiers.{name}.capacity, or leave the tier out"
            for name in TIERS if getattr(scenario.tiers, name) is not None and name not in reached}


def if_empty(scenario: Scenario) -> dict[str, str]:
    """Return, for each tier, why it can have stayed empty through a run."""
    said = unwritten(scenario)
    for name in _given(scenario):
        if name not in said:
            above = [upper for upper in TIERS if _evicts_to(scenario, upper) == name]
            full = " and ".join(TIER_LABELS[upper] for upper in above)
            said[name] = (f"{full} never filled up, and nothing else is written to it" if above and
                          name not in _direct(scenario) else "the retention policy moved no context there")
    return {name: said[name] for name in TIERS if name in said}


def _given(scenario: Scenario) -> list[str]:
    """Return the tiers that can hold anything, from the top."""
    found = []
    for name in TIERS:
        tier = getattr(scenario.tiers, name)
        if tier is not None and (tier.capacity > 0 or getattr(tier, "pool_ratio", None) is not None):
            found.append(name)
    return found


def _direct(scenario: Scenario) -> set[str]:
    """Return the tiers that are written to from HBM."""
    dram = scenario.tiers.dram
    found = set(scenario.retention.targets())
    return found | ({"dram"} if dram is not None and dram.write != "on_pause" else set())


def _evicts_to(scenario: Scenario, name: str) -> str:
    tier = getattr(scenario.tiers, name)
    return "nowhere" if tier is None else str(tier.evict_to)


def _reached(scenario: Scenario) -> set[str]:
    """Return the tiers that something can be written to, directly or down a chain."""
    given, found = _given(scenario), set()
    direct = _direct(scenario)
    for name in given:  # from the top, and contexts only move down
        if name in direct or any(upper in found and _evicts_to(scenario, upper) == name for upper in given):
            found.add(name)
    return found


def _advice(scenario: Scenario, name: str, reached: set[str]) -> str:
    policy = scenario.retention.policy
    targets = [TIER_LABELS[tier] for tier in scenario.retention.targets() if tier in _given(scenario)]
    does = f"retention '{policy}' moves contexts only to {' and '.join(targets)}" if targets else \
        f"retention '{policy}' moves no context out of HBM"
    if name == "dram":
        return (f"{does}, and tiers.dram.write is on_pause; set 'retention: offload' (or break_even, tiered), or "
                "tiers.dram.write to on_evict or on_compute")
    above = [upper for upper in _given(scenario) if TIERS.index(upper) < TIERS.index(name)]
    fed = [upper for upper in above if upper in reached]
    if fed:
        return (f"{does}, and tiers.{fed[-1]}.evict_to is {_evicts_to(scenario, fed[-1])}; set "
                f"tiers.{fed[-1]}.evict_to: {name}, or 'retention: {{policy: offload, to: {name}}}'")
    if above and _evicts_to(scenario, above[-1]) == name:
        return f"{does}, so {TIER_LABELS[above[-1]]} never fills up; set 'retention: offload'"
    return f"{does}; set 'retention: {{policy: offload, to: {name}}}'"
