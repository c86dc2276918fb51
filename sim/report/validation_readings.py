"""What the sources of the validation cases leave open or say twice, each other reading run for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.report import validation_cases as cases
from sim.report.validation_cases import OFFLOAD

if TYPE_CHECKING:
    import pandas as pd

#: The guide's own "approximately 100 GB" an engine, which its count of blocks contradicts for this model.
_AS_STATED = OFFLOAD.replace("172", "100")
#: Two prefix scorers remember as many blocks as the pool and as host memory have.
_TWO = "remembers: 148336, host_remembers: 656000, prefix: 1, host_prefix: 1"
#: What plain vLLM's scheduler takes a step, and with LMCache, by arXiv:2511.02230.
_PLAIN, _LMCACHE = "engine.step_overhead=0.95 ms", "engine.step_overhead=2.33 ms"


def _router(weights: str) -> tuple[str, ...]:
    return (f"routing={{policy: weighted, {weights}}}",)


#: Readings of the CPU-tier benchmark that were tried: (what, where it is from, changes to baseline, to offload).
CPU_TIER = (
    ("as shipped: waiting 1, KV use 1, prefix 1; 41,000 blocks an engine; 6 minutes",
     "the guide at that commit, its chart and its `num_cpu_blocks`", (), OFFLOAD),
    ("router 2 : 2 : 1 + 1, a second scorer for prefixes in host memory",
     "the guide's own values.yaml, commit 40294b4; 46,751 tokens/s were then measured with offload",
     _router(f"waiting: 2, kv_use: 2, {_TWO}"), OFFLOAD),
    ("the same, active requests in place of waiting ones", "values.yaml at commit 1acffdd",
     _router(f"waiting: 0, turns: 2, kv_use: 2, {_TWO}"), OFFLOAD),
    ("router 2 : 2 : 3", "the chart since November 2025", _router("waiting: 2, kv_use: 2, prefix: 3"), OFFLOAD),
    ("a router that knows what HBM holds", "llm-d's precise prefix scorer",
     _router("waiting: 1, kv_use: 1, prefix: 1, knows: held"), OFFLOAD),
    ("host memory 100 GB an engine", "the guide's text", (), _AS_STATED),
    ("0.95 ms more a step", "what vLLM's scheduler takes by arXiv:2511.02230, if the tables hold none of it",
     (_PLAIN,), OFFLOAD),
    ("3 minutes: more of the run is cold", "length not published", ("duration=3 min",), OFFLOAD),
    ("12 minutes: less of it is", "length not published", ("duration=12 min",), OFFLOAD),
)
#: Settings of the agent jobs' engine that were tried: (what, where it is from, the change by policy).
AGENT_JOBS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("as shipped: 8,192 tokens and 1,024 turns a step, LMCache 1.38 ms more a step",
     "vLLM's server on a GPU of 70 GiB or more; arXiv:2511.02230", {}),
    ("256 turns a step", "vLLM's default on smaller GPUs",
     dict.fromkeys(cases.POLICIES, "engine.schedule.max_seqs=256")),
    ("2,048 tokens a step", "vLLM's default on smaller GPUs",
     dict.fromkeys(cases.POLICIES, "engine.schedule.token_budget=2048")),
    ("LMCache's steps no longer than plain vLLM's", "none: what the 1.38 ms are worth",
     {"LMCache": "engine.step_overhead=0 s"}),
    ("0.95 ms a step, 2.33 with LMCache", "arXiv:2511.02230, if the tables hold no scheduling",
     {"FCFS": _PLAIN, "LMCache": _LMCACHE, "Continuum": _PLAIN}),
)


def cpu_tier(jobs: int = 1) -> list[tuple[str, str, dict[str, float], dict[str, float]]]:
    """Return each reading of the 30,000-token case with its source and its figures without and with offload."""
    points = [("cpu_tier_30k", *changes, *below) for _, _, changes, offload in CPU_TIER for below in ((), (offload,))]
    found = cases.side_by_side(points, cases.cpu_run, jobs)
    return [(what, source, found[2 * at], found[2 * at + 1]) for at, (what, source, *_) in enumerate(CPU_TIER)]


def agent_jobs(jobs: int = 1) -> pd.DataFrame:
    """Return the median error of the agent jobs and the one at 3 jobs/s by setting: ``what, source, all, at_3``."""
    import pandas as pd

    known = cases.measured("agent_jobs")
    points = [(policy, int(rate), cases.WINDOW_S, None, cases.SEEDS[0], *filter(None, [changes.get(policy)]))
              for *_, changes in AGENT_JOBS
              for policy, rate in zip(known["policy"], known["jobs_per_s"], strict=True)]
    found = cases.side_by_side(points, cases.job_time, jobs)
    rows = []
    for at, (what, source, _) in enumerate(AGENT_JOBS):
        errors = (pd.Series(found[at * len(known):][:len(known)]) / known["mean_job_s"] - 1).abs()
        rows.append({"what": what, "source": source, "all": errors.median(),
                     "at_3": errors[known["jobs_per_s"] == 3].median()})
    return pd.DataFrame(rows)
