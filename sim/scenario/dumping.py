"""A scenario as YAML text, and its schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sim.scenario.model import Scenario


def dump(scenario: Scenario) -> str:
    """Return the resolved scenario as YAML: every field written out, in SI; loading it gives an equal scenario."""
    from sim.scenario import preset, strict_yaml

    data = scenario.model_dump(mode="python", by_alias=True)
    named = scenario.engine.preset
    return strict_yaml.dump(_tidy(data, preset.read(named) if named else {}))


def _tidy(value: Any, given: Any) -> Any:
    """Drop what is not given, unless a preset would give it; write whole floats as integers."""
    if isinstance(value, dict):
        below = given if isinstance(given, dict) else {}
        return {key: _tidy(item, below.get(key)) for key, item in value.items()
                if item is not None or below.get(key) is not None}
    if isinstance(value, list | tuple):
        return [_tidy(item, None) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a scenario, the documentation of each field included."""
    return Scenario.model_json_schema(mode="validation")
