"""kvplan: how many agent trajectories a pool of accelerators holds, at which latency and cost.

The command line in Python::

    import sim

    result = sim.run("scenario.yaml", overrides=["retention.policy=offload"])
    result.summary["ttft_s"]["resumed"]["p95"]
    result.turns                      # a pandas DataFrame
    result.save("out/offload")
    sim.explain(sim.load("scenario.yaml"))

Names are imported when first used, so ``import sim`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.errors import InputError
    from sim.scenario.explain import explain
    from sim.scenario.model import Scenario
    from sim.sweep.result import Result
    from sim.sweep.run import load, run

__all__ = ["InputError", "Result", "Scenario", "explain", "load", "run"]

_HOMES = {"InputError": "sim.errors", "Result": "sim.sweep.result", "Scenario": "sim.scenario.model",
          "explain": "sim.scenario.explain", "load": "sim.sweep.run", "run": "sim.sweep.run"}


def __getattr__(name: str) -> Any:
    """Import a public name from where it lives."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
