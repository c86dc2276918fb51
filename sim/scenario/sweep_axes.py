"""The shape of a scenario's `sweep:`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.errors import InputError
from sim.scenario.catalogue import suggest

FORMS = ("grid", "zip", "list", "sample")
#: Keys that are no axes: which points are left out, and how often each is repeated.
OPTIONS = ("where", "replications")
SAMPLERS = ("latin_hypercube", "sobol")


def check_vary(vary: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return `vary` if it names one field and at least two different values for it.

    Raises
    ------
    InputError
        Another number of fields, fewer than two values, or a value twice.
    """
    if len(vary) != 1:
        raise InputError("names one field; more are a sweep", got=", ".join(map(str, vary)) or "none")
    (field, values), = vary.items()
    if len(values) < 2:
        raise InputError("needs at least two values", field=str(field), got=values)
    if any(value in values[:position] for position, value in enumerate(values)):
        raise InputError("has a value twice", field=str(field), got=values)
    return vary


def check_sweep(sweep: dict[str, Any]) -> dict[str, Any]:
    """Return `sweep` if it has the right shape; what its paths and values mean is found out when a point is loaded.

    ``grid: {path: [values]}`` crosses its axes, ``zip`` steps through them together (lists of one length),
    ``list: [{path: value}, ...]`` names each point, and ``sample: {latin_hypercube: {n: 64, ranges: {path: [low,
    high]}}}`` (or ``sobol``) draws them. Forms given together are crossed. ``where`` keeps the points that meet its
    conditions, ``replications`` stands in place of the scenario's.

    Raises
    ------
    InputError
        Another key, no axis, an axis that is no list or an empty one, lists of unequal length under `zip`, a path
        given twice.
    """
    if not sweep:
        raise InputError(f"needs one of {', '.join(FORMS)}")
    for form, axes in sweep.items():
        if form not in FORMS + OPTIONS:
            raise InputError(f"unknown field; {suggest(str(form), FORMS + OPTIONS)}", field=str(form))
        if form == "list":
            _check_points(axes)
        elif form == "sample":
            _check_sample(axes)
        elif form in FORMS:
            _check_axes(form, axes)
    if not set(sweep) & set(FORMS):
        raise InputError(f"needs one of {', '.join(FORMS)}")
    if "where" in sweep:
        _check_where(sweep["where"])
    _check_count("replications", sweep.get("replications", 1))
    _check_twice(sweep)
    return sweep


def _check_points(points: Any) -> None:
    if not isinstance(points, list) or not points:
        raise InputError("expected a list of points, each a mapping {path: value}", field="list", got=points)
    for point in points:
        if not isinstance(point, Mapping) or not point or not all(isinstance(path, str) for path in point):
            raise InputError("expected a mapping {path: value} for each point", field="list", got=point)


def _check_axes(form: str, axes: Any) -> None:
    if not isinstance(axes, Mapping) or not axes:
        raise InputError("expected a mapping {path: [values]}", field=form, got=axes)
    lengths = set()
    for path, values in axes.items():
        if not isinstance(path, str):
            raise InputError("expected a dotted path", field=form, got=path)
        if not isinstance(values, list) or not values:
            raise InputError("expected a list of values", field=f"{form}.{path}", got=values)
        lengths.add(len(values))
    if form == "zip" and len(lengths) > 1:
        raise InputError(f"lists must be of one length, they have {sorted(lengths)}", field=form)


def _check_sample(sample: Any) -> None:
    if not isinstance(sample, Mapping) or len(sample) != 1 or next(iter(sample)) not in SAMPLERS:
        raise InputError(f"expected one of {', '.join(SAMPLERS)}, each {{n: COUNT, ranges: {{path: [low, high]}}}}",
                         field="sample", got=sample)
    kind, given = next(iter(sample.items()))
    field = f"sample.{kind}"
    if not isinstance(given, Mapping) or not isinstance(given.get("ranges"), Mapping) or not given["ranges"]:
        raise InputError("expected {n: COUNT, ranges: {path: [low, high]}}", field=field, got=given)
    unknown = next((key for key in given if key not in ("n", "ranges", "seed")), None)
    if unknown is not None:
        raise InputError(f"unknown field; {suggest(str(unknown), ('n', 'ranges', 'seed'))}", field=f"{field}.{unknown}")
    _check_count(f"{field}.n", given.get("n"))
    seed = given.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise InputError("expected a whole number, 0 or more", field=f"{field}.seed", got=seed)
    for path, span in given["ranges"].items():
        if not isinstance(path, str):
            raise InputError("expected a dotted path", field=f"{field}.ranges", got=path)
        _check_range(f"{field}.ranges.{path}", span)


def _check_range(field: str, span: Any) -> None:
    keys = {"low", "high", "log", "integer"}
    if isinstance(span, list) and len(span) == 2:
        return
    if isinstance(span, Mapping) and ({"low", "high"} <= set(span) <= keys or (
            set(span) == {"choice"} and isinstance(span["choice"], list) and span["choice"])):
        return
    raise InputError("expected [low, high], {low:, high:, log: true, integer: true} or {choice: [values]}",
                     field=field, got=span)


def _check_count(field: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1_000_000:
        raise InputError("expected a whole number, 1 or more", field=field, got=value)


def _check_where(where: Any) -> None:
    for condition in where if isinstance(where, list) else [where]:
        if not isinstance(condition, str | Mapping) or not condition:
            raise InputError("expected a condition, like 'tp <= 4 or hardware == \"dgx-h100\"', or {path: value}",
                             field="where", got=condition)


def _check_twice(sweep: Mapping[str, Any]) -> None:
    seen: set[str] = set()
    for form in FORMS:
        axes = sweep.get(form, {})
        paths = {path for point in axes for path in point} if form == "list" else set(axes)
        if form == "sample" and axes:
            paths = set(next(iter(axes.values()))["ranges"])
        if paths & seen:
            raise InputError("is given in two forms", field=f"{form}.{min(paths & seen)}")
        seen |= paths
