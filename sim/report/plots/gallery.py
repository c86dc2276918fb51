"""Every figure in its place: ``python -m sim.report.plots.gallery FOLDER`` writes two PNG sheets.

`gallery_run.png` shows figures of runs of one small scenario and of a sweep of it; `gallery_closed_forms.png` shows
those that need no simulation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.report import plots
from sim.report.plots import style

if TYPE_CHECKING:
    import pandas as pd

#: What the figures of runs are drawn from: a few minutes of agents that fill a small pool.
SCENARIO: dict[str, Any] = {
    "name": "gallery", "seed": 7, "duration": 1_800, "model": "llama-3.1-70b", "hardware": "dgx-h100",
    "parallelism": {"tp": 8}, "tiers": {"dram": {"capacity": "1 TiB"}}, "retention": "offload",
    "workload": {"agents": "coding-agent", "arrivals": {"closed": {"concurrency": 32}}},
    "slo": {"ttft_resumed": {"p95": "2 s"}, "itl": {"p99": "100 ms"}},
}
AXES = {"grid": {"workload.arrivals.closed.concurrency": [8, 16, 32, 48],
                 "retention.policy": ["keep", "release", "drop", "offload"]}}

Draw = Callable[[Any], Any]


def cached_prefixes(evict: int = 0) -> pd.DataFrame:
    """Return the spans of a small prefix tree as the simulator keeps it, after `evict` blocks were evicted.

    Two repositories share a system prompt; of five trajectories one is running, one is kept through a pause, and the
    others are dormant.
    """
    from sim.memory.allocators.paged import BlockPool
    from sim.memory.prefix_tree import PrefixTree
    from sim.report.plots.structures import tree_spans
    from workloads.trajectory import Stream

    tree = PrefixTree(BlockPool(800, 16))
    system = Stream(label="system")
    repositories = [Stream(system, 1_600, f"repository {n}") for n in (1, 2)]
    agents = [Stream(repositories[n // 3], 2_400 + 400 * (n // 3), f"agent {n + 1}") for n in range(5)]
    ends = (3_600, 4_400, 3_200, 4_000, 3_500)
    for now, (stream, end) in enumerate(zip(agents, ends, strict=True)):
        path = [system, stream.parent, stream]
        node = None
        for part, until in zip(path, (1_600, stream.attach, end), strict=True):
            assert part is not None
            child = tree.nodes.get(part) or tree.add(part, node)
            tree.lock(child, until // 16, True, float(now))
            fresh = until // 16 - child.end
            if fresh > 0:
                tree.pool.take(fresh)
                tree.extend(child, until // 16, until)
            if part is not stream:
                tree.unlock(child, until // 16, True, float(now))
            node = child
        if now != 1:
            tree.unlock(node, end // 16, True, float(now))
        if now == 3:
            tree.lock(node, end // 16, False, float(now))
    if not evict:
        return tree_spans(tree)
    before = tree_spans(tree).to_dict("records")
    tree.evict(evict, 9.0)
    return tree_spans(tree, before)


def worn_pools() -> pd.DataFrame:
    """Return what a pool of 16k tokens is used for under four allocators, after the same sequences came and went."""
    from sim.memory.allocators.base import Allocator
    from sim.memory.allocators.block_tables import PagedAllocator
    from sim.memory.allocators.buddy import BuddyAllocator
    from sim.memory.allocators.growth import GrowthAllocator
    from sim.memory.allocators.paged import BlockPool
    from sim.memory.allocators.static import StaticAllocator

    pool, block = 16_384, 16
    allocators: dict[str, Allocator] = {
        "static": StaticAllocator(pool, 2_048), "growth": GrowthAllocator(pool), "buddy": BuddyAllocator(pool, block),
        "paged": PagedAllocator(BlockPool(pool // block, block))}
    for allocator in allocators.values():
        for number, tokens in enumerate((900, 2_000, 600, 1_500, 700, 1_900, 1_100, 500)):
            if allocator.can_extend(number, tokens):
                allocator.extend(number, tokens)
        for number in (1, 3, 5):
            allocator.free(number)
    frame: pd.DataFrame = plots.segments(allocators)
    return frame


def of_runs() -> list[Draw]:
    """Simulate, and return what draws each figure."""
    import sim

    kept = sim.run(SCENARIO, overrides=["retention.policy=keep"])
    moved = sim.run(SCENARIO)
    points = sim.sweep(SCENARIO, axes=AXES, overrides=["duration=900"], replications=3).points
    points = points[points["status"] == "finished"]
    agents, policy = AXES["grid"]
    return [
        kept.plot.pool_use, moved.plot.pool_use, kept.plot.gpu_use, moved.plot.link_use, kept.plot.occupancy,
        kept.plot.time_by_cause, kept.plot.ttft, kept.plot.itl, kept.plot.pauses,
        lambda ax: plots.heat_map(points, agents, policy, "ttft_resumed_p95_s", ax, best="low",
                                  title="TTFT of resumed turns, p95"),
        lambda ax: plots.lines(points, agents, "turns_per_s", policy, ax, title="Work done"),
        lambda ax: plots.pareto(points.groupby([agents, policy], as_index=False, sort=False).mean(numeric_only=True),
                                by=policy, label=agents, ax=ax, title="Cost against latency"),
    ]


def of_closed_forms() -> list[Draw]:
    """Return what draws each figure that needs no simulation."""
    from sim.report.plots.memory import deployed

    return [
        lambda ax: plots.memory_wall(ax=ax), lambda ax: plots.envelope(ax=ax), lambda ax: plots.fragmentation(ax=ax),
        lambda ax: plots.address_space(worn_pools(), ax, request=4_096, block_tokens={"paged": 16}),
        lambda ax: plots.reallocation(ax=ax), lambda ax: plots.block_table(ax=ax),
        lambda ax: plots.prefix_tree(cached_prefixes(evict=110), ax, title="Prefix tree after an eviction"),
        lambda ax: plots.step_lengths(chunks=(2_048, 512), ax=ax), lambda ax: plots.break_even(ax=ax),
        lambda ax: plots.regimes(ax=ax),
        lambda ax: plots.regimes(ax=ax, place=deployed("llama-3.1-70b", "gb200-nvl72", 4)),
        lambda ax: plots.tiers("dgx-h100", ax), lambda ax: plots.tiers("gb200-nvl72", ax),
    ]


def sheet(path: Path, draws: Sequence[Draw]) -> Path:
    """Draw figures two in a row on one sheet, write it as PNG and return its path."""
    from matplotlib.figure import Figure

    rows = -(-len(draws) // 2)
    with style.context():
        made = Figure(figsize=(15.0, 3.5 * rows))
        places = made.subfigures(rows, 2, squeeze=False, wspace=0.03, hspace=0.06)
        for draw, place in zip(draws, places.flat, strict=False):
            draw(place.subplots())
        made.savefig(path, dpi=90, metadata={"Software": None})
    return path


def main(arguments: Sequence[str]) -> None:
    """Write both sheets to the folder given."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    print(sheet(folder / "gallery_closed_forms.png", of_closed_forms()))
    print(sheet(folder / "gallery_run.png", of_runs()))


if __name__ == "__main__":
    main(sys.argv[1:])
