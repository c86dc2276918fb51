"""Draw the pictures of the README and of docs/allocators.md from runs: ``python docs/make_figures.py``.

`pool_use.png`: what the KV pool holds over four hours of 32 agents under keep, drop and offload.
`agents.png`: how resumed turns and finished trajectories follow the number of agents, under four retention policies.
`address_space.png`: the pool of scenarios/allocators.yaml at a moment, under each allocator.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
SCENARIO = HERE.parent / "scenarios" / "quickstart.yaml"
POLICIES = ("keep", "release", "drop", "offload")
PANELS = {"keep": "keep: paused contexts stay pinned in HBM", "drop": "drop: paused contexts are computed again",
          "offload": "offload: paused contexts move to host DRAM (1 TiB)"}
ALLOCATORS = ("paged", "static", "growth", "buddy")
AGENTS = (8, 16, 24, 32, 48, 64, 96)
#: Long enough for the first agents' contexts to reach their usual size, and for some to end.
DURATION = "4 h"


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=HERE / "figures", help="folder for the pictures")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    pool_use(given.output / "pool_use.png")
    agents(given.output / "agents.png", given.jobs)
    address_space(given.output / "address_space.png")


def address_space(path: Path, at_s: float = 3600.0) -> None:
    """Draw what every part of the pool is used for an hour into the run, a row an allocator."""
    import pandas as pd

    import sim
    from sim.report.plots import address_space as draw
    from sim.report.plots import figure, style

    scenario = SCENARIO.with_name("allocators.yaml")
    results = [sim.run(scenario, overrides=[f"engine.allocator={name}", "duration=61min"]) for name in ALLOCATORS]
    made, ax = figure(8.2, 3.4)
    with style.context():
        draw(pd.concat([result.pool_at(at_s) for result in results]), ax, request=65_536,
             block_tokens={"paged": results[0].scenario.engine.block_size})
    _save(made, path)


def pool_use(path: Path) -> None:
    """Draw the KV pool by use over time, a panel a policy."""
    import sim
    from sim.report.plots import figure, style
    from sim.report.plots import pool_use as draw

    made, axes = figure(8.2, 6.4, nrows=3, sharex=True, sharey=True)
    with style.context():
        for ax, (policy, title) in zip(axes, PANELS.items(), strict=True):
            result = sim.run(SCENARIO, overrides=[*_setting(32), f"retention.policy={policy}"])
            draw(result.timeline, ax)
            ax.set_title(title, loc="left")
            ax.grid(visible=False)
            if ax is not axes[-1]:
                ax.set_xlabel("")
            if policy == "offload":
                _mark_full(ax, result)
        _one_legend(made, axes)
    _save(made, path)


def _setting(count: int) -> list[str]:
    return [f"duration={DURATION}", f"workload.arrivals.closed.concurrency={count}"]


def _mark_full(ax: Axes, result: Any) -> None:
    """Mark when host DRAM is full."""
    timeline = result.timeline
    full = timeline[timeline["dram_bytes"] > 0.98 * result.scenario.tiers.dram.capacity]
    if len(full):
        hour = full["time_s"].iloc[0] / 3600
        ax.axvline(hour, color="black", linewidth=1.4, linestyle=":")
        ax.annotate("host DRAM is full from here on", (hour, ax.get_ylim()[1]), xytext=(5, -13),
                    textcoords="offset points", fontsize=9)


def _one_legend(made: Figure, axes: Sequence[Axes]) -> None:
    """Put one legend beside the panels, in the order of the stack, with every kind that any of them shows."""
    found: dict[str, Any] = {}
    for ax in axes:
        found |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
        ax.get_legend().remove()
    order = sorted(found, key=lambda name: ("free" in name, "dormant" in name, "kept" in name, "flight" in name))
    made.legend([found[name] for name in reversed(order)], list(reversed(order)), loc="outside right upper")


def agents(path: Path, jobs: int) -> None:
    """Draw resumed TTFT and finished trajectories against the number of agents."""
    points = _points(jobs)
    print(points.pivot(index="agents", columns="policy", values="ttft_resumed_p95_s").to_string(float_format="%.2f"))
    draw_agents(points, path)


def _points(jobs: int) -> pd.DataFrame:
    import pandas as pd
    from joblib import Parallel, delayed

    grid = [(policy, count) for policy in POLICIES for count in reversed(AGENTS)]
    rows = Parallel(n_jobs=jobs)(delayed(_point)(policy, count) for policy, count in grid)
    return pd.DataFrame(rows).sort_values(["policy", "agents"])


def _point(policy: str, count: int) -> dict[str, Any]:
    import sim

    found = sim.run(SCENARIO, replications=3, overrides=[*_setting(count), f"retention.policy={policy}"]).summary
    return {"policy": policy, "agents": count, "ttft_resumed_p95_s": found["ttft_s"]["resumed"]["p95"],
            "trajectories_per_h": 3600 * found["throughput"]["trajectories_per_s"],
            "turns_per_s": found["throughput"]["turns_per_s"], "binds": found["binds"]["resource"]}


def draw_agents(points: pd.DataFrame, path: Path) -> None:
    """Draw the two panels of `agents.png`."""
    from sim.report.plots import figure, style

    made, (left, right) = figure(8.6, 3.5, ncols=2)
    with style.context():
        _draw_agents(points, left, right)
        made.legend(*left.get_legend_handles_labels(), loc="outside right upper", title="retention", alignment="left")
    _save(made, path)


def _draw_agents(points: pd.DataFrame, left: Axes, right: Axes) -> None:
    from sim.report.plots import style

    for index, policy in enumerate(POLICIES):
        rows = points[points["policy"] == policy]
        look = {"color": style.SERIES[index], "marker": style.MARKERS[index], "linestyle": style.DASHES[index],
                "markersize": 4.5, "label": policy}
        left.plot(rows["agents"], rows["ttft_resumed_p95_s"], **look)
        right.plot(rows["agents"], rows["turns_per_s"], **look)
    left.set_yscale("log")
    left.set_ylim(bottom=0.7)
    left.set_yticks([1, 2, 5, 10, 30, 60, 300, 600], ["1 s", "2 s", "5 s", "10 s", "30 s", "1 min", "5 min", "10 min"])
    left.minorticks_off()
    style.label(left, "Wait after a tool's return", "agents alive", "TTFT of resumed turns, p95 (log scale)")
    style.label(right, "Work done", "agents alive", "turns finished per second")
    right.set_ylim(bottom=0)
    for ax in (left, right):
        ax.set_xlim(left=0)
        ax.set_xticks(AGENTS)


def _save(made: Figure, path: Path) -> None:
    from sim.report.plots import style

    with style.context():
        made.savefig(path, dpi=130, metadata={"Software": None})
    print(f"{path} ({path.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
