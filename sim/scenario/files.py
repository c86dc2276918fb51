"""Files that a scenario names: a trace, the spec of an agent, a measured profile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workloads.catalogue import is_file


def anchored(tree: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Return a raw tree with every relative path to a file made absolute, so that it runs from anywhere.

    Parameters
    ----------
    tree
        A scenario as written, its shorthands expanded.
    base
        The folder that relative paths count from.
    """
    found = {key: _anchored((key,), value, base) for key, value in tree.items()}
    return found if "sweep" not in found else {**found, "sweep": _axes(found["sweep"], base)}


def _anchored(path: tuple[Any, ...], value: Any, base: Path) -> Any:
    """Return what stands at `path` with the files in it made absolute."""
    if isinstance(value, Mapping) and path in ((), ("workload",), ("workload", "agents"), ("timing",)):
        return {key: _anchored((*path, key), item, base) for key, item in value.items()}
    if _names_a_file(path, value) and not Path(value).is_absolute():
        return str((base / Path(value).expanduser()).resolve())
    return value


def _names_a_file(path: tuple[Any, ...], value: Any) -> bool:
    if path == ("workload", "agents", "trace"):
        return isinstance(value, str | Path) and bool(str(value))
    return isinstance(value, str) and ((path == ("workload", "agents") and is_file(value))
                                       or (path == ("timing", "measured") and value.endswith(".json")))


def _axes(section: Any, base: Path) -> Any:
    """Return the section `sweep:` with the files among the values of its axes made absolute."""
    if isinstance(section, list):
        return [_axes(part, base) for part in section]
    if not isinstance(section, Mapping):
        return section
    return {key: _values(tuple(key.split(".")), item, base) if isinstance(key, str) and
            key.split(".")[0] in ("workload", "timing") else _axes(item, base) for key, item in section.items()}


def _values(path: tuple[str, ...], values: Any, base: Path) -> Any:
    """Return the values of an axis: a list, what a sample chooses from, or one alone."""
    if isinstance(values, list):
        return [_anchored(path, value, base) for value in values]
    if isinstance(values, Mapping) and "choice" in values:
        return {**values, "choice": _values(path, values["choice"], base)}
    return _anchored(path, values, base)
