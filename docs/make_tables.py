"""Run what the README's tables show and write them into it: ``python docs/make_tables.py --traces FOLDER``.

A table stands between two comments, ``<!-- table NAME -->`` and ``<!-- end -->``; nothing else is touched. Without
``--traces`` (kv-cache-tester traces) the tables of the replay stay as they are.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sim.records import GPU_USES, POOL_USES

if TYPE_CHECKING:
    from sim.sweep.result import Result

ROOT = Path(__file__).resolve().parent.parent
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"
REPLAY = ROOT / "scenarios" / "replay_coding_agents.yaml"
#: The part of the replay in which sessions begin and compete for memory; later a few are left, which wait for people.
CONTENDED_S = 4 * 3600.0
#: What a part of the pool is called in the table of the replay, and the columns of `timeline.parquet` behind it.
POOL = {"running": ("decoding", "prefilling", "tail_waste", "reserved", "in_flight"), "paused": ("kept",),
        "dormant": ("dormant_reused", "dormant_wasted"), "free": ("free",)}

Columns = Mapping[str, Callable[["Result"], str]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="folder of kv-cache-tester traces")
    parser.add_argument("--study", action="store_true", help="only the table and the figure of docs/retention.md")
    given = parser.parse_args(arguments)
    if given.study:
        _write("study", _study(), ROOT / "docs" / "retention.md")
        return
    _write("quickstart", _table(QUICKSTART, ("keep", "drop", "offload"), [], quickstart_columns()))
    _write("later", _table(QUICKSTART, ("keep", "drop", "offload"), ["duration=4 h"], quickstart_columns()))
    if given.traces:
        trace = f"workload.agents.trace={given.traces.resolve()}"
        policies = ("keep", "release", "drop", "offload", "break_even")
        _write("replay", _table(REPLAY, policies, [trace], replay_columns()))
        gate = [trace, "engine.max_trajectories=12"]
        _write("gated", _table(REPLAY, ("keep", "release", "offload"), gate, gated_columns()))


def _table(scenario: Path, policies: Sequence[str], sets: Sequence[str], columns: Columns) -> str:
    """Return a Markdown table with a row for each retention policy."""
    import sim

    lines = ["| retention | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for policy in policies:
        result = sim.run(scenario, overrides=[*sets, f"retention.policy={policy}"])
        lines.append(f"| `{policy}` | " + " | ".join(cell(result) for cell in columns.values()) + " |")
    return "\n".join(lines)


def _study() -> str:
    """Run the retention study, keep its figure, and return its table."""
    import shutil
    import tempfile

    from sim.report import held, runs

    with tempfile.TemporaryDirectory() as folder:
        made = runs.start(ROOT / "scenarios" / "retention_study.yaml", Path(folder), [], None, force=True)
        if runs.draw(made) and made.figure is not None:
            shutil.copy(made.figure, ROOT / "docs" / "figures" / "retention.png")
    lines = ["| retention | " + " | ".join(held.HEADERS) + " |", "|---" * (len(held.HEADERS) + 1) + "|"]
    return "\n".join([*lines, *(f"| `{name}` | " + " | ".join(cells) + " |" for name, *cells in runs.rows(made))])


def _write(name: str, table: str, page: Path = ROOT / "README.md") -> None:
    text = page.read_text(encoding="utf-8")
    block = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not block.search(text):
        raise SystemExit(f"{page.name} has no place for table {name}")
    page.write_text(block.sub(lambda found: f"{found[1]}{table}\n{found[2]}", text), encoding="utf-8")
    print(f"{name}\n{table}\n")


def quickstart_columns() -> Columns:
    """Return the columns for a steady stream of agents."""
    from sim.metrics import wording

    return {
        "TTFT of resumed turns, p50 / p95": lambda r: _two(r.summary["ttft_s"]["resumed"], "p50", "p95"),
        "turns/s": lambda r: wording.number(r.summary["throughput"]["turns_per_s"]),
        "prompt tokens found": _found,
        "GPU time recomputing": lambda r: wording.percent(_share(r.summary["ledger"]["gpu_s"], "recompute")),
        "USD a million output tokens": lambda r: wording.number(r.summary["cost"]["usd_per_Mtok_output"]),
        "binds": _binds,
    }


def replay_columns() -> Columns:
    """Return the columns for a trace that is played to its end."""

    return {
        "prompt tokens found": _found,
        "TTFT of resumed turns, p50 / p95": lambda r: _two(r.summary["ttft_s"]["resumed"], "p50", "p95"),
        "session, p50 / p90": lambda r: _two(r.summary["trajectory_s"], "p50", "p90"),
        "half of the sessions done after": _done,
        "GPU, first 4 h: idle / recomputing": _gpu,
        "pool, first 4 h: running / paused / dormant / free": _pool,
        "binds": _binds,
    }


def gated_columns() -> Columns:
    """Return the columns for a replay in which sessions wait to be admitted."""

    return {
        "prompt tokens found": _found,
        "TTFT of resumed turns, p50 / p95": lambda r: _two(r.summary["ttft_s"]["resumed"], "p50", "p95"),
        "half of the sessions done after": _done,
        "GPU, first 4 h: idle / recomputing": _gpu,
        "binds": _binds,
    }


def _two(times: Mapping[str, float | None], first: str, second: str) -> str:
    from sim.metrics import wording

    return f"{wording.seconds(times[first])} / {wording.seconds(times[second])}"


def _done(result: Result) -> str:
    from sim.metrics import wording

    return wording.seconds(result.trajectories["end_s"].quantile(0.5))


def _found(result: Result) -> str:
    from sim.metrics import wording

    hits = result.summary["hit_rate"]
    return f"{wording.percent(hits['total'])} of {wording.percent(hits['ceiling'])}"


def _binds(result: Result) -> str:
    from sim.metrics import wording

    return wording.RESOURCES[result.summary["binds"]["resource"]]


def _share(ledger: Mapping[str, float], name: str) -> float:
    return ledger[name] / sum(ledger.values())


def _early(result: Result) -> dict[str, float]:
    """Return the cumulative columns of the timeline at the end of the contended part (interpolated)."""
    timeline = result.timeline
    names = [*(f"{use}_byte_s" for use in POOL_USES), *(f"gpu_{use}_cum_s" for use in GPU_USES)]
    return {name: float(np.interp(CONTENDED_S, timeline["time_s"], timeline[name])) for name in names}


def _gpu(result: Result) -> str:
    gpu = {name[4:-6]: value for name, value in _early(result).items() if name.startswith("gpu_")}
    return f"{_share(gpu, 'idle'):.0%} / {_share(gpu, 'recompute'):.0%}"


def _pool(result: Result) -> str:
    early = _early(result)
    uses = {use: early[f"{use}_byte_s"] for use in POOL_USES}
    whole = sum(uses.values())
    return " / ".join(f"{abs(sum(uses[use] for use in parts)) / whole:.0%}" for parts in POOL.values())


if __name__ == "__main__":
    main()
