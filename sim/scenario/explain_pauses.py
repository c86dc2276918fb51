"""What `explain` says of pauses: moving a context away and back against computing it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from sim.analytic import break_even
from sim.records import TIER_LABELS
from sim.scenario.rows import Row

if TYPE_CHECKING:
    from sim.scenario.deployment import Deployment
    from sim.scenario.model import Scenario

#: Contexts that are looked at, in tokens, and what each is called.
Contexts = Mapping[int, str]


def pauses(scenario: Scenario, place: Deployment, contexts: Contexts,
           prefill_s: Callable[[int], float]) -> Iterator[Row]:
    """Yield, for each context, what a pause may cost: to compute it again, or to move it to a tier and back.

    Host memory is looked at whether or not the scenario has a tier there; storage and the network if it has.
    """
    section = "pauses"
    mu_hbm, mu_dram, allowance = _prices(scenario)
    tiers, given = _rates(place), {called(name) for name in place.tiers}
    for tokens in contexts:
        moved = place.kv_bytes(tokens)
        recompute = prefill_s(tokens)
        yield Row(section, f"{contexts[tokens]}: recompute", recompute, "s", "prefill, nothing cached")
        for tier, (out_Bps, in_Bps) in tiers.items():
            back = break_even.reload_s(moved, in_Bps, place.host_link_latency_s)
            trip = break_even.round_trip_s(moved, out_Bps, in_Bps, place.host_link_latency_s)
            missing = "" if tier in given else "; the scenario has no such tier"
            yield Row(section, f"{contexts[tokens]}: reload from {tier}", back, "s", f"M / B_link{missing}")
            yield Row(section, f"{contexts[tokens]}: recompute / reload from {tier}", recompute / back, "x",
                      "above 1, reloading is quicker")
            yield Row(section, f"{contexts[tokens]}: break-even wait, {tier}",
                      break_even.break_even_wait_s(trip, mu_hbm, mu_dram, allowance), "s",
                      f"2M/B mu_HBM / (mu_HBM - mu_DRAM) + stall, mu {mu_hbm:g} and {mu_dram:g}")


def _prices(scenario: Scenario) -> tuple[float, float, float]:
    """Return the shadow prices and the stall allowance: the policy's own if it has them, else the usual ones."""
    from sim.policies.retention import BreakEven

    policy = scenario.retention if isinstance(scenario.retention, BreakEven) else BreakEven()
    return policy.mu_hbm, policy.mu_dram, policy.stall_allowance


def _rates(place: Deployment) -> dict[str, tuple[float, float]]:
    """Return the rates out and in of host memory and of the tiers below it, for one replica alone; the slower hop
    counts."""
    out_Bps, in_Bps = place.host_link_Bps_out, place.host_link_Bps_in
    below = {called(name): (min(out_Bps, at.out_Bps), min(in_Bps, at.in_Bps))
             for name, at in place.tiers.items() if at.out_Bps}
    return {called("dram"): (out_Bps, in_Bps), **below}


def called(tier: str) -> str:
    """Return what a tier is called here."""
    return "DRAM" if tier == "dram" else TIER_LABELS[tier]
