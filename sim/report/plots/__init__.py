"""Figures: each a function that takes data and an `ax` (made when left out) and returns the `ax`.

Of a run: `pool_use`, `gpu_use`, `time_by_cause`, `occupancy`, `link_use`, `ttft`, `itl`, `pauses`.
Of a sweep: `heat_map`, `lines`, `pareto`.
Of closed forms and catalogues: `memory_wall`, `envelope`, `fragmentation`, `address_space`, `reallocation`,
`block_table`, `prefix_tree`, `step_lengths`, `break_even`, `regimes`, `tiers`.

Names are imported when first used. `gallery` draws all of them.
"""

from __future__ import annotations

from typing import Any

_HOMES = {
    "runs": ("pool_use", "gpu_use", "time_by_cause", "occupancy", "link_use", "ttft", "itl", "pauses"),
    "sweeps": ("heat_map", "lines", "pareto"),
    "memory": ("memory_wall", "envelope", "envelope_points", "fragmentation", "reallocation"),
    "pool_map": ("address_space", "segments"),
    "structures": ("block_table", "prefix_tree", "tiers"),
    "waits": ("step_lengths", "break_even", "regimes"),
    "style": ("figure", "svg"),
}

__all__ = [
    "address_space", "block_table", "break_even", "envelope", "envelope_points", "figure", "fragmentation", "gpu_use",
    "heat_map", "itl", "lines", "link_use", "memory_wall", "occupancy", "pareto", "pauses", "pool_use", "prefix_tree",
    "reallocation", "regimes", "segments", "step_lengths", "svg", "tiers", "time_by_cause", "ttft",
]


def __getattr__(name: str) -> Any:
    """Import a figure from the module it lives in."""
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
