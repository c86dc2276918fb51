"""Write docs/validation.md and its figures: ``python -m sim.report.validation docs/validation.md``.

Runs every scenario in `scenarios/validation`; some minutes on two cores. Needs a checkout, since the measured figures
lie with the tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sim.report import validation_cases as cases
from sim.report import validation_readings as readings
from sim.report import validation_text as text

if TYPE_CHECKING:
    import pandas as pd

#: Errors up to this are what was asked for.
BOUND = 0.25
#: Figures of the CPU tier that the readings of its source are compared by.
_READ = ("request_mean_s", "tokens_per_s", "ttft_mean_s")
#: What is left of a request when its first token is there.
_AFTER = "after the first token"


def page(figures: Path, jobs: int) -> str:
    """Run everything; return the page and write its figures into `figures`."""
    from sim.report import validation_figures as draw

    agents, tier = cases.agent_jobs(jobs=jobs), cases.cpu_tier(jobs)
    seeds = cases.agent_jobs((cases.WINDOW_S, cases.INFERRED_S), (None,), jobs=jobs, seeds=cases.SEEDS)
    chunked, paging, queues, link = cases.chunked(), cases.paging(), cases.queues(jobs), cases.host_link()
    draw.agent_jobs(_mean(headline(seeds)), figures / "validation_agent_jobs.png")
    draw.host_link(link, figures / "validation_link.png")
    summary = [*_agent_verdicts(agents, seeds), *_cpu_verdicts(tier), _known_verdict("Chunked prefill", chunked),
               _known_verdict("Paging", paging), _queue_verdict(queues), _link_verdict(link)]
    parts = [
        text.HEAD, _short_text(agents, seeds, tier), "\n", _table(("case", "asked", "found", ""), summary),
        _agents_text(), "\n", _windows(agents), "\n", _order_text(seeds), "\n", _agent_rows(headline(seeds)),
        text.SEEDS, "\n", _seed_rows(seeds), text.SETTINGS, "\n", _setting_rows(readings.agent_jobs(jobs)),
        _agents_after(headline(seeds)), text.CPU, "\n", _cpu_rows(tier), "\n", _gains(tier), text.READINGS, "\n",
        _reading_rows(readings.cpu_tier(jobs)), text.CPU_AFTER, text.KNOWN, "\n", _known_rows(chunked),
        text.PAGING.format(static=_static_contexts()), "\n", _known_rows(paging), text.QUEUES, "\n",
        _queue_rows(queues), text.LINK,
    ]
    return "".join(parts)


def headline(agents: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are shown in full: the window that memory implies, step times as measured."""
    return agents[(agents["window_s"] == cases.WINDOW_S) & (agents["mfu"] == 0)]


def _agent_verdicts(agents: pd.DataFrame, seeds: pd.DataFrame) -> list[Sequence[str]]:
    stated = _as_inferred(agents)
    shown = headline(seeds)
    low, high = cases.error_range(shown)
    right, _, pairs = cases.order(shown)
    pressed, _, pressed_pairs = cases.order(_pressed(shown))
    return [
        (f"Agent jobs, mean job time, 15 rows; jobs arrive for {cases.WINDOW_S} s, read off the published rows; no "
         f"step time fitted; {len(cases.SEEDS)} seeds", f"median {BOUND:.0%}", f"{low:.0%} to {high:.0%}",
         _verdict(high <= BOUND)),
        (f"The same with {cases.INFERRED_S} s, as had been inferred; prefill rate fitted", f"median {BOUND:.0%}",
         f"{stated:.0%}", _verdict(stated <= BOUND)),
        (f"With {cases.WINDOW_S} s, ranking of the policies under pressure (6 jobs/s and more)", "all pairs",
         f"{pressed} of {pressed_pairs}", _verdict(pressed == pressed_pairs)),
        (f"With {cases.WINDOW_S} s, ranking at every rate", "all pairs", f"{right} of {pairs}",
         _verdict(right == pairs)),
    ]


def _as_inferred(agents: pd.DataFrame) -> float:
    """Return the median error with the window that had been inferred and the prefill rate that fits it best."""
    inferred = agents[agents["window_s"] == cases.INFERRED_S]
    return cases.median_error(inferred[inferred["mfu"] == cases.fitted(inferred)])


def _short_text(agents: pd.DataFrame, seeds: pd.DataFrame, tier: pd.DataFrame) -> str:
    low, high = cases.error_range(headline(seeds))
    request, ttft = _worst(tier)
    gains = {f"{column}_{name[9:]}": f"{cases.gain(tier, name, column):+.0%}"
             for name in ("cpu_tier_30k", "cpu_tier_8k") for column in ("measured", "predicted")}
    return text.SHORT.format(low=f"{low:.0%}", high=f"{high:.0%}", stated=f"{_as_inferred(agents):.0%}",
                             window=cases.WINDOW_S, inferred=cases.INFERRED_S, request=f"{request:.0%}",
                             ttft=f"{ttft:.0%}", **gains)


def _worst(tier: pd.DataFrame) -> tuple[float, float]:
    """Return the largest error of mean request times and throughputs, and that of mean TTFT at 30,000 tokens."""
    main = tier[tier["figure"].isin(["request_mean_s", "tokens_per_s"])]
    first = tier[(tier["figure"] == "ttft_mean_s") & (tier["scenario"] == "cpu_tier_30k")]
    return float(main["error"].abs().max()), float(first["error"].abs().max())


def _mean(table: pd.DataFrame) -> pd.DataFrame:
    """Return each policy's rows in the order of the policies, averaged over the seeds."""
    return table.groupby(["policy", "jobs_per_s"], sort=False)[["measured", "predicted"]].mean().reset_index()


def _pressed(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["jobs_per_s"] >= 6]


def _cpu_verdicts(tier: pd.DataFrame) -> list[Sequence[str]]:
    worst, ttft = _worst(tier)
    known = cases.gain(tier, "cpu_tier_30k", "measured")
    more, none = cases.gain(tier, "cpu_tier_30k", "predicted"), cases.gain(tier, "cpu_tier_8k", "predicted")
    return [
        ("KV in host memory, mean request time and throughput", f"{BOUND:.0%}", f"at most {worst:.0%}",
         _verdict(worst <= BOUND)),
        ("KV in host memory, mean TTFT at 30,000 tokens", f"{BOUND:.0%}", f"at most {ttft:.0%}",
         _verdict(ttft <= BOUND)),
        ("Offload wins at 30,000 shared tokens", f"throughput {known:+.0%} measured, within 10 points", f"{more:+.0%}",
         _verdict(abs(more - known) <= 0.1)),
        ("Offload does not win at 8,000", "-2% measured", f"{none:+.0%}", _verdict(abs(none) < 0.03)),
    ]


def _known_verdict(title: str, table: pd.DataFrame) -> Sequence[str]:
    worst = float(table["error"].abs().max())
    return title, "2%", f"at most {worst:.1%}", _verdict(worst <= 0.02)


def _queue_verdict(table: pd.DataFrame) -> Sequence[str]:
    worst = float((table["predicted"] - table["recursion"]).abs().max())
    return ("M/M/1, M/D/1, M/G/1, M/M/c, same requests", "one step, 1 ms", f"at most {worst * 1e3:.1f} ms",
            _verdict(worst <= 1e-3))


def _link_verdict(table: pd.DataFrame) -> Sequence[str]:
    median = cases.median_error(table)
    return "Host link by size of a piece", "median 5%", f"{median:.1%}", _verdict(median <= 0.05)


def _verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def _agents_text() -> str:
    known = cases.measured("agent_jobs")
    times = known[known["policy"] == "Continuum"].set_index("jobs_per_s")["mean_job_s"]
    on_line = times[6] + (times[15] - times[6]) * (10 - 6) / (15 - 6)
    return text.AGENTS.format(line=cases.line_window_s(times), ten=times[10], on_line=on_line, window=cases.WINDOW_S)


def _agents_after(shown: pd.DataFrame) -> str:
    at = shown[shown["jobs_per_s"] == 10].pivot(index="seed", columns="policy", values="predicted")
    lmcache, half = at["LMCache"], at["FCFS"] / 2
    return text.AGENTS_AFTER.format(low=lmcache.min(), high=lmcache.max(), mean=lmcache.mean(), half=half.mean(),
                                    fails=int((lmcache >= half).sum()))


def _windows(agents: pd.DataFrame) -> str:
    rows = []
    for window, table in agents.groupby("window_s"):
        errors = cases.errors_by_mfu(table)
        best = cases.fitted(table)
        plain = table[(table["mfu"] == 0) & (table["policy"] == "Continuum")].set_index("jobs_per_s")["predicted"]
        cells = [f"**{errors[mfu]:.0%}**" if mfu in (0, best) else f"{errors[mfu]:.0%}" for mfu in sorted(errors)]
        rows.append([f"{window} s", f"{cases.line_window_s(plain):.0f} s", *cells])
    names = [f"roofline, {mfu * 100:.0f} %" for mfu in cases.MFUS]
    return _table(("window", "the line's", "measured tables, nothing fitted", *names), rows)


def _order_text(seeds: pd.DataFrame) -> str:
    right, wrong, pairs = cases.order(headline(seeds))
    high, _, high_pairs = cases.order(_pressed(headline(seeds)))
    return text.ORDER.format(window=cases.WINDOW_S, seeds=len(cases.SEEDS), margin=f"{cases.MARGIN:.0%}", pairs=pairs,
                             right=right, wrong=wrong, neither=pairs - right - wrong, high=high, high_pairs=high_pairs)


def _seed_rows(seeds: pd.DataFrame) -> str:
    rows = []
    for window, table in seeds.groupby("window_s"):
        low, high = cases.error_range(table)
        right, wrong, pairs = cases.order(table)
        cells = [f"{part['predicted'].min():.1f} to {part['predicted'].max():.1f} s"
                 for part in (table[(table["policy"] == name) & (table["jobs_per_s"] == 3)] for name in cases.POLICIES)]
        rows.append([f"{window} s", f"{low:.0%} to {high:.0%}", f"{right} / {wrong} / {pairs - right - wrong}", *cells])
    return _table(("window", "median error", "pairs right / reversed / neither",
                   *[f"{name} at 3 jobs/s" for name in cases.POLICIES]), rows)


def _agent_rows(table: pd.DataFrame) -> str:
    rows = []
    for rate, part in table.groupby("jobs_per_s"):
        at = part.groupby("policy")[["measured", "predicted"]].mean()
        rows.append([str(rate)] + [
            f"{at['measured'][name]:.1f} / {at['predicted'][name]:.1f} s "
            f"({at['predicted'][name] / at['measured'][name] - 1:+.0%})" for name in cases.POLICIES])
    return _table(("jobs/s", *[f"{name}: measured / predicted" for name in cases.POLICIES]), rows)


def _cpu_rows(tier: pd.DataFrame) -> str:
    rows = []
    for (scenario, offload), part in tier.groupby(["scenario", "offload"]):
        at = part.set_index("figure")[["measured", "predicted"]]
        at.loc[_AFTER] = at.loc["request_mean_s"] - at.loc["ttft_mean_s"]
        cells = [f"{_short(known)} / {_short(found)} ({found / known - 1:+.0%})"
                 for known, found in at.loc[[*cases.CPU_FIGURES, _AFTER]].itertuples(index=False)]
        rows.append([f"{str(scenario).rpartition('_')[2]}, {'offload' if offload else 'HBM only'}", *cells])
    heads = [f"{title}, {unit}" for title, unit in cases.CPU_FIGURES.values()]
    return _table(("measured / predicted", *heads, f"{_AFTER}, mean, s"), rows)


def _gains(tier: pd.DataFrame) -> str:
    found_at = []
    for name, tokens in (("cpu_tier_30k", "30,000"), ("cpu_tier_8k", "8,000")):
        known, found = cases.gain(tier, name, "measured"), cases.gain(tier, name, "predicted")
        found_at.append(f"at {tokens} shared tokens {known:+.0%} measured, {found:+.0%} predicted")
    return f"Throughput gained by offload: {'; '.join(found_at)}.\n"


def _setting_rows(found: pd.DataFrame) -> str:
    return _table(("setting", "source", "median error", "at 3 jobs/s"),
                  [(row["what"], row["source"], f"{row['all']:.0%}", f"{row['at_3']:.0%}")
                   for _, row in found.iterrows()])


def _reading_rows(found: Sequence[tuple[str, str, dict[str, float], dict[str, float]]]) -> str:
    heads = [f"{title}, {unit}" for title, unit in map(cases.CPU_FIGURES.__getitem__, _READ)]
    rows = [(what, source, *[f"{_short(without[name])} -> {_short(offload[name])}" for name in _READ],
             f"{offload['tokens_per_s'] / without['tokens_per_s'] - 1:+.0%}")
            for what, source, without, offload in found]
    known = cases.measured("cpu_tier")
    known = known[known["scenario"] == "cpu_tier_30k"].set_index("offload")
    true = [f"{_short(known[name][0])} -> {_short(known[name][1])}" for name in _READ]
    gain = f"{known['tokens_per_s'][1] / known['tokens_per_s'][0] - 1:+.0%}"
    return _table(("HBM only -> offload", "source", *heads, "gain"), [("measured", "the guide", *true, gain), *rows])


def _known_rows(table: pd.DataFrame) -> str:
    rows = [(row["what"], f"{row['known']:.5g} {row['unit']}".strip(), f"{row['predicted']:.5g} {row['unit']}".strip(),
             f"{row['error']:+.1%}") for _, row in table.iterrows()]
    return _table(("figure", "known", "simulated", "error"), rows)


def _queue_rows(table: pd.DataFrame) -> str:
    rows = [(row["queue"], f"{row['known']:.3f} s", f"{row['recursion']:.4f} s", f"{row['predicted']:.4f} s",
             f"{row['low']:.3f} to {row['high']:.3f} s") for _, row in table.iterrows()]
    return _table(("mean wait; mean service 1 s", "formula", "same requests", "simulated", "95 % interval"), rows)


def _static_contexts() -> int:
    return int(525.99476736e9 // (32768 * 327680))


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page and, in `figures` beside it, its figures."""
    import os

    target = Path((arguments or sys.argv[1:])[0])
    figures = target.parent / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    target.write_text(page(figures, os.cpu_count() or 1), encoding="utf-8")


if __name__ == "__main__":
    main()
