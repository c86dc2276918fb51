"""kvplan: how many agent trajectories a pool of accelerators holds, at which latency and cost.

The command line in Python::

    import sim

    result = sim.run("scenario.yaml", overrides=["retention.policy=offload"])
    result.summary["ttft_s"]["resumed"]["p95"]
    result.turns                      # a pandas DataFrame
    result.bill("claude-sonnet-4.5")  # what the same trajectories would cost there
    result.save("out/offload")
    sim.explain(sim.load("scenario.yaml"))
    sim.sweep("scenario.yaml", "out/sweep").mean             # one row a point
    sim.size("scenario.yaml", find="concurrency").answer
    sim.envelope("scenario.yaml", contexts=[32768, 131072])  # nodes x contexts x sharing x waits

Names are imported when first used, so ``import sim`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.errors import InputError
    from sim.scenario.explain import explain
    from sim.scenario.model import Scenario
    from sim.sweep.envelope import envelope, pareto
    from sim.sweep.result import Result
    from sim.sweep.run import load, run
    from sim.sweep.size_result import SizeResult
    from sim.sweep.sizing import size
    from sim.sweep.sweeping import SweepResult, sweep

__all__ = ["InputError", "Result", "Scenario", "SizeResult", "SweepResult", "envelope", "explain", "load", "pareto",
           "plots", "run", "size", "sweep"]

_HOMES = {"InputError": "sim.errors", "Result": "sim.sweep.result", "Scenario": "sim.scenario.model",
          "SizeResult": "sim.sweep.size_result", "SweepResult": "sim.sweep.sweeping", "envelope": "sim.sweep.envelope",
          "explain": "sim.scenario.explain", "load": "sim.sweep.run", "pareto": "sim.sweep.envelope",
          "plots": "sim.report", "run": "sim.sweep.run", "size": "sim.sweep.sizing"}


def __getattr__(name: str) -> Any:
    """Import a public name from where it lives."""
    if name == "sweep":  # the package `sim.sweep` is the function
        from importlib import import_module

        return import_module("sim.sweep")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
