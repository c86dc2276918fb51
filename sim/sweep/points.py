"""The points of a sweep, each loaded and checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sim.errors import InputError, shorten
from sim.sweep import axes, filters

if TYPE_CHECKING:
    from sim.scenario.model import Scenario


@dataclass(frozen=True, slots=True)
class Point:
    """One scenario of a sweep.

    Attributes
    ----------
    number
        Its place in the sweep, from 0; points left out by `where` are not counted.
    settings
        What it sets: dotted path -> value as written.
    values
        The same as the resolved scenario holds it: quantities in SI.
    scenario
        The resolved scenario, without `sweep` and with one replication.
    """

    number: int
    settings: dict[str, Any]
    values: dict[str, Any]
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class Plan:
    """A sweep ready to run."""

    base: Scenario
    section: dict[str, Any]
    points: list[Point]
    replications: int
    paths: list[str] = field(default_factory=list)


def plan(source: Any, overrides: Sequence[str] = (), section: Mapping[str, Any] | None = None,
         replications: int | None = None) -> Plan:
    """Load a scenario and every point of its sweep.

    Parameters
    ----------
    source
        What `sim.load` takes, or a loaded scenario.
    overrides
        ``dotted.path=value`` texts, laid over the scenario before a point's own settings.
    section
        In place of the scenario's `sweep:`.
    replications
        In place of the sweep's, which stands in place of the scenario's.

    Raises
    ------
    InputError
        There is no sweep, no point is left, or a point is wrong: the text names it.
    """
    from sim.scenario.sweep_axes import check_sweep
    from sim.sweep.run import load

    if hasattr(source, "workload"):
        source = source.model_dump(mode="json", by_alias=True, exclude_none=True)
    base = load(source, overrides)
    if section is None and base.sweep is None:
        raise InputError("the scenario has no axes to sweep; add sweep: {grid: {PATH: [VALUES]}}", field="sweep")
    chosen = check_sweep(dict(section)) if section is not None else dict(base.sweep or {})
    settings = axes.expand(chosen)
    where = chosen.get("where", [])
    conditions = where if isinstance(where, list) else [where]
    written = {} if section is not None or any(text.startswith("sweep") for text in overrides) else chosen
    points: list[Point] = []
    for setting in settings:
        point = _point(len(points), source, overrides, written, setting, conditions)
        if point is not None:
            points.append(point)
    if not points:
        raise InputError(f"none of the {len(settings)} points meets the conditions", field="sweep.where")
    _check(points, source, written)
    count = replications or int(chosen.get("replications", base.replications))
    return Plan(base, chosen, points, count, axes.paths([point.settings for point in points]))


def _point(number: int, source: Any, overrides: Sequence[str], section: Mapping[str, Any], setting: dict[str, Any],
           conditions: Sequence[Any]) -> Point | None:
    """Load one point; None if a condition leaves it out. `section`: the sweep as `source` writes it, else empty.

    Conditions on the axes alone are looked at first: they may leave out what could not be loaded.
    """
    from sim.sweep.run import load

    late = []
    for condition in conditions:
        if all(_axis(setting, path) is not filters.MISSING for path in filters.paths_in(condition)):
            if not filters.holds(condition, lambda path: _axis(setting, path)):
                return None
        else:
            late.append(condition)
    try:
        loaded = load(source, [*overrides, *axes.texts(setting)])
    except InputError as error:
        raise _placed(error, source, section, number, setting) from None
    if not all(filters.holds(condition, lambda path: _anywhere(loaded, setting, path)) for condition in late):
        return None
    scenario = loaded.model_copy(update={"sweep": None, "vary": None, "replications": 1})
    values = {path: _told(scenario, path, value) for path, value in setting.items()}
    return Point(number, setting, values, scenario)


def _placed(error: InputError, source: Any, section: Mapping[str, Any], number: int,
            setting: Mapping[str, Any], *, late: bool = False) -> InputError:
    """Return a point's error at the line where `source` wrote the value that is wrong, else with the point's name.

    A point that sets one path only is wrong there; of several, the error must say which.
    `late`: the error is of a scenario that could be loaded.
    """
    from sim.scenario.loading import placed

    alone = len(setting) == 1 and (late or error.file is None)
    wrong = [path for path, text in zip(setting, axes.texts(dict(setting)), strict=True)
             if alone or error.file == f"--set {shorten(text)}"]
    place = next((place for path in wrong for place in _written(section, path, setting[path])), None)
    named = InputError(str(error).splitlines()[0], file=_name(number, setting))
    if place is None:
        return named
    try:
        found = placed(error, source, ("sweep", *place))
    except InputError:  # the folder of a run: its text is not the source's own
        return named
    return found if found.line is not None else named


def _written(section: Mapping[str, Any], path: str, value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield where a section sets a path to a value, or draws it."""
    for form in ("grid", "zip"):
        values = section.get(form, {}).get(path, [])
        if value in values:
            yield form, path, values.index(value)
    for number, point in enumerate(section.get("list", [])):
        if path in point and point[path] == value:
            yield "list", number, path
    for kind, given in section.get("sample", {}).items():
        if path in given["ranges"]:
            yield "sample", kind, "ranges", path


def _name(number: int, setting: Mapping[str, Any]) -> str:
    return f"sweep point {number} ({shorten(', '.join(f'{path}={value}' for path, value in setting.items()), 200)})"


def _axis(setting: Mapping[str, Any], path: str) -> Any:
    """Return the value a point sets at a path, or at the one path that ends in it."""
    if path in setting:
        return setting[path]
    ending = [value for name, value in setting.items() if name.endswith(f".{path}")]
    return ending[0] if len(ending) == 1 else filters.MISSING


def _anywhere(scenario: Scenario, setting: Mapping[str, Any], path: str) -> Any:
    value = _axis(setting, path)
    return value if value is not filters.MISSING else _at(scenario, path)


def _at(scenario: Any, path: str) -> Any:
    """Return the value at a dotted path of a scenario; None behind a field that does not apply."""
    value = scenario
    for part in path.split("."):
        if value is None:
            return None
        if isinstance(value, Mapping):
            value = value.get(part)
        elif part in getattr(type(value), "model_fields", ()):
            value = getattr(value, part)
        else:
            return filters.MISSING if value is scenario else None
    return value


def _told(scenario: Scenario, path: str, written: Any) -> Any:
    """Return what stands in the table for one setting: a number in SI, a truth value, or text."""
    import json

    value = _at(scenario, path)
    if isinstance(value, bool | int | float) and written is not None:
        return value
    if isinstance(written, str | bool | int | float) or written is None:
        return written
    return json.dumps(written, ensure_ascii=False)


def _check(points: Sequence[Point], source: Any, section: Mapping[str, Any]) -> None:
    """Make sure that each point's model fits its hardware, and that its workload can be read."""
    import json
    from pathlib import Path

    import workloads
    from sim.scenario.deployment import deploy

    seen: set[str] = set()
    for point in points:
        try:
            deploy(point.scenario)
            workload = json.dumps(point.scenario.workload.model_dump(mode="json"), sort_keys=True)
            if workload not in seen:
                workloads.build(point.scenario.workload, Path())
                seen.add(workload)
        except InputError as error:
            raise _placed(error, source, section, point.number, point.settings, late=True) from None
