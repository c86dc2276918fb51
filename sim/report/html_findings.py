"""What a run's ledgers say, in sentences: what binds and why, and whether the figures can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sim.metrics import lost
from sim.metrics.counted import beyond_tables
from sim.metrics.steady import steady
from sim.metrics.wording import LABELS, RESOURCES, method, number, outside, percent, seconds, usd
from sim.records import TIER_LABELS
from sim.report.html_page import Said

Summary = Mapping[str, Any]

#: Little's-law residual from which a run deserves a remark.
LITTLE = 0.1
_SPENT = {
    "queue_blocks": "waiting for KV blocks", "queue_budget": "waiting for room in a step", "reload":
    "waiting for KV to come back over the host link", "prefill": "computing their own prompts", "recompute":
    "computing again what was once held", "interference": "waiting while other turns' prompts were computed",
    "decode": "decoding", "preemption": "starting again after a preemption",
}
_HELD = {
    "decoding": "decoding turns", "prefilling": "turns in prefill", "kept": "paused trajectories that were kept",
    "dormant_reused": "cache entries that were found again", "dormant_wasted":
    "cache entries that nobody came back for", "tail_waste": "the empty ends of last blocks", "reserved":
    "reservations", "in_flight": "copies on their way", "free": "free room",
}
_DONE = {"prefill": "new prompt tokens", "recompute": "tokens computed before", "decode": "decoding",
         "copy_stall": "stalls for copies", "idle": "idling"}


def parts(ledger: Mapping[str, float], words: Mapping[str, str], most: int = 4, least: float = 0.01,
          between: str = " ") -> str:
    """Return the largest entries of a ledger as ``43% decoding, 20% waiting ...``; ``nothing`` for an empty one."""
    whole = sum(ledger.values())
    if whole <= 0:
        return "nothing"
    ranked = sorted(((value / whole, name) for name, value in ledger.items()), reverse=True)
    shown = [f"{percent(share)}{between}{words.get(name, LABELS.get(name, name))}" for share, name in ranked[:most]
             if share >= least]
    return ", ".join(shown[:-1]) + (" and " if len(shown) > 1 else "") + shown[-1]


def _share(ledger: Mapping[str, float], *names: str) -> float:
    whole = sum(ledger.values())
    return sum(ledger.get(name, 0.0) for name in names) / whole if whole > 0 else 0.0


def binds(summary: Summary) -> Iterator[Said]:
    """Say what binds and why, then where time, memory and GPUs went."""
    found, ledger, counts = summary["binds"], summary["ledger"], summary["counts"]
    resource = RESOURCES.get(found["resource"], str(found["resource"]))
    why = found["why"][:1].upper() + found["why"][1:] if found["why"] else ""
    yield Said("Nothing binds" if found["resource"] == "none" else f"What binds: {resource}", f"{why}.", "first")
    state = steady(summary)
    if summary["checks"].get("shorter_than_trajectories"):
        yield Said("Too short", _sentence(state.text), "bad")
    elif summary["checks"]["stable"] is False:
        yield Said("Not steady", f"{_sentence(state.text)} Latencies depend on the length of the run.", "bad")
    elif state.word != "steady" and not state.warns:
        yield Said("Steady, at its limit", _sentence(state.text))
    for tier, why in (summary.get("unused_tiers") or {}).items():
        yield Said("Unused tier", f"{_sentence(TIER_LABELS[tier])[:-1]} stayed empty: {why}.",
                   "bad" if "; set " in why else "")
    for line in lost.said(summary):
        yield Said("Lost contexts", _sentence(line), "bad")
    runner_up = sorted(((score, name) for name, score in found["scores"].items() if name != found["resource"]),
                       reverse=True)[:1]
    if found["scores"] and found["resource"] not in ("none", None) and runner_up and runner_up[0][0] >= 0.1:
        share, name = runner_up[0]
        yield Said("Runner-up", f"{percent(found['scores'][found['resource']])} of the turns' time is put down to "
                           f"{resource}, {percent(share)} to {RESOURCES.get(name, name)}.")
    if goodput := summary["goodput"]:
        yield from _objectives(goodput)
    mean = summary["turn_s"]["mean"]
    if mean is not None:
        yield Said("Turns", f"A turn takes {seconds(mean)} on average: {parts(ledger['turn_s'], _SPENT)}.")
    yield Said("KV pool", f"Of its byte-seconds went {parts(ledger['pool_byte_s'], _HELD, between=' to ')}."
               + _scarce(ledger["pool_byte_s"], counts))
    yield from _reuse(summary)
    yield from _routed(summary)
    yield Said("GPUs", f"Of their time went {parts(ledger['gpu_s'], _DONE, between=' to ')}.")
    yield from _pauses(summary)
    if counts.get("preemptions"):
        yield Said("Preemptions", f"{number(counts['preemptions'])} running turns gave their blocks back and started "
                                  "again because no block was left for the next token.", "bad")
    if counts.get("rejections"):
        yield Said("Rejections", f"{number(counts['rejections'])} turns were turned away: they could never fit the "
                                 "pool.", "bad")
    cost = summary["cost"]
    if cost["usd"] is not None:
        yield Said("Cost", f"{usd(cost['usd_per_trajectory'])} a trajectory, {usd(cost['usd_per_Mtok_output'])} a "
                           "million output tokens, all GPUs paid for by the hour, busy or not.")


def _scarce(pool: Mapping[str, float], counts: Mapping[str, int]) -> str:
    forced = counts.get("forced_evictions", 0)
    said = f" {number(forced)} kept contexts were forced out for want of room." if forced else ""
    return said + (" On average less than a twentieth was free." if _share(pool, "free") < 0.05 else "")


def _objectives(goodput: Mapping[str, Any]) -> Iterator[Said]:
    for row in goodput["objectives"]:
        verdict = {True: "met", False: "missed", None: "no data"}[row["met"]]
        yield Said(f"Objective {row['objective']}", f"{seconds(row['value_s'])} against a limit of "
                   f"{seconds(row['limit_s'])}: {verdict}.", "" if row["met"] else "bad")
    yield Said("Goodput", f"{percent(goodput['turns'])} of turns and {percent(goodput['trajectories'])} of "
                          "trajectories stay within the limits.")


def _reuse(summary: Summary) -> Iterator[Said]:
    hits, gpu = summary["hit_rate"], summary["ledger"]["gpu_s"]
    if hits["total"] is None or hits["ceiling"] is None:
        return
    missed = hits["ceiling"] - hits["total"]
    text = (f"{percent(hits['total'])} of prompt tokens were found in the cache; one of infinite size would have found "
            f"{percent(hits['ceiling'])}.")
    if missed > 0.005:
        busy = 1.0 - _share(gpu, "idle")
        again = _share(gpu, "recompute") / busy if busy > 0 else 0.0
        text += f" The {percent(missed)} in between were computed again and took {percent(again)} of busy GPU time"
        worst = [row["span"] for row in summary["breakers"][:3]]
        text += f", most of it for {', '.join(worst)}." if worst else "."
    yield Said("Prefix cache", text)


def _routed(summary: Summary) -> Iterator[Said]:
    found = summary.get("routing")
    if found and found["moved"]:
        yield Said("Routing", f"{percent(found['moved'])} of resumed turns went to another replica than the one that "
                   f"had served the turn before. {percent(found['found_moved'])} of their prompt tokens were found, of "
                   f"the others' {percent(found['found_stayed'])}; what they computed again is "
                   f"{percent(found['recomputed_moved'])} of all prompt tokens.")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _pauses(summary: Summary) -> Iterator[Said]:
    held = summary["hold_GB_s"]
    if held["total"] <= 0:
        return
    tools = sorted(held["by_tool"].items(), key=lambda item: -item[1])
    tiers = parts(held["by_tier"], {"hbm": "in HBM", **{tier: f"in {name}" for tier, name in TIER_LABELS.items()}})
    yield Said("Pauses", f"Paused contexts held {number(held['total'])} GB·s, {tiers}; waits for "
                         f"'{tools[0][0]}' account for {percent(tools[0][1] / held['total'])} of it.")


def honesty(summary: Summary, scenario: Any) -> Iterator[Said]:
    """Say whether the run can be trusted and how uncertain its figures are."""
    checks = summary["checks"]
    state = steady(summary)
    yield Said("Steady or not", _sentence(f"{state.word}: {state.text}"), "bad" if state.warns else "")
    warmup = f"{seconds(checks['warmup_s'])} were cut off the start; {seconds(checks['span_s'])} were measured"
    warmup += f", in each of {checks['replications']} replications." if checks["replications"] > 1 else "."
    yield Said("Warm-up", warmup + ("" if checks["warmup_settled"] else " It had not settled by half of the turns: run "
                                    "longer."), "" if checks["warmup_settled"] else "bad")
    little = checks["little_residual"]
    if little is not None:
        far = " Large: turns were left over at the end, or the queue grew." if little > LITTLE else ""
        yield Said("Little's law", f"L and lambda W of turns in the system differ by {percent(little)}.{far}",
                   "bad" if far else "")
    worst = max(checks["ledger_residual"].values(), default=0.0)
    yield Said("Ledgers", f"Turn time, pool byte-seconds and GPU time add up to their wholes within {worst:.1e}.")
    ways = sorted({found["method"] for found in summary["intervals"].values()} - {"replications"})
    by = f", by {' and '.join(ways)}" if ways else "" if summary["intervals"] else ": too few turns for any"
    yield Said("Intervals", f"95 %, {method(summary)}{by}; {number(checks['turns_measured'])} turns were measured. "
               "They say how far chance moves a figure, not how far the model is from a real engine.")
    if beyond := beyond_tables(summary["counts"]):
        yield Said("Beyond what was measured", f"Step times were extrapolated: {outside(beyond)}.")
    roofline = getattr(getattr(scenario, "timing", None), "roofline", None)
    if roofline is not None and summary.get("band") is None:
        yield Said("Step times", f"From datasheet figures at MFU {roofline.mfu:g} and MBU {roofline.mbu:g}, not "
                   "measured: compare scenarios with each other before trusting absolute times.")
