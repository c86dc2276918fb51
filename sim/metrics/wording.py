"""A summary in words and figures, for tables on a terminal and in a notebook."""

from __future__ import annotations

import html as escaping
from collections.abc import Mapping, Sequence
from typing import Any

from sim.metrics import lost
from sim.metrics.binds import RESOURCES as RESOURCES
from sim.metrics.counted import beyond_tables, named
from sim.metrics.steady import steady
from sim.records import TIER_LABELS

Summary = Mapping[str, Any]

#: What the entries of the ledgers are called in a table.
LABELS = {
    "queue_blocks": "waiting for KV blocks", "queue_budget": "waiting for a step", "reload": "waiting for a reload",
    "prefill": "prefill", "recompute": "recomputation", "interference": "others' prefill", "decode": "decode",
    "preemption": "preempted", "decoding": "decoding turns", "prefilling": "turns in prefill", "kept": "pinned pauses",
    "dormant_reused": "cache used again", "dormant_wasted": "cache never used again", "tail_waste": "empty ends",
    "reserved": "reserved", "in_flight": "being copied", "free": "free", "copy_stall": "stalled by copies",
    "idle": "idle",
}
#: The two ways of a link, in words: `host_out` is "to host memory".
_WAYS = {"out": "to", "in": "from"}
_ENDS = {"host": "host memory", "nvme": "NVMe", "remote": "remote memory"}
LATENCIES = {
    "TTFT, first turn": ("ttft_s", "first"), "TTFT, resumed": ("ttft_s", "resumed"), "inter-token": ("itl_s",),
    "per output token": ("tpot_s",), "turn": ("turn_s",), "trajectory": ("trajectory_s",),
}
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


def method(summary: Summary) -> str:
    """Return what the intervals of a summary rest on: replications, or parts of one run."""
    count = summary["checks"]["replications"]
    return f"over {count} replications" if count > 1 else "within one run"


def facts(summary: Summary) -> list[tuple[str, str]]:
    """Return what a summary says besides latencies: label and text, in reading order."""
    rate, hits, alive = summary["throughput"], summary["hit_rate"], summary["concurrency"]
    trajectories, binds = summary["trajectories"], summary["binds"]
    tiers = [f"{called} {percent(hits[name])}" for name, called in (("hbm", "HBM"), *TIER_LABELS.items())
             if hits.get(name) is not None]
    rows = [
        ("trajectories alive", f"mean {number(alive['mean'])}, most {number(alive['max'])}"),
        ("trajectories", f"{number(trajectories['started'])} started, {number(trajectories['finished'])} finished, "
                         f"{number(trajectories['rejected'])} rejected; {number(summary['turns'])} turns finished"),
        ("throughput", f"{number(rate['turns_per_s'])} turns/s, {number(rate['output_tokens_per_s'])} output tokens/s, "
                       f"{number(rate['prompt_tokens_per_s'])} prompt tokens/s, "
                       f"{number(_hourly(rate['trajectories_per_s']))} trajectories/h"),
        ("prompt tokens", f"{percent(hits['total'])} found in a cache ({', '.join(tiers) or NONE}); an infinite cache "
                          f"would find {percent(hits['ceiling'])}"),
        *_routing(summary),
        ("time of turns", shares(summary["ledger"]["turn_s"])),
        ("KV pool", shares(summary["ledger"]["pool_byte_s"])),
        ("GPU time", shares(summary["ledger"]["gpu_s"])),
        *_below(summary),
        *_what_if(summary),
        ("holds tokens", _allocation(summary["allocation"])),
        *_slow_blocks(summary.get("blocks") or {}),
        ("counts", ", ".join(f"{number(count)} {name}" for name, count in named(summary["counts"]).items() if count)
         or "none"),
    ]
    if summary.get("band"):
        rows.append(("step times", _band(summary)))
    if count := summary["counts"].get("over_context_limit"):
        rows.append(("TOO LONG", f"{number(count)} turns are longer than the model's context (its context_limit): they "
                                 "were served here, a server would refuse them"))
    if beyond := beyond_tables(summary["counts"]):
        rows.append(("beyond tables", f"not measured, extrapolated: {outside(beyond)}"))
    if summary["breakers"]:
        rows.append(("recomputed most", ", ".join(f"{row['span']} ({number(row['recomputed_tokens'])} tokens)"
                                                  for row in summary["breakers"][:3])))
    if summary["goodput"] is not None:
        rows.append(("objectives", _goodput(summary["goodput"])))
    state = steady(summary)
    rows += [
        ("binds", f"{RESOURCES.get(binds['resource'], str(binds['resource']))}: {binds['why']}"),
        ("cost", _cost(summary["cost"])),
        ("steady?", f"{state.word}: {state.text}"),
        ("measured", f"{_measured(summary['checks'])}; intervals {method(summary)}"),
    ]
    return rows


def _what_if(summary: Summary) -> list[tuple[str, str]]:
    """Return by how much a given pool exceeds the memory there is, if it does."""
    over = summary.get("over_hbm_bytes")
    return [("WHAT-IF", f"weights and engine.pool exceed the HBM of a replica by {number(over / 1e9)} GB: no such "
                        "machine exists")] if over else []


def _routing(summary: Summary) -> list[tuple[str, str]]:
    """Return what was lost because turns came back to another replica, if any did."""
    found = summary.get("routing")
    if not found or not found["moved"]:
        return []
    return [("routing", f"{percent(found['moved'])} of resumed turns went to another replica than the turn before: "
                        f"{percent(found['found_moved'])} of their prompt tokens were found, of the others' "
                        f"{percent(found['found_stayed'])}; what they computed again is "
                        f"{percent(found['recomputed_moved'])} of all prompt tokens ('routing: sticky' avoids it)")]


def outside(tables: Mapping[str, tuple[int, int | None]]) -> str:
    """Return how often step times had to be taken from beyond what was measured, by table."""
    return ", ".join(f"{name} {percent(count / asked)} of look-ups" if asked else f"{name} {number(count)} look-ups"
                     for name, (count, asked) in tables.items())


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


def link(name: str) -> str:
    """Return a way of a link in words."""
    end, _, way = name.rpartition("_")
    return f"{_WAYS.get(way, way)} {_ENDS.get(end, end)}"


def _below(summary: Summary) -> list[tuple[str, str]]:
    """Return how the tiers below HBM and the links to them were used, if there are any."""
    books, unused = summary["ledger"], summary.get("unused_tiers") or {}
    tiers = [f"{TIER_LABELS[tier]} {percent(1 - uses['free'] / sum(uses.values()))} full"
             for tier, uses in books["tier_byte_s"].items() if sum(uses.values()) > 0 and tier not in unused]
    links = [f"{link(name)} {percent(1 - uses['idle'] / sum(uses.values()))}"
             for name, uses in books["link_s"].items() if sum(uses.values()) > uses["idle"] * (1 + 1e-9)]
    rows = [("tiers", ", ".join(tiers))] if tiers else []
    rows += [("UNUSED", f"{TIER_LABELS[tier]} stayed empty: {why}") for tier, why in unused.items()]
    rows += [("LOST", said) for said in lost.said(summary)]
    return [*rows, ("links busy", ", ".join(links))] if links else rows


def _allocation(measures: Mapping[str, float | None]) -> str:
    text = (f"{percent(measures['effective_occupancy'])} of the pool, {percent(measures['efficiency'])} of what is "
            "allocated")
    if not measures["external_fragmentation"]:
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


def _measured(checks: Mapping[str, Any]) -> str:
    """Return what the figures are taken from, and how well turns counted and turns timed agree."""
    settled = "" if checks["warmup_settled"] else " (not settled: run longer)"
    residual = checks["little_residual"]
    little = "" if residual is None else f"; Little's law holds within {percent(residual)}"
    several = f" in each of {checks['replications']} replications" if checks["replications"] > 1 else ""
    return f"{seconds(checks['span_s'])}{several}, after a warm-up of {seconds(checks['warmup_s'])}{settled}{little}"


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
    rows += [(f"turn: {LABELS[name]}", _share(turn, name)) for name in turn]
    rows += [(f"pool: {LABELS[name]}", _share(pool, name))
             for name in ("decoding", "kept", "dormant_reused", "dormant_wasted", "tail_waste", "free")]
    rows += [(label, percent(summary["allocation"][name])) for label, name in (
        ("allocation efficiency", "efficiency"), ("effective occupancy", "effective_occupancy"),
        ("external fragmentation", "external_fragmentation"))]
    rows += [(f"GPU: {LABELS[name]}", _share(gpu, name)) for name in ("recompute", "copy_stall", "idle")]
    unused = [TIER_LABELS[tier] for tier in summary.get("unused_tiers") or {}]
    rows += [("tiers that stayed empty", "\n".join(unused) or NONE),
             ("blocks evicted", number(summary["counts"]["evictions"])),
             ("pinned contexts given up", number(summary["counts"]["forced_evictions"])),
             ("preemptions", number(summary["counts"]["preemptions"])),
             ("binds", RESOURCES.get(summary["binds"]["resource"], str(summary["binds"]["resource"]))),
             ("USD a trajectory", usd(cost["usd_per_trajectory"])),
             ("USD a million output tokens", usd(cost["usd_per_Mtok_output"])),
             ("steady", "too short" if summary["checks"].get("shorter_than_trajectories") else
              {True: "yes", False: "NO", None: NONE}[summary["checks"]["stable"]])]
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
