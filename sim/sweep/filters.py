"""Conditions that points of a sweep must meet: comparisons, written as text or as a mapping. Nothing is executed."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from sim import units
from sim.errors import InputError

#: Finds the value at a dotted path; `MISSING` if there is none.
Lookup = Callable[[str], Any]
MISSING: Any = object()

_KINDS = (units.BYTES, units.SECONDS, units.BYTES_PER_SECOND, units.RATE, units.TOKENS, units.USD_PER_HOUR,
          units.FLOPS, units.FRACTION, units.USD, units.FLOP)
_NUMERIC = re.compile(r"\s*[-+]?[0-9.]")
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b}
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod}
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def quantity(value: Any) -> Any:
    """Return text with a unit as a number in SI, anything else as it is."""
    if not isinstance(value, str) or not _NUMERIC.match(value):
        return value
    for kind in _KINDS:
        try:
            return units.parse(value, kind)
        except InputError:
            continue
    return value


def holds(condition: str | Mapping[str, Any], lookup: Lookup) -> bool:
    """Return whether a condition holds.

    Parameters
    ----------
    condition
        An expression of comparisons, arithmetic, ``and``, ``or``, ``not`` and ``in`` over dotted paths, numbers and
        quoted text (``"512 GiB"`` is a number); or a mapping from paths to a value, a list of allowed values, or
        ``{min:, max:, not:}``.
    lookup
        Where paths get their values.

    Raises
    ------
    InputError
        The condition is no such expression, or names a path that has no value.
    """
    if isinstance(condition, Mapping):
        return all(_allowed(path, wanted, lookup) for path, wanted in condition.items())
    if len(condition) > 1000:
        raise InputError("more than 1000 characters", field="where")
    try:
        tree = ast.parse(condition.strip(), mode="eval")
        return bool(_value(tree.body, lookup))
    except (SyntaxError, RecursionError):
        raise InputError("expected a condition like 'tp <= 4 and hardware != \"dgx-h100\"'", field="where",
                         got=condition) from None
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        raise InputError(f"cannot be worked out: {error}", field="where", got=condition) from None
    except InputError as error:
        raise InputError(error.reason, field="where", got=condition) from None


def _allowed(path: str, wanted: Any, lookup: Lookup) -> bool:
    value = _found(str(path), lookup)
    if isinstance(wanted, Mapping):
        unknown = set(wanted) - {"min", "max", "not"}
        if unknown:
            raise InputError("expected min, max or not", field=f"where.{path}", got=min(map(str, unknown)))
        try:
            return bool(("min" not in wanted or (value is not None and value >= quantity(wanted["min"])))
                        and ("max" not in wanted or (value is not None and value <= quantity(wanted["max"])))
                        and ("not" not in wanted or value not in _several(wanted["not"])))
        except TypeError as error:
            raise InputError(f"cannot be compared: {error}", field=f"where.{path}") from None
    return value in _several(wanted)


def _several(value: Any) -> list[Any]:
    return [quantity(item) for item in value] if isinstance(value, list) else [quantity(value)]


def _found(path: str, lookup: Lookup) -> Any:
    value = lookup(path)
    if value is MISSING:
        raise InputError(f"{path!r} is no field of the scenario; text needs quotes")
    return quantity(value)


def _value(node: ast.expr, lookup: Lookup) -> Any:
    if isinstance(node, ast.BoolOp):
        results = (bool(_value(item, lookup)) for item in node.values)
        return all(results) if isinstance(node.op, ast.And) else any(results)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _value(node.operand, lookup)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, lookup)
    if isinstance(node, ast.Compare):
        return _compared(node, lookup)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _value(node.left, lookup), _value(node.right, lookup)
        if not all(isinstance(item, int | float) for item in (left, right)):
            raise InputError("arithmetic takes numbers only")
        return _ARITHMETIC[type(node.op)](left, right)
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool | int | float | str)):
        return quantity(node.value)
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item, lookup) for item in node.elts]
    path = _path(node)
    if path is None:
        raise InputError("holds something that a condition may not")
    return {"true": True, "false": False, "null": None}[path] if path in ("true", "false", "null") else _found(
        path, lookup)


def _compared(node: ast.Compare, lookup: Lookup) -> bool:
    left = _value(node.left, lookup)
    for op, item in zip(node.ops, node.comparators, strict=True):
        right = _value(item, lookup)
        if type(op) not in _COMPARE:
            raise InputError("holds something that a condition may not")
        if isinstance(op, _ORDER) and (left is None or right is None):
            return False  # a field that does not apply is neither above nor below anything
        if not _COMPARE[type(op)](left, right):
            return False
        left = right
    return True


def _path(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _path(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return None


def paths_in(condition: str | Mapping[str, Any]) -> set[str]:
    """Return the paths a condition names (those it cannot be worked out without)."""
    if isinstance(condition, Mapping):
        return set(map(str, condition))
    try:
        walk = list(ast.walk(ast.parse(condition.strip(), mode="eval")))
    except (SyntaxError, RecursionError):
        return set()
    inner = {id(node.value) for node in walk if isinstance(node, ast.Attribute)}
    paths = {_path(node) for node in walk if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner}
    return {path for path in paths if path is not None} - {"true", "false", "null"}
