"""Results for people to read."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Import `plots` when it is first asked for, so that ``sim.plots`` works."""
    if name == "plots":
        from importlib import import_module

        return import_module("sim.report.plots")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
