"""What the sources of the validation cases leave open or say twice, each other reading run for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.report import validation_cases as cases
from sim.report.validation_cases import OFFLOAD

if TYPE_CHECKING:
    import pandas as pd

#: The guide's own "approximately 100 GB" an engine, which its count of blocks contradicts for this model.
_AS_STATED = OFFLOAD.replace("344", "200")
#: Readings of the CPU-tier benchmark that were tried: (what, where it is from, changes to baseline, to offload).
CPU_TIER = (
    ("as shipped: 41,000 blocks an engine, prefix 1/3 of the router's score, 6 minutes",
     "the guide's `num_cpu_blocks` and weights", (), (OFFLOAD,)),
    ("host memory 100 GB an engine", "the guide's text", (), (_AS_STATED,)),
    ("prefix 1/2 of the score", "weights 2 : 1 + 1; KV use takes no side when every engine is full",
     ("routing.mu=0.5",), ("routing.mu=0.5", OFFLOAD)),
    ("3 minutes: more of the run is cold", "length not published", ("duration=3 min",), ("duration=3 min", OFFLOAD)),
    ("12 minutes: less of it is", "length not published", ("duration=12 min",), ("duration=12 min", OFFLOAD)),
)
#: Settings of the agent jobs' engine that were tried: (what, where it is from, the change).
AGENT_JOBS = (
    ("as shipped: 8,192 tokens and 1,024 turns a step", "vLLM's server on a GPU of 70 GiB or more", ""),
    ("256 turns a step", "vLLM's default on smaller GPUs", "engine.schedule.max_seqs=256"),
    ("2,048 tokens a step", "vLLM's default on smaller GPUs", "engine.schedule.token_budget=2048"),
)


def cpu_tier(jobs: int = 1) -> list[tuple[str, str, dict[str, float], dict[str, float]]]:
    """Return each reading of the 30,000-token case with its source and its figures without and with offload."""
    points = [("cpu_tier_30k", *changes) for _, _, *both in CPU_TIER for changes in both]
    found = cases.side_by_side(points, cases.cpu_run, jobs)
    return [(what, source, found[2 * at], found[2 * at + 1]) for at, (what, source, *_) in enumerate(CPU_TIER)]


def agent_jobs(jobs: int = 1) -> pd.DataFrame:
    """Return the median error of the agent jobs and the one at 3 jobs/s by setting: ``what, source, all, at_3``."""
    import pandas as pd

    known = cases.measured("agent_jobs")
    points = [(policy, int(rate), cases.WINDOW_S, None, cases.SEEDS[0], change) for *_, change in AGENT_JOBS
              for policy, rate in zip(known["policy"], known["jobs_per_s"], strict=True)]
    found = cases.side_by_side(points, cases.job_time, jobs)
    rows = []
    for at, (what, source, _) in enumerate(AGENT_JOBS):
        errors = (pd.Series(found[at * len(known):][:len(known)]) / known["mean_job_s"] - 1).abs()
        rows.append({"what": what, "source": source, "all": errors.median(),
                     "at_3": errors[known["jobs_per_s"] == 3].median()})
    return pd.DataFrame(rows)
