"""From a file, a text or a mapping to a validated scenario."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from sim.errors import InputError
from sim.scenario import preset, shorthand, strict_yaml
from sim.scenario.catalogue import suggest
from sim.scenario.files import anchored
from sim.scenario.model import Scenario
from sim.scenario.overrides import apply
from sim.scenario.problems import Places, ScenarioError, explain

#: The largest number a scenario may hold; arithmetic on larger ones overflows. A seed may have 128 bits.
MOST, MOST_SEED = 10**24, 2**128


def load(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Scenario:
    """Return the scenario in a file, a YAML text or a mapping.

    Parameters
    ----------
    source
        A path; or YAML text (a string with a line break or ``: `` that names no file); or a mapping.
    overrides
        ``a.b.c=value`` each, the value in YAML, laid over the scenario in order. A relative path in a file counts
        from the file's folder, in an override from the working directory.

    Raises
    ------
    InputError
        With a line for every problem: ``file:line: field: reason (got VALUE)``.
    """
    data, places, base = _source(source)
    try:
        if not isinstance(data, Mapping):
            raise InputError("expected a mapping of fields" if data is not None else "is empty")
        tree = anchored(shorthand.expand(data), base)
        for text in overrides:
            tree = anchored(apply(tree, text, places), Path.cwd())
        tree = shorthand.complete(preset.under(tree))
    except InputError as error:
        raise error.at(file=places.file) from None
    problems = _not_plain(tree, (), places)
    if problems:
        raise ScenarioError(problems)
    try:
        scenario = Scenario.model_validate(tree)
    except ValidationError as error:
        raise ScenarioError(explain(error, tree, Scenario, places)) from None
    problems = _truth_as_number(tree, scenario, (), places)
    if problems:
        raise ScenarioError(problems)
    return scenario.found_at(places)


def places(source: str | Path | Mapping[str, Any]) -> Places:
    """Return where each field of a scenario was written."""
    return _source(source)[1]


def placed(error: InputError, source: str | Path | Mapping[str, Any], path: tuple[Any, ...]) -> InputError:
    """Return an error about a value that a scenario wrote elsewhere, as in `vary:`, at the place where it wrote it."""
    reason = f"{error.field}: {error.reason}" if error.field else error.reason
    at = places(source).error(path, reason)
    return InputError(reason, file=at.file, line=at.line, field=at.field, got=error.got)


def _source(source: str | Path | Mapping[str, Any]) -> tuple[Any, Places, Path]:
    """Return the raw data, its places, and the folder that relative paths in it count from."""
    if isinstance(source, Mapping):
        return source, Places(), Path.cwd()
    if isinstance(source, str) and ("\n" in source or (": " in source and not Path(source).exists())):
        document = strict_yaml.read(source)
        return document.data, Places(None, document.lines), Path.cwd()
    path = Path(source)
    try:
        document = strict_yaml.read(_text(path))
    except InputError as error:
        raise error.at(file=path) from None
    return document.data, Places(str(path), document.lines), path.parent


def _text(path: Path) -> str:
    try:
        if path.is_dir():
            raise InputError("is a folder; give a scenario file")
        if path.exists() and not path.is_file():
            raise InputError("is no regular file")
        if path.is_file() and path.stat().st_size > strict_yaml.MAX_CHARACTERS:
            raise InputError(f"is larger than {strict_yaml.MAX_CHARACTERS} bytes; is it a scenario?")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        near = sorted(other.name for other in path.parent.glob("*.y*ml")) if path.parent.is_dir() else []
        raise InputError("no such file" + (f"; {suggest(path.name, near)}" if near else "")) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError("is not UTF-8 text", line=line) from None
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _not_plain(value: Any, path: tuple[Any, ...], places: Places) -> list[InputError]:
    """Return an error for every number that is not finite (a mapping from Python may hold one) or beyond all use."""
    if isinstance(value, float) and not math.isfinite(value):
        return [places.error(path, "expected a finite number", value)]
    if isinstance(value, int | float) and abs(value) > (MOST_SEED if path == ("seed",) else MOST):
        return [places.error(path, f"must be at most {MOST:.0e} in size", f"{value:.3g}" if abs(value) < 1e300 else
                             f"a number of {len(str(value))} digits")]
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    return [problem for key, item in items for problem in _not_plain(item, (*path, key), places)]


def _truth_as_number(raw: Any, loaded: Any, path: tuple[Any, ...], places: Places) -> list[InputError]:
    """Return an error for every true or false that pydantic took for the number 1 or 0."""
    if isinstance(raw, bool):
        if isinstance(loaded, int | float) and not isinstance(loaded, bool):
            return [places.error(path, "expected a number", raw)]
        return []
    pairs: list[tuple[Any, Any, Any]] = []
    if isinstance(raw, Mapping) and isinstance(loaded, BaseModel):
        pairs = [(key, item, getattr(loaded, key, None)) for key, item in raw.items() if isinstance(key, str)]
    elif isinstance(raw, Mapping) and isinstance(loaded, Mapping):
        pairs = [(key, item, loaded.get(key)) for key, item in raw.items()]
    elif isinstance(raw, list) and isinstance(loaded, list | tuple):
        pairs = [(index, *both) for index, both in enumerate(zip(raw, loaded, strict=False))]
    return [problem for key, item, value in pairs for problem in _truth_as_number(item, value, (*path, key), places)]
