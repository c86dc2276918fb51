"""The shape of a scenario's `sweep:`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.errors import InputError
from sim.scenario.catalogue import suggest

FORMS = ("grid", "zip", "list")


def check_sweep(sweep: dict[str, Any]) -> dict[str, Any]:
    """Return `sweep` if it has the right shape; what its paths and values mean is found out when a point is loaded.

    ``grid: {path: [values]}`` crosses its axes, ``zip`` steps through them together (lists of one length), and
    ``list: [{path: value}, ...]`` names each point. Forms given together are crossed.

    Raises
    ------
    InputError
        Another key, no axis, an axis that is no list or an empty one, lists of unequal length under `zip`.
    """
    if not sweep:
        raise InputError(f"needs one of {', '.join(FORMS)}")
    for form, axes in sweep.items():
        if form not in FORMS:
            raise InputError(f"unknown field; {suggest(str(form), FORMS)}", field=str(form))
        if form == "list":
            _check_points(axes)
        else:
            _check_axes(form, axes)
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
