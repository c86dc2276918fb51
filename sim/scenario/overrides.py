"""``--set a.b.c=value``: a field of a scenario given from outside its file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sim.errors import InputError, shorten
from sim.scenario import shorthand, strict_yaml
from sim.scenario.problems import Places

_AGENTS = ("workload", "agents")
_PATH = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


def split(text: str) -> tuple[tuple[str, ...], Any]:
    """Return the path and the value of ``a.b.c=value``; the value follows the rules of the file's YAML.

    Raises
    ------
    InputError
        There is no ``=``, the path is no dotted path, or the value is no YAML.
    """
    place = _place(text)
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError("expected FIELD=VALUE", file=place)
    if not _PATH.fullmatch(name.strip()):
        raise InputError("expected a dotted path of fields before =, like engine.block_size", file=place)
    try:
        return tuple(name.strip().split(".")), strict_yaml.read(value).data
    except InputError as error:
        raise InputError(error.reason, file=place, got=error.got) from None


def apply(tree: Any, text: str, places: Places) -> Any:
    """Return the raw tree with one override laid over it, and note in `places` where it came from.

    A mapping is laid over the one there, key by key, except for agents: who writes them whole means them, and sets
    a field of those there by its own path.
    """
    path, value = split(text)
    if path == _AGENTS and isinstance(tree.get("workload"), Mapping):
        tree = {**tree, "workload": {key: item for key, item in tree["workload"].items() if key != "agents"}}
    layer = value
    for part in reversed(path):
        layer = {part: layer}
    try:
        merged = shorthand.merge(tree, shorthand.expand(layer))
    except InputError as error:
        raise InputError(error.reason, file=_place(text), field=error.field, got=error.got) from None
    places.override(path, shorten(text))
    return merged


def _place(text: str) -> str:
    return f"--set {shorten(text)}"
