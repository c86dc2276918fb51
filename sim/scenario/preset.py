"""Defaults of engines that exist, as files: `engine.preset` names one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from sim.scenario import shorthand, strict_yaml

_FOLDER = Path(__file__).parent / "presets"


def names() -> list[str]:
    """Return the names of the presets, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


@lru_cache(maxsize=8)
def read(name: str) -> dict[str, Any]:
    """Return the preset's part of a scenario, without shorthands; KeyError if there is no such preset.

    A preset that `extends` another says only where it differs.
    """
    if name not in names():
        raise KeyError(name)
    text = (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    fragment: dict[str, Any] = shorthand.expand(strict_yaml.read(text).data)
    base = fragment.pop("extends", None)
    return shorthand.merge(read(base), fragment) if base else fragment


def under(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a raw scenario with the preset it names laid under it; the scenario wins wherever both speak.

    What a preset says of a tier without giving it a size holds if the scenario has that tier. An unknown preset changes
    nothing here: the schema refuses it by name.
    """
    engine = tree.get("engine")
    name = engine.get("preset") if isinstance(engine, Mapping) else None
    if not isinstance(name, str) or name not in names():
        return dict(tree)
    fragment = dict(read(name))
    tiers = tree.get("tiers")
    given = tiers if isinstance(tiers, Mapping) else {}
    fragment["tiers"] = {key: _sized(tier, given.get(key)) for key, tier in fragment.get("tiers", {}).items()
                         if given.get(key) is not None or {"capacity", "pool_ratio"} & set(tier)}
    merged: dict[str, Any] = shorthand.merge(fragment, tree)
    return merged


def _sized(tier: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """Return a preset's tier without its size if the scenario gives one, in whichever way."""
    sizes = {"capacity", "pool_ratio"}
    own = isinstance(given, Mapping) and sizes & set(given)
    return {key: value for key, value in tier.items() if not (own and key in sizes)}
