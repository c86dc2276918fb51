"""What is wrong with a scenario, in words its author understands: one line a problem, with its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sim.errors import _MISSING, InputError
from sim.scenario.catalogue import suggest
from sim.scenario.shorthand import members
from sim.scenario.strict_yaml import Path, dotted

_EXPECTED = {
    "int": "expected a whole number", "float": "expected a number", "bool": "expected true or false",
    "string": "expected text (quote it)", "list": "expected a list", "tuple": "expected a list",
    "model": "expected a mapping", "dict": "expected a mapping", "mapping": "expected a mapping",
    "path": "expected a path", "finite": "expected a finite number",
}
_NO_VALUE: Any = object()


class ScenarioError(InputError):
    """Several problems at once; its text has one line for each."""

    def __init__(self, problems: list[InputError]) -> None:
        first = problems[0]
        super().__init__(first.reason, file=first.file, line=first.line, field=first.field)
        self.got = first.got
        self.problems = tuple(problems)
        self.args = ("\n".join(map(str, problems)),)


@dataclass
class Places:
    """Where each field of a raw tree was written: a line of the file, or an override."""

    file: str | None = None
    lines: dict[Path, int] = field(default_factory=dict)
    overrides: dict[Path, str] = field(default_factory=dict)

    def override(self, path: Path, text: str) -> None:
        """Note that `path` and all below it now come from the override `text`."""
        self.lines = {known: line for known, line in self.lines.items() if known[: len(path)] != path}
        self.overrides = {known: old for known, old in self.overrides.items() if known[: len(path)] != path}
        self.overrides[path] = text

    def error(self, path: Path, reason: str, got: Any = _NO_VALUE) -> InputError:
        """Return the error at a path, placed at the nearest enclosing field whose place is known."""
        place = self._place(path)
        if got is not _NO_VALUE:
            place["got"] = plain(got)
        return InputError(reason, field=dotted(path) or None, **place)

    def _place(self, path: Path) -> dict[str, Any]:
        for length in range(len(path), 0, -1):
            if path[:length] in self.overrides:
                return {"file": f"--set {self.overrides[path[:length]]}"}
            if path[:length] in self.lines:
                return {"file": self.file, "line": self.lines[path[:length]]}
        below = [text for known, text in self.overrides.items() if path and known[: len(path)] == path]
        return {"file": f"--set {below[-1]}" if below else self.file}


def plain(value: Any) -> str:
    """Return a value as YAML would show it, on one line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {plain(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(plain, value)) + "]"
    return str(value) if value != "" else "''"


def explain(error: ValidationError, data: Any, schema: type[BaseModel], places: Places) -> list[InputError]:
    """Return one error a problem that pydantic found in `data`, each with its place, without doubles."""
    found = [_explain(details, data, schema, places) for details in error.errors()]
    return sorted({str(problem): problem for problem in found}.values(), key=lambda problem: problem.line or 0)


def _real_path(loc: Iterable[Any], data: Any) -> Path:
    """Return the part of pydantic's location that exists in the data.

    pydantic also puts the names of union members into a location; they exist nowhere in the data.
    """
    path: Path = ()
    for part in loc:
        if (isinstance(data, Mapping) and part in data) or (
                isinstance(data, list) and isinstance(part, int) and part < len(data)):
            data = data[part]
            path = (*path, part)
    return path


def _value(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data


def _models_at(schema: type[BaseModel], loc: Iterable[Any]) -> list[type[BaseModel]]:
    """Return the models that may stand at a location."""
    here = [schema]
    for part in loc:
        fields = [model.model_fields[part] for model in here if part in model.model_fields]
        if fields:
            here = [found for info in fields for found in members(info.annotation)]
        else:  # a key, an index, or the name of a union's member
            here = [model for model in here if model.__name__ == part or part in _tags(model)] or here
    return here


def _tags(model: type[BaseModel]) -> list[Any]:
    """Return the values of a model's literal fields, among them the one a union tells it by."""
    return [value for info in model.model_fields.values() if get_origin(info.annotation) is Literal
            for value in get_args(info.annotation)]


def _explain(details: ErrorDetails, data: Any, schema: type[BaseModel], places: Places) -> InputError:
    kind, loc, given = details["type"], details["loc"], details["input"]
    context = details.get("ctx", {})
    path = _real_path(loc, data)
    if kind == "missing":
        return places.error((*path, loc[-1]), "is required")
    if kind == "extra_forbidden":
        known = dict.fromkeys(name for model in _models_at(schema, loc[:-1]) for name in model.model_fields)
        return places.error(path, f"unknown field; {suggest(str(loc[-1]), known)}",
                            given if _short(given) else _NO_VALUE)
    if kind == "literal_error":
        what = "unknown name" if loc[-1] == "[key]" else "unknown value"
        return places.error(path, f"{what}; {suggest(plain(given), _quoted(context['expected']))}", given)
    if kind == "union_tag_invalid":
        tag = context["discriminator"].strip("'")
        if isinstance(_value(data, path), Mapping):
            path = (*path, tag)
        return places.error(path, f"unknown {tag}; {suggest(context['tag'], _quoted(context['expected_tags']))}",
                            context["tag"])
    if kind == "union_tag_not_found":
        tag = context["discriminator"].strip("'")
        known = dict.fromkeys(str(name) for model in _models_at(schema, loc) for name in _tags(model))
        if isinstance(given, Mapping):
            return places.error((*path, tag), f"is required; {suggest('', known)}")
        return places.error(path, f"expected a mapping with {tag}; {suggest('', known)}", given)
    if kind in ("value_error", "assertion_error"):
        return _raised(context["error"], path, given, places)
    return places.error(path, _reason(kind, details["msg"]), given)


def _raised(error: Exception, path: Path, given: Any, places: Places) -> InputError:
    """Return the error of a validator at its place; one raised deeper keeps the place it knows."""
    if not isinstance(error, InputError):
        return places.error(path, str(error), given if _short(given) else _NO_VALUE)
    if error.file is not None:
        return error
    inner = tuple(error.field.split(".")) if error.field else ()
    got = error.got if error.got is not _MISSING else given if _short(given) and not inner else _NO_VALUE
    return places.error((*path, *inner), error.reason, got)


def _short(value: Any) -> bool:
    """Whether a value says something when repeated: not a whole section."""
    return not isinstance(value, Mapping | BaseModel)


def _reason(kind: str, message: str) -> str:
    word, _, rest = kind.partition("_")
    if rest.endswith(("type", "parsing", "parsing_size", "from_float", "sub_type", "number")) and word in _EXPECTED:
        return _EXPECTED[word]
    if kind == "invalid_key":
        return "a field's name must be text"
    message = re.sub(r"^Input should be (?=a |an )", "expected ", message)
    return re.sub(r"^[A-Z][a-z]+ should ", "must ", message)


def _quoted(text: Any) -> list[str]:
    """Return the names that pydantic lists as ``'a', 'b' or 'c'``."""
    return re.findall(r"'([^']*)'", str(text))
