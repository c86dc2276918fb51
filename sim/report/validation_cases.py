"""Runs the validation scenarios: published measurements and known results beside what the simulator gives.

Scenarios lie in `scenarios/validation`, measured figures with their sources in `tests/validation`, both in a checkout.
Every function returns a table with the columns `measured` (or `known`), `predicted` and `error` (relative).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "scenarios" / "validation"
MEASURED = ROOT / "tests" / "validation"

#: Policies of the agent jobs, in the order of the tables, and their scenarios.
POLICIES = {"FCFS": "agent_jobs_fcfs", "LMCache": "agent_jobs_lmcache", "Continuum": "agent_jobs_continuum"}
RATES = (1, 3, 6, 10, 15)
#: Length of the window in which jobs arrive, as it had been inferred, and as the host memory says (docs/validation.md).
INFERRED_S, WINDOW_S = 90, 45
WINDOWS = (30, WINDOW_S, 60, INFERRED_S)
#: Achieved shares of the peak arithmetic that are tried for the one fitted parameter.
MFUS = (0.5, 0.6, 0.7, 0.8, 0.9)

#: Seeds of the arrivals that say how far a run's figures are chance.
SEEDS = (1, 2, 3, 4, 5)
#: Measured times closer than this have no order; nor have predicted ones.
MARGIN = 0.05

#: 41,000 blocks an engine, written as soon as computed: 41,000 x 16 tokens x 262,144 B.
OFFLOAD = "tiers.dram={capacity: 172 GB, write: on_compute, prompt_only: true}"


def measured(name: str) -> pd.DataFrame:
    """Return a file of measured figures; its source is in its first lines."""
    import pandas as pd

    return pd.read_csv(MEASURED / f"{name}.csv", comment="#")


def run(name: str, *overrides: str) -> Any:
    """Run a scenario of the folder, changed by `overrides`."""
    import sim

    return sim.run(SCENARIOS / f"{name}.yaml", overrides=overrides)


def side_by_side(points: Iterable[tuple[Any, ...]], work: Any, jobs: int) -> list[Any]:
    """Call `work` on the points, `jobs` at a time; results in their order."""
    from joblib import Parallel, delayed

    return list(Parallel(n_jobs=jobs)(delayed(work)(*point) for point in points))


# ------------------------------------------------------------------------------------------------------- agent jobs


def job_time(policy: str, rate: int, window_s: int, mfu: float | None, seed: int = SEEDS[0],
             *changes: str) -> float:
    """Return the mean seconds of a job; with an `mfu` step times are a roofline's, else the measured profile's."""
    timing = [] if mfu is None else [f"timing={{roofline: {{mfu: {mfu}}}}}"]
    found = run(POLICIES[policy], f"seed={seed}", f"workload.agents.repeat={rate * window_s}",
                f"workload.arrivals.poisson.rate={rate}/s", *timing, *changes).summary
    return float(found["trajectory_s"]["mean"])


def agent_jobs(windows: Sequence[int] = WINDOWS, mfus: Sequence[float | None] = (None, *MFUS),
               rates: Sequence[int] = RATES, jobs: int = 1, seeds: Sequence[int] = SEEDS[:1]) -> pd.DataFrame:
    """Return mean job times, measured and predicted, for every window, source of step times and seed.

    Columns ``seed, window_s, mfu, policy, jobs_per_s, measured, predicted, error``; `mfu` is 0 for the
    measured profile.
    """
    import pandas as pd

    known = measured("agent_jobs").set_index(["policy", "jobs_per_s"])["mean_job_s"]
    points = [(policy, rate, window, mfu, seed) for seed in seeds
              for window in windows for mfu in mfus for policy in POLICIES for rate in rates]
    rows = [{"seed": seed, "window_s": window, "mfu": mfu or 0.0, "policy": policy, "jobs_per_s": rate,
             "measured": known[policy, rate], "predicted": value}
            for (policy, rate, window, mfu, seed), value
            in zip(points, side_by_side(points, job_time, jobs), strict=True)]
    table = pd.DataFrame(rows)
    return table.assign(error=table["predicted"] / table["measured"] - 1)


def median_error(table: pd.DataFrame) -> float:
    """Return the median size of the errors."""
    return float(table["error"].abs().median())


def fitted(table: pd.DataFrame) -> float:
    """Return the `mfu` with which the median error is smallest, the same for every row."""
    errors = errors_by_mfu(table[table["mfu"] > 0])
    return min(errors, key=lambda mfu: errors[mfu])


def errors_by_mfu(table: pd.DataFrame) -> dict[float, float]:
    """Return the median error by `mfu` (0: measured step times)."""
    return {float(mfu): median_error(table[table["mfu"] == mfu]) for mfu in sorted(set(table["mfu"]))}


def line_window_s(times: pd.Series) -> float:
    """Return how long jobs arrive if the times of a policy, by jobs/s, are those of an engine of constant throughput.

    Jobs that arrive at `rate` for W seconds and are served at `most` jobs/s in the order of their arrival take
    ``T + W/2 (rate/most - 1)`` on average, T without a queue: a line in the rate that crosses T at `most`, with a slope
    of ``W / (2 most)``. The line goes through the highest rate and 6 jobs/s, T is the time at 1 job/s.
    """
    low, high = 6, max(RATES)
    slope = (times[high] - times[low]) / (high - low)
    return float(2.0 * slope * (low - (times[low] - times[1]) / slope))


def error_range(table: pd.DataFrame) -> tuple[float, float]:
    """Return the least and the greatest median error over the seeds."""
    errors = [median_error(rows) for _, rows in table.groupby("seed")]
    return min(errors), max(errors)


def order(table: pd.DataFrame, margin: float = MARGIN) -> tuple[int, int, int]:
    """Return how many pairs of policies at the same rate come in the measured order, reversed, and how many there are.

    Pairs whose measured times are closer than `margin` have no order. A pair is right, or reversed, if its predicted
    times differ by `margin` on average over the seeds and by the same sign with every seed; else it is neither.
    """
    right = reversed_ = pairs = 0
    for _, rows in table.groupby("jobs_per_s"):
        known = rows.groupby("policy")["measured"].first()
        found = rows.pivot(index="seed", columns="policy", values="predicted")
        for one, other in combinations(known.index, 2):
            true = math.log(known[one] / known[other])
            if abs(true) <= math.log1p(margin):
                continue
            pairs += 1
            with_sign = [math.copysign(1, true) * math.log(a / b)
                         for a, b in zip(found[one], found[other], strict=True)]
            differs = abs(sum(with_sign) / len(with_sign)) > math.log1p(margin)
            right += differs and min(with_sign) > 0
            reversed_ += differs and max(with_sign) < 0
    return right, reversed_, pairs


# --------------------------------------------------------------------------------------------------------- CPU tier

#: Measured quantity -> where a summary has it, and what it is called.
CPU_FIGURES = {
    "request_mean_s": ("request, mean", "s"), "request_p90_s": ("request, p90", "s"),
    "tokens_per_s": ("throughput", "tokens/s"), "ttft_mean_s": ("TTFT, mean", "s"), "ttft_p90_s": ("TTFT, p90", "s"),
}


def cpu_run(name: str, *overrides: str) -> dict[str, float]:
    """Return the figures of one run, by their measured names, and the share of prompt tokens found in each tier."""
    found = run(name, *overrides).summary
    rate = found["throughput"]
    return {"request_mean_s": found["turn_s"]["mean"], "request_p90_s": found["turn_s"]["p90"],
            "tokens_per_s": rate["prompt_tokens_per_s"] + rate["output_tokens_per_s"],
            "ttft_mean_s": found["ttft_s"]["all"]["mean"], "ttft_p90_s": found["ttft_s"]["all"]["p90"],
            "hit_hbm": found["hit_rate"]["hbm"], "hit_dram": found["hit_rate"]["dram"] or 0.0}


def cpu_tier(jobs: int = 1) -> pd.DataFrame:
    """Return ``scenario, offload, figure, measured, predicted, error, hit_hbm, hit_dram``."""
    import pandas as pd

    known = measured("cpu_tier")
    points = [(str(row["scenario"]), *([OFFLOAD] if row["offload"] else [])) for _, row in known.iterrows()]
    rows = []
    for (_, row), found in zip(known.iterrows(), side_by_side(points, cpu_run, jobs), strict=True):
        rows += [{"scenario": row["scenario"], "offload": row["offload"], "figure": figure, "measured": row[figure],
                  "predicted": found[figure], "error": found[figure] / row[figure] - 1, "hit_hbm": found["hit_hbm"],
                  "hit_dram": found["hit_dram"]} for figure in CPU_FIGURES]
    return pd.DataFrame(rows)


def gain(table: pd.DataFrame, scenario: str, column: str) -> float:
    """Return by how much offload raises the throughput, as a share."""
    rows = table[(table["scenario"] == scenario) & (table["figure"] == "tokens_per_s")].set_index("offload")[column]
    return float(rows[1] / rows[0] - 1)


# ------------------------------------------------------------------------------------------------ known results


def queues(jobs: int = 1) -> pd.DataFrame:
    """Return mean waits in queues, in seconds: ``queue, known, recursion, predicted, low, high, error``.

    `known` is the formula's, `recursion` what the very requests of the run wait by the recursion of Lindley, or of
    Kiefer and Wolfowitz: the first differs from a run by chance, the second may not.
    """
    import pandas as pd

    mixed = "workload.agents.output={mixture: [{weight: 0.9, of: 500}, {weight: 0.1, of: 5500}]}"
    cases = [
        ("M/M/1, load 0.5", "queue_mg1", 1, ["workload.agents.output={exponential: {mean: 1000}}"], single(0.5, 2.0)),
        ("M/D/1, load 0.5", "queue_mg1", 1, [], single(0.5, 1.0)),
        ("M/G/1, load 0.5, one in ten is long", "queue_mg1", 1, [mixed], single(0.5, 0.9 * 0.5**2 + 0.1 * 5.5**2)),
        ("M/M/3, load 0.7", "queue_mmc", 3, [], erlang(3, 2.1)),
        ("M/M/8, load 0.7", "queue_mmc", 8, ["engine.schedule.max_seqs=8", "workload.arrivals.poisson.rate=5.6/s"],
         erlang(8, 5.6)),
    ]
    waits = side_by_side([case[1:4] for case in cases], _waits, jobs)
    rows = [{"queue": title, "known": known, **found}
            for (title, *_, known), found in zip(cases, waits, strict=True)]
    table = pd.DataFrame(rows)
    return table.assign(error=table["predicted"] / table["known"] - 1)


def single(load: float, second_moment: float) -> float:
    """Return the mean wait in M/G/1 with a mean service time of 1 s (Pollaczek-Khinchine)."""
    return load * second_moment / (2.0 * (1.0 - load))


def erlang(servers: int, offered: float) -> float:
    """Return the mean wait in M/M/c with a mean service time of 1 s and `offered` erlangs (Erlang's C formula)."""
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    waits = last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)
    return waits / (servers - offered)


def _waits(name: str, servers: int, overrides: Sequence[str]) -> dict[str, float]:
    """Return the mean wait of a run's requests, its interval, and what it is by recursion for the same requests."""
    step_s = 1e-3
    result = run(name, *overrides)
    turns = result.turns.dropna(subset=["first_token_s"]).sort_values(["replication", "ready_s"])
    same_s = 0.0
    for _, rows in turns.groupby("replication"):
        free_s = [0.0] * servers
        for ready_s, tokens in zip(rows["ready_s"], rows["output_tokens"], strict=True):
            start_s = max(ready_s, heappop(free_s))
            same_s += start_s - ready_s
            heappush(free_s, start_s + tokens * step_s)
    within = result.summary["intervals"]["ttft_s.all.mean"]
    return {"recursion": same_s / len(turns),
            "predicted": float((turns["first_token_s"] - turns["ready_s"]).mean()) - step_s,
            "low": within["low"] - step_s, "high": within["high"] - step_s}


def chunked() -> pd.DataFrame:
    """Return what a prompt of 4,096 tokens does to 32 streams, in chunks and whole: ``what, unit, known, ...``."""
    chunks, whole = (run("chunked_prefill", *change) for change in ([], ["engine.schedule={policy: monolithic}"]))
    base = chunks.summary["itl_s"]["p50"]
    slow = [(seconds / weight, weight) for seconds, weight in
            zip(chunks.steps["itl"]["seconds"], chunks.steps["itl"]["weight"], strict=True)][-1]
    gap = whole.steps["itl"]
    worst = gap["seconds"][-1] / gap["weight"][-1]
    return _known([("decode step", "s", 70e9 * 2 / 3e12, base),
                   ("longest gap, chunks of 512", "s", 0.158667, slow[0]),
                   ("gaps of that length a stream", "", 8.0, slow[1] / 32),
                   ("longest gap, prompt computed whole, less a decode step", "s", 1.194667, worst - base)])


def paging() -> pd.DataFrame:
    """Return contexts admitted in pages, and the share of unfilled pages: ``what, unit, known, predicted``."""
    admitted = run("paging_contexts").turns
    counts = (admitted["start_s"] == 0).groupby(admitted["replication"]).sum()
    rows = [("contexts of 2,048 tokens in 526 GB, pages of 16", "", 780.0, float(counts.mean()))]
    for block, share in ((16, 0.00365), (64, 0.01515)):
        used = run("paging_tail", f"engine.block_size={block}").summary["ledger"]["pool_byte_s"]
        held = used["tail_waste"] + used["decoding"] + used["prefilling"]
        rows.append((f"held memory in unfilled pages of {block}", "", share, used["tail_waste"] / held))
    return _known(rows)


def host_link() -> pd.DataFrame:
    """Return bandwidths by size of a piece, as the catalogue's link gives them to a run."""
    import json

    import pandas as pd

    from hardware_profiles.catalogue import link
    from sim.timing.measured_profile import folder

    curves = json.loads((Path(folder()) / "host_links.json").read_text(encoding="utf-8"))["curves"]
    rows = [{"method": curve["method"], "piece_bytes": size, "measured": rate,
             "predicted": link(curve["link"]).achieved(size, curve["method"]).out_Bps}
            for curve in curves for size, rate in zip(curve["piece_bytes"], curve["Bps"], strict=True)]
    table = pd.DataFrame(rows)
    return table.assign(error=table["predicted"] / table["measured"] - 1)


def _known(rows: Sequence[tuple[str, str, float, float]]) -> pd.DataFrame:
    import pandas as pd

    table = pd.DataFrame(rows, columns=["what", "unit", "known", "predicted"])
    return table.assign(error=table["predicted"] / table["known"] - 1)
