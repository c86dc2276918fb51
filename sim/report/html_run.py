"""The page of one run: figures, tables, what binds, how far to trust it, and the scenario."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sim.metrics.counted import beyond_tables, named
from sim.metrics.steady import steady
from sim.metrics.wording import (
    LABELS,
    LATENCIES,
    RESOURCES,
    interval,
    link,
    method,
    number,
    percent,
    seconds,
    usd,
)
from sim.records import LINK_USES, TIER_LABELS, TIER_USES, TURN_CAUSES
from sim.report.html_findings import binds, honesty
from sim.report.html_page import Block, Cell, Page, Said, Sketchbook, Tile, code, sentences, side_by_side, table
from sim.sweep import variants

if TYPE_CHECKING:
    from sim.report.plots.accessor import Plots
    from sim.sweep.result import Result

#: Tables of a run that its page is made from.
TABLES = ("turns", "pauses", "moves", "timeline")
#: Slow turns listed.
SLOWEST = 15
_TIERS = {"hbm": "HBM", **TIER_LABELS}
_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "p999")


def page(result: Result, run_yaml: str) -> Page:
    """Return the page of a run."""
    summary, scenario = result.summary, result.scenario
    text, origin = _split(run_yaml)
    made = Page(title=str(getattr(scenario, "name", "run")), subtitle=variants.title(scenario, without="name"),
                footer=_footer(origin))
    made.tiles = list(_tiles(summary))
    made.add("What binds, and why", sentences(binds(summary)), _scores(summary))
    made.add("Figures", Block("figures", items=_figures(result)))
    made.add("Latencies", _latencies(summary))
    made.add("Ledgers and counts", side_by_side(_ledgers(summary)), sentences(_never(summary)))
    made.add("Pauses by tool", _tools(result))
    made.add("Slowest turns", _slowest(result))
    made.add("How far to trust this", sentences(honesty(summary, scenario)), _intervals(summary))
    made.add("Scenario", code(text, "The scenario with every default filled in"),
             code(origin, "Provenance: version, seed and hashes of what went in"))
    return made


def _split(run_yaml: str) -> tuple[str, str]:
    """Return the scenario and the provenance of `run.yaml`."""
    from sim.sweep.provenance import KEY

    text, mark, origin = run_yaml.partition(f"\n{KEY}:")
    return text.strip("\n"), f"{KEY}:{origin}".strip("\n") if mark else ""


def _footer(origin: str) -> str:
    import yaml

    from sim.sweep.provenance import KEY

    found = yaml.safe_load(origin)
    known = found[KEY].get("kvplan", "") if isinstance(found, dict) and isinstance(found.get(KEY), dict) else ""
    return (f"Run by kvplan {known}. Times are simulated; GB is 1e9 bytes. This file holds all it shows and asks the "
            "network for nothing.")


def _tiles(summary: Mapping[str, Any]) -> Iterable[Tile]:
    alive, rate, hits = summary["concurrency"], summary["throughput"], summary["hit_rate"]
    ttft, itl = summary["ttft_s"]["resumed"], summary["itl_s"]
    met = {(row["objective"]): row["met"] for row in (summary["goodput"] or {}).get("objectives", [])}
    resource = summary["binds"]["resource"]

    def mood(metric: str) -> str:
        verdicts = [ok for name, ok in met.items() if name.startswith(metric)]
        return "" if not verdicts else "good" if all(verdicts) else "bad"

    yield Tile("Trajectories alive", number(alive["mean"]), f"at most {number(alive['max'])}")
    yield Tile("Resumed TTFT, p95", seconds(ttft["p95"]), f"median {seconds(ttft['p50'])}", mood("ttft_resumed"))
    yield Tile("Token gap, p99", seconds(itl["p99"]), f"median {seconds(itl['p50'])}", mood("itl"))
    yield Tile("Turns per second", number(rate["turns_per_s"]),
               f"{number(rate['output_tokens_per_s'])} output tokens/s")
    yield Tile("Prompt found", percent(hits["total"]), f"with an infinite cache {percent(hits['ceiling'])}")
    yield Tile("Cost per trajectory", usd(summary["cost"]["usd_per_trajectory"]),
               f"{usd(summary['cost']['usd_per_Mtok_output'])} a million output tokens")
    state = steady(summary)
    yield Tile("Binds", RESOURCES.get(resource, str(resource)).split(" (")[0], state.word, "bad" if state.warns else "")


def _scores(summary: Mapping[str, Any]) -> Block:
    ranked = sorted(summary["binds"]["scores"].items(), key=lambda item: -item[1])
    return side_by_side([table(["resource", "share of the turns' time"], [
        (RESOURCES.get(name, name), Cell(percent(share), share, share)) for name, share in ranked if share > 5e-4],
        "Turn time by the resource behind it")])


def _figures(result: Result) -> list[Any]:
    from sim.report.plots.accessor import Plots

    book, plots = Sketchbook(), Plots(result)
    found = [book.draw(getattr(plots, name), caption, height=height) for name, caption, height in _captions(plots)]
    return found


def _captions(plots: Plots) -> Iterable[tuple[str, str, float]]:
    result = plots.result
    many = " First replication." if result.summary["checks"]["replications"] > 1 else ""
    if len(result.timeline):
        yield "pool_use", f"What the KV pool of all replicas held, averaged over each interval.{many}", 3.3
        yield "occupancy", f"Turns decoding, in prefill and queued; trajectories alive.{many}", 3.3
        yield "gpu_use", f"What the GPUs worked on; recomputation is prefill of tokens computed before.{many}", 3.3
    if len(result.turns):
        yield "time_by_cause", "Mean time of a turn, from ready to its last token, by cause.", 3.3
        yield "ttft", "Share of turns whose first token came within the time.", 3.3
        yield "itl", "Share of gaps between two tokens of a stream within the time.", 3.3
    if len(result.pauses):
        yield "pauses", "Each point is a pause: how long it lasted and how much context only it held.", 3.3
    if len(result.moves):
        yield "link_use", f"Share of time a copy was under way, mean of the replicas.{many}", 3.3


def _latencies(summary: Mapping[str, Any]) -> Block:
    rows: list[list[Cell | str]] = []
    places = {label: ".".join(place) for label, place in LATENCIES.items()}
    ends = [name for name in ("mean", "p95") if any(f"{path}.{name}" in summary["intervals"]
                                                    for path in places.values())]
    for label, path in places.items():
        stats: Any = summary
        for key in path.split("."):
            stats = stats[key]
        rows.append([label, *(Cell(seconds(stats[name]), _key(stats[name])) for name in _STATISTICS),
                     *(interval(summary, f"{path}.{name}") for name in ends)])
    heads = ["mean", "p50", "p90", "p95", "p99", "p99.9", *(f"{name}, 95 % interval" for name in ends)]
    return table(["latency", *heads], rows, f"Intervals are of 95 %, {method(summary)}" if ends else "")


def _key(value: float | None) -> float | str:
    return "" if value is None else value


def _ledgers(summary: Mapping[str, Any]) -> Iterable[Block]:
    books = summary["ledger"]
    tables = [("Time of turns", "cause", 1.0, "s", books["turn_s"], LABELS),
              ("KV pool", "use", 1e9, "GB·s", books["pool_byte_s"], LABELS),
              ("GPU time of replicas", "use", 1.0, "s", books["gpu_s"], LABELS)]
    tables += [(f"Tier: {TIER_LABELS[tier]}", "use", 1e9, "GB·s", uses, TIER_USES)
               for tier, uses in books["tier_byte_s"].items()]
    tables += [(f"Copies {link(name)}", "use", 1.0, "s", uses, LINK_USES | {"idle": "idle"})
               for name, uses in books["link_s"].items()]
    for title, head, scale, unit, ledger, labels in tables:
        whole = sum(ledger.values())
        used = {use: value for use, value in ledger.items() if value > 1e-9 * whole}
        if used and set(used) != {"idle"} and set(used) != {"free"}:
            yield table([head, unit, "share"], [
                (labels[use], Cell(number(value / scale), value), Cell(percent(value / whole), value, value / whole))
                for use, value in sorted(used.items(), key=lambda item: -item[1])], title)
    yield table(["what happened in the whole run", "times"], [
        (name, Cell(number(count), count)) for name, count in named(summary["counts"]).items() if count], "Counts")
    beyond = beyond_tables(summary["counts"])
    yield table(["measured table", "look-ups beyond it"], [
        (name, Cell(percent(count / asked) if asked else number(count), count)) for name, (count, asked)
        in beyond.items()], "Step times that were not measured, but extrapolated")
    yield table(["content", "tokens recomputed"], [
        (row["span"], Cell(number(row["recomputed_tokens"]), row["recomputed_tokens"]))
        for row in summary["breakers"]], "Recomputed most")


def _never(summary: Mapping[str, Any]) -> Iterable[Said]:
    """Say what did not happen, in one line instead of rows of zeros."""
    never = [name for name, count in named(summary["counts"]).items() if not count]
    books = summary["ledger"]
    idle = [link(name) for name, uses in books["link_s"].items() if sum(uses.values()) <= uses["idle"] * (1 + 1e-9)]
    if never:
        yield Said("Did not happen", f"{'; '.join(never)}.")
    if idle:
        yield Said("No copies", f"{', '.join(idle)}.")


def _tools(result: Result) -> Block:
    pauses = result.pauses
    tiers = [tier for tier in _TIERS if f"hold_{tier}_byte_s" in pauses
             and (tier == "hbm" or pauses[f"hold_{tier}_byte_s"].any())]
    rows: list[list[Cell | str]] = []
    for tool, chosen in pauses.groupby("tool"):
        wait = chosen["end_s"] - chosen["start_s"]
        held = [float(chosen[f"hold_{tier}_byte_s"].sum()) / 1e9 for tier in tiers]
        actions = ", ".join(f"{percent(count / len(chosen))} {action}"
                            for action, count in chosen["action"].value_counts().items())
        quantiles = [float(wait.quantile(q)) for q in (0.5, 0.95)]
        forced = int(chosen["forced"].sum())
        rows.append([str(tool) or "(none)", Cell(number(len(chosen)), len(chosen)),
                     *(Cell(seconds(value), value) for value in quantiles),
                     *(Cell(number(value), value) for value in held), Cell(number(forced), forced), actions])
    heads = ["waits for", "pauses", "wait p50", "wait p95", *(f"GB·s held in {_TIERS[tier]}" for tier in tiers),
             "forced out", "what was done"]
    return table(heads, rows, words=(0, len(heads) - 1))


def _slowest(result: Result) -> Block:
    turns = result.turns
    rows = turns[(turns["status"] == "finished") & ~turns["first"].astype(bool)
                 & (turns["ready_s"] >= result.summary["checks"]["warmup_s"])]
    rows = rows.assign(ttft=rows["first_token_s"] - rows["ready_s"]).nlargest(SLOWEST, "ttft")
    made: list[list[Cell | str]] = []
    for row in rows.to_dict("records"):
        cause = max(TURN_CAUSES, key=lambda name: 0.0 if name == "decode" else row[f"{name}_s"])
        found = sum(row[name] for name in row if str(name).startswith("hit_"))
        made.append([Cell(f"{row['trajectory']}, turn {row['turn']}", row["trajectory"]),
                     Cell(seconds(row["ready_s"]), row["ready_s"]), Cell(seconds(row["ttft"]), row["ttft"]),
                     Cell(number(row["prompt_tokens"]), row["prompt_tokens"]),
                     Cell(percent(found / row["prompt_tokens"]), found / row["prompt_tokens"]),
                     Cell(number(row["recomputed_tokens"]), row["recomputed_tokens"]),
                     f"{LABELS[cause]}, {seconds(row[f'{cause}_s'])}"])
    return table(["trajectory", "ready at", "time to first token", "prompt tokens", "found", "recomputed",
                  "most of its wait"], made, words=(0, 6))


def _intervals(summary: Mapping[str, Any]) -> Block:
    rows: list[list[Cell | str]] = []
    for path, found in summary["intervals"].items():
        timed = "_s." in f"{path}." and "per_s" not in path
        write = percent if path.startswith("hit_rate") else seconds if timed else number
        rows.append([_said(path), *(Cell(write(found[name]), found[name]) for name in ("value", "low", "high")),
                     found["method"], Cell(number(found["n"]), found["n"])])
    return table(["figure", "value", "from", "to", "method", "n"], rows, f"95 % intervals, {method(summary)}; n: "
                 "replications, batches of turns, or turns, as the method has it", words=(0, 4))


def _said(path: str) -> str:
    """Return what a path of summary.json is, in words."""
    place, _, name = path.rpartition(".")
    labels = {".".join(at): label for label, at in LATENCIES.items()} | {"ttft_s.all": "TTFT, all turns"}
    if place in labels:
        return f"{labels[place]}: {name}"
    return {"hit_rate.total": "prompt tokens found in a cache", "concurrency.mean": "trajectories alive, mean"}.get(
        path, name.replace("_per_s", " a second").replace("_", " "))
