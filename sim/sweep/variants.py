"""One scenario, one field, several values: what a run with each of them is called and where it goes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError

if TYPE_CHECKING:
    from sim.scenario.model import Scenario

_OPEN, _CLOSE = "[{(", "]})"


def axis(text: str) -> tuple[str, list[str]]:
    """Split ``a.b=x,y,z`` into the field and its values; commas inside brackets or quotes do not split.

    Raises
    ------
    InputError
        There is no field, no value, or a value twice.
    """
    field, equals, rest = text.partition("=")
    values, depth, quote, word = [], 0, "", ""
    for letter in rest + ",":
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        depth += (letter in _OPEN) - (letter in _CLOSE) if not quote else 0
        if letter == "," and depth == 0 and not quote:
            values.append(word.strip())
            word = ""
        else:
            word += letter
    if word:
        raise InputError("a bracket or a quote is not closed", field="--vary", got=text)
    if not equals or not field.strip() or not all(values):
        raise InputError("expected FIELD=VALUE,VALUE,...", field="--vary", got=text)
    if len(set(values)) < len(values):
        raise InputError("a value is given twice", field="--vary", got=text)
    return field.strip(), values


def named(vary: Mapping[str, Sequence[Any]]) -> tuple[str, dict[str, str]]:
    """Return the field of a scenario's `vary:`, and its values as ``--set`` takes them, by what they are called.

    A mapping is called by the policy it names, if no other has that name.
    """
    import json

    (field, values), = vary.items()
    short = [str(value.get("policy", value)) if isinstance(value, Mapping) else str(value) for value in values]
    names = [name if short.count(name) == 1 else json.dumps(value) for name, value in zip(short, values, strict=True)]
    return field, dict(zip(names, map(json.dumps, values), strict=True))


def file_name(text: str) -> str:
    """Return a text without what has no place in the name of a file."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-.") or "value"


def folders(out: Path | None, values: Sequence[str]) -> list[Path | None]:
    """Return a folder below `out` for each value, named after it."""
    if out is None:
        return [None for _ in values]
    names = [file_name(value) for value in values]
    if len({name.lower() for name in names}) < len(names):
        names = [f"{position}-{name}" for position, name in enumerate(names)]
    return [out / name for name in names]


def title(scenario: Scenario, *, without: str = "") -> str:
    """Return one line that says what was run, leaving out what a field called `without` decides."""
    hardware, model = _name(scenario.hardware), _name(scenario.model)
    parts = {
        "name": scenario.name, "model": f"{model} on {scenario.nodes} x {hardware}",
        "retention": f"retention {scenario.retention.policy}", "seed": f"seed {scenario.seed}",
    }
    if scenario.replications > 1:
        parts["replications"] = f"{scenario.replications} replications"
    return ", ".join(text for key, text in parts.items() if not without or key != without.split(".")[0])


def _name(value: Any) -> str:
    return value if isinstance(value, str) else str(getattr(value, "name", "inline"))
