"""Scenarios: YAML in, a frozen and validated `Scenario` out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.scenario.dumping import dump, json_schema
    from sim.scenario.loading import load
    from sim.scenario.model import Scenario
    from sim.scenario.new import new_text, template_names

__all__ = ["Scenario", "dump", "json_schema", "load", "new_text", "template_names"]

_HOMES = {"Scenario": "model", "dump": "dumping", "json_schema": "dumping", "load": "loading", "new_text": "new",
          "template_names": "new"}


def __getattr__(name: str) -> Any:
    """Import what is asked for only then: the command line's help needs none of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
