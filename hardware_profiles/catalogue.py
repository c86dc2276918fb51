"""The catalogue: one YAML file a GPU, host link, node or model; the file's name is the profile's."""

from __future__ import annotations

import difflib
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from hardware_profiles.gpus import GpuProfile
from hardware_profiles.models import ModelProfile
from hardware_profiles.nodes import HostLink, NodeProfile
from sim.errors import InputError

Kind = Literal["gpus", "links", "nodes", "models"]
Profile = TypeVar("Profile", bound=BaseModel)

_ROOT = Path(__file__).parent
_SINGULAR = {"gpus": "GPU", "links": "link", "nodes": "node", "models": "model"}
_KINDS: dict[str, Kind] = {"gpu": "gpus", "link": "links", "node": "nodes", "hardware": "nodes", "model": "models",
                           "gpus": "gpus", "links": "links", "nodes": "nodes", "models": "models"}


def names(kind: str) -> list[str]:
    """Return the names of the catalogue's profiles of a kind, sorted.

    Parameters
    ----------
    kind
        ``gpus``, ``links``, ``nodes`` or ``models`` (the singular, and ``hardware`` for nodes, are understood too).

    Raises
    ------
    InputError
        There is no such kind.
    """
    if kind not in _KINDS:
        raise InputError("unknown kind of profile; there are gpus, links, nodes and models", got=kind)
    return sorted(path.stem for path in (_ROOT / _KINDS[kind]).glob("*.yaml"))


def gpu(name: str) -> GpuProfile:
    """Return the GPU of that name; InputError with the nearest names if there is none."""
    return _load("gpus", name, GpuProfile)


def link(name: str) -> HostLink:
    """Return the host link of that name; InputError with the nearest names if there is none."""
    return _load("links", name, HostLink)


def node(name: str) -> NodeProfile:
    """Return the node of that name; InputError with the nearest names if there is none."""
    return _load("nodes", name, NodeProfile)


def model(name: str) -> ModelProfile:
    """Return the model of that name; InputError with the nearest names if there is none."""
    return _load("models", name, ModelProfile)


@lru_cache(maxsize=128)
def _data(kind: Kind, name: str) -> Any:
    known = names(kind)
    if name not in known:
        near = difflib.get_close_matches(name.lower(), known, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
        raise InputError(f"unknown {_SINGULAR[kind]}; {hint}", got=name)
    return read_yaml(_path(kind, name))


def _path(kind: Kind, name: str) -> Path:
    return _ROOT / kind / f"{name}.yaml"


def _load(kind: Kind, name: str, profile: type[Profile]) -> Profile:
    return validate(_data(kind, name), profile, _path(kind, name))


def read_yaml(path: Path) -> Any:
    """Read a profile's YAML file."""
    import yaml

    with path.open(encoding="utf-8") as file:
        return yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def validate(data: Any, profile: type[Profile], path: Path | str) -> Profile:
    """Turn a mapping into a profile; InputError naming the file and the first bad field."""
    try:
        return profile.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or None
        raise InputError(first["msg"].removeprefix("Value error, "), file=path, field=field,
                         got=first["input"]) from None
