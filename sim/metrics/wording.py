"""A summary in words and figures, for tables on a terminal and in a notebook."""

from __future__ import annotations

import html as escaping
from collections.abc import Mapping, Sequence
from typing import Any

from sim.records import TIER_LABELS

Summary = Mapping[str, Any]

#: What the entries of the ledgers are called in a table.
LABELS = {
    "queue_blocks": "queued for blocks", "queue_budget": "queued for budget", "reload": "reload",
    "prefill": "prefill", "recompute": "recomputation", "interference": "others' prefill", "decode": "decode",
    "preemption": "preempted", "decoding": "decoding", "prefilling": "prefilling", "kept": "kept pauses",
    "dormant_reused": "dormant, reused", "dormant_wasted": "dormant, wasted", "tail_waste": "tail waste",
    "reserved": "reserved", "in_flight": "in flight", "free": "free", "copy_stall": "copy stalls", "idle": "idle",
}
LATENCIES = {
    "TTFT, first turn": ("ttft_s", "first"), "TTFT, resumed": ("ttft_s", "resumed"), "inter-token": ("itl_s",),
    "per output token": ("tpot_s",), "turn": ("turn_s",), "trajectory": ("trajectory_s",),
}
RESOURCES = {"memory": "memory (KV blocks)", "compute": "compute", "hbm_bandwidth": "HBM bandwidth",
             "host_link": "host link", "interconnect": "GPU interconnect", "step_overhead": "step overhead",
             "none": "nothing", None: "unknown"}
STATISTICS = ("mean", "p50", "p95", "p99")
#: Stands for a figure that does not apply.
NONE = "-"


def seconds(value: float | None) -> str:
    """Return a time with three significant digits and the unit that suits it."""
    if value is None:
        return NONE
    if value == 0:
        return "0 s"
    for limit, scale, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (120.0, 1.0, "s"), (7200.0, 1 / 60, "min")):
        if abs(value) < limit:
            return f"{number(value * scale)} {unit}"
    return f"{number(value / 3600)} h"


def number(value: float | None, unit: str = "") -> str:
    """Return a number with three significant digits; thousands are separated, never an exponent within reason."""
    if value is None:
        return NONE
    size = abs(value)
    if size >= 100:
        text = f"{value:,.0f}"
    elif size >= 1e-3 or size == 0:
        text = f"{value:#.3g}".rstrip("0").rstrip(".") if size else "0"
    else:
        text = f"{value:.2e}"
    return f"{text}{unit}"


def percent(value: float | None) -> str:
    """Return a share as a percentage."""
    if value is None:
        return NONE
    return "0%" if abs(value) < 5e-4 else f"{value:.1%}" if abs(value) < 0.1 else f"{value:.0%}"


def shares(ledger: Mapping[str, float], *, least: float = 0.001) -> str:
    """Return a ledger as percentages, the largest first; entries under `least` of the whole are left out."""
    whole = sum(ledger.values())
    if whole <= 0:
        return NONE
    ranked = sorted(ledger.items(), key=lambda item: -item[1])
    return ", ".join(f"{LABELS.get(name, name)} {percent(value / whole)}" for name, value in ranked
                     if value >= least * whole)


def latency(summary: Summary, place: Sequence[str]) -> list[str]:
    """Return mean, p50, p95 and p99 of one distribution as text."""
    stats: Any = summary
    for key in place:
        stats = stats[key]
    return [seconds(stats[name]) for name in STATISTICS]


def interval(summary: Summary, path: str) -> str:
    """Return the interval of a time as text."""
    found = summary["intervals"].get(path)
    return NONE if found is None else f"{seconds(max(found['low'], 0.0))} to {seconds(found['high'])}"


def facts(summary: Summary) -> list[tuple[str, str]]:
    """Return what a summary says besides latencies: label and text, in reading order."""
    rate, hits, alive = summary["throughput"], summary["hit_rate"], summary["concurrency"]
    trajectories, checks, binds = summary["trajectories"], summary["checks"], summary["binds"]
    tiers = [f"{called} {percent(hits[name])}" for name, called in (("hbm", "HBM"), *TIER_LABELS.items())
             if hits.get(name) is not None]
    rows = [
        ("trajectories alive", f"mean {number(alive['mean'])}, most {number(alive['max'])}"),
        ("trajectories", f"{number(trajectories['started'])} started, {number(trajectories['finished'])} finished, "
                         f"{number(trajectories['rejected'])} rejected; {number(summary['turns'])} turns"),
        ("throughput", f"{number(rate['turns_per_s'])} turns/s, {number(rate['output_tokens_per_s'])} output tokens/s, "
                       f"{number(rate['prompt_tokens_per_s'])} prompt tokens/s, "
                       f"{number(_hourly(rate['trajectories_per_s']))} trajectories/h"),
        ("prompt found", f"{percent(hits['total'])} of prompt tokens ({', '.join(tiers) or NONE}); "
                         f"an infinite cache: {percent(hits['ceiling'])}"),
        ("turn time", shares(summary["ledger"]["turn_s"])),
        ("pool use", shares(summary["ledger"]["pool_byte_s"])),
        ("GPU use", shares(summary["ledger"]["gpu_s"])),
        *_below(summary["ledger"]),
        ("allocation", _allocation(summary["allocation"])),
        *_slow_blocks(summary.get("blocks") or {}),
        ("counts", ", ".join(f"{number(count)} {name.replace('_', ' ')}"
                             for name, count in summary["counts"].items() if count) or "none"),
    ]
    if summary.get("band"):
        rows.append(("step times", _band(summary)))
    if summary["breakers"]:
        rows.append(("recomputed most", ", ".join(f"{row['span']} ({number(row['recomputed_tokens'])} tokens)"
                                                  for row in summary["breakers"][:3])))
    if summary["goodput"] is not None:
        rows.append(("objectives", _goodput(summary["goodput"])))
    rows += [
        ("binds", f"{RESOURCES.get(binds['resource'], str(binds['resource']))}: {binds['why']}"),
        ("cost", _cost(summary["cost"])),
        ("checks", _checks(checks)),
    ]
    return rows


def _band(summary: Summary) -> str:
    """Return how far measured step times may put TTFT and TPOT off, around the medians."""
    said = []
    for name, place, called in (("ttft", ("ttft_s", "all"), "TTFT"), ("tpot", ("tpot_s",), "per output token")):
        error = summary["band"].get(name)
        if error is None:
            continue
        stats: Any = summary
        for key in place:
            stats = stats[key]
        middle = stats["p50"]
        around = "" if middle is None else (f" (p50 {seconds(middle)}: {seconds(middle * (1 - error))} to "
                                            f"{seconds(middle * (1 + error))})")
        said.append(f"{called} +-{percent(error)}{around}")
    return f"measured; median error on servers that were not fitted: {', '.join(said)}"


def _below(books: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how the tiers below HBM and the links to them were used, if there are any."""
    tiers = [f"{TIER_LABELS[tier]} {percent(1 - uses['free'] / sum(uses.values()))} full"
             for tier, uses in books["tier_byte_s"].items() if sum(uses.values()) > 0]
    links = [f"{link.replace('_', ' ')} {percent(1 - uses['idle'] / sum(uses.values()))}"
             for link, uses in books["link_s"].items() if sum(uses.values()) > uses["idle"] * (1 + 1e-9)]
    rows = [("tiers", ", ".join(tiers))] if tiers else []
    return [*rows, ("links busy", ", ".join(links))] if links else rows


def _allocation(measures: Mapping[str, float | None]) -> str:
    text = (f"{percent(measures['efficiency'])} of what is allocated and "
            f"{percent(measures['effective_occupancy'])} of the pool holds tokens")
    if measures["external_fragmentation"] is None:
        return text
    return (f"{text}; {percent(measures['external_fragmentation'])} of what is free is too scattered for "
            f"{number(measures['request_tokens'])} tokens")


#: What `blocks` returns, as headings.
BLOCKS = ("tokens a block", "tail waste", "of running", "table entries", "attention", "copies")


def blocks(summary: Summary) -> list[str]:
    """Return what a run's block size means (see `BLOCKS`); dashes for contiguous buffers.

    Tail waste is a share of the pool, and of what running turns hold; table entries are those of the median turn.
    """
    found, pool = summary.get("blocks") or {}, summary["ledger"]["pool_byte_s"]
    running = sum(pool[name] for name in ("decoding", "prefilling", "tail_waste"))
    entries = found.get("table_entries")
    return [number(found["block_tokens"]) if found else NONE, _share(pool, "tail_waste"),
            percent(pool["tail_waste"] / running) if running > 0 else NONE,
            NONE if entries is None else number(entries),
            *(percent(found.get(f"{what}_efficiency")) for what in ("attention", "copy"))]


def _slow_blocks(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the block size costs decode attention, if it changes its rate."""
    rate = found.get("attention_efficiency", 1.0)
    if rate == 1.0:
        return []
    return [("blocks", f"of {number(found['block_tokens'])} tokens: decode attention at {percent(rate)} of its rate "
                       "with blocks of 16")]


def _hourly(rate: float | None) -> float | None:
    return None if rate is None else rate * 3600


def _goodput(goodput: Mapping[str, Any]) -> str:
    words = {True: "met", False: "MISSED", None: "no data"}
    rows = [f"{row['objective']} {percent(row['value'])} of {percent(row['limit'])} {words[row['met']]}"
            if row.get("limit") is not None else
            f"{row['objective']} {seconds(row['value_s'])} of {seconds(row['limit_s'])} {words[row['met']]}"
            for row in goodput["objectives"]]
    return (f"{'; '.join(rows)}; {percent(goodput['turns'])} of turns and {percent(goodput['trajectories'])} "
            "of trajectories within limits")


def _cost(cost: Mapping[str, float | None]) -> str:
    if cost["usd"] is None:
        return "no price in the hardware profile"
    return (f"{usd(cost['usd_per_trajectory'])} a trajectory, {usd(cost['usd_per_Mtok_output'])} a million output "
            f"tokens, {usd(cost['usd_per_Mtok_total'])} a million tokens in all")


def usd(value: float | None) -> str:
    """Return an amount of money."""
    return NONE if value is None else f"${value:,.2f}" if value >= 1 else f"${number(value)}"


def _checks(checks: Mapping[str, Any]) -> str:
    stable = {True: "stable", False: "NOT STABLE: the queue or the number alive grows",
              None: "too short to judge stability"}
    residual = checks["little_residual"]
    little = "" if residual is None else f", Little's law within {percent(residual)}"
    settled = "" if checks["warmup_settled"] else " (not settled: run longer)"
    return (f"{stable[checks['stable']]}{little}; warm-up {seconds(checks['warmup_s'])}{settled}, "
            f"measured {seconds(checks['span_s'])}"
            + (f" x {checks['replications']}" if checks["replications"] > 1 else ""))


def compared(summary: Summary) -> list[tuple[str, str]]:
    """Return short figures of one run, for a table with a column a run."""
    rate, hits, cost = summary["throughput"], summary["hit_rate"], summary["cost"]
    rows = [("trajectories alive, mean", number(summary["concurrency"]["mean"])),
            ("trajectories alive, most", number(summary["concurrency"]["max"])),
            ("trajectories finished", number(summary["trajectories"]["finished"])),
            ("turns/s", number(rate["turns_per_s"])), ("output tokens/s", number(rate["output_tokens_per_s"])),
            ("trajectories/h", number(_hourly(rate["trajectories_per_s"])))]
    for label, place in LATENCIES.items():
        rows += [(f"{label}, {stat}", text) for stat, text in zip(STATISTICS, latency(summary, place), strict=True)
                 if stat in (("p50", "p95") if place != ("ttft_s", "resumed") else ("p50", "p95", "p99"))]
    rows += [("prompt tokens found", percent(hits["total"])), ("with an infinite cache", percent(hits["ceiling"]))]
    turn, pool, gpu = (summary["ledger"][name] for name in ("turn_s", "pool_byte_s", "gpu_s"))
    rows += [(f"turn time: {LABELS[name]}", _share(turn, name)) for name in turn]
    rows += [(f"pool: {LABELS[name]}", _share(pool, name))
             for name in ("decoding", "kept", "dormant_reused", "dormant_wasted", "tail_waste", "free")]
    rows += [(label, percent(summary["allocation"][name])) for label, name in (
        ("allocation efficiency", "efficiency"), ("effective occupancy", "effective_occupancy"),
        ("external fragmentation", "external_fragmentation"))]
    rows += [(f"GPU: {LABELS[name]}", _share(gpu, name)) for name in ("recompute", "copy_stall", "idle")]
    rows += [("evictions", number(summary["counts"]["evictions"])),
             ("forced evictions", number(summary["counts"]["forced_evictions"])),
             ("preemptions", number(summary["counts"]["preemptions"])),
             ("binds", RESOURCES.get(summary["binds"]["resource"], str(summary["binds"]["resource"]))),
             ("USD a trajectory", usd(cost["usd_per_trajectory"])),
             ("USD a million output tokens", usd(cost["usd_per_Mtok_output"])),
             ("stable", {True: "yes", False: "NO", None: NONE}[summary["checks"]["stable"]])]
    return rows


def _share(ledger: Mapping[str, float], name: str) -> str:
    whole = sum(ledger.values())
    return percent(ledger[name] / whole) if whole > 0 else NONE


def html(name: str, summary: Summary) -> str:
    """Return a summary as a piece of HTML."""
    e = escaping.escape
    head = "".join(f"<th>{text}</th>" for text in ("latency", *STATISTICS))
    body = "".join(f"<tr><th>{e(label)}</th>" + "".join(f"<td>{e(text)}</td>" for text in latency(summary, place))
                   + "</tr>" for label, place in LATENCIES.items())
    rest = "".join(f"<tr><th style='text-align:left'>{e(label)}</th><td style='text-align:left'>{e(text)}</td></tr>"
                   for label, text in facts(summary))
    return (f"<div><b>{e(name)}</b><table><tr>{head}</tr>{body}</table><table>{rest}</table></div>")
