"""Short ways to write a field, and how a mapping is laid over another one.

``retention: keep`` stands for ``retention: {policy: keep}``, ``timing: roofline`` for ``timing: {roofline: {}}``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel

from hardware_profiles import model, node
from sim.errors import InputError
from sim.policies.eviction import Eviction
from sim.policies.prediction import Prediction
from sim.policies.retention import Retention
from sim.policies.routing import Routing
from sim.policies.schedule import Schedule
from sim.records import TIERS
from sim.scenario.allocators import Allocator
from workloads import library
from workloads.catalogue import content, is_file

Path = tuple[Any, ...]


class Tagged(NamedTuple):
    """A union of mappings told apart by one field."""

    tag: str
    union: Any
    default: str | None = None

    def fields(self, name: Any) -> set[str] | None:
        """Return the fields of the member called `name`, or None if there is none."""
        for member in members(self.union):
            if name in get_args(member.model_fields[self.tag].annotation):
                return set(member.model_fields)
        return None

    def expand(self, value: Any) -> Any:
        """Return the mapping that a bare name, or a mapping without its tag, stands for."""
        if isinstance(value, str):
            return {self.tag: value}
        if self.default and isinstance(value, Mapping) and self.tag not in value:
            return {self.tag: self.default, **value}
        return value


def members(annotation: Any) -> list[type[BaseModel]]:
    """Return the pydantic models inside an annotation, in order."""
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [found for part in get_args(annotation) for found in members(part)]


ALLOCATOR = Tagged("kind", Allocator, "paged")
SCHEDULE = Tagged("policy", Schedule, "chunked")
EVICTION = Tagged("policy", Eviction, "lru")
RETENTION = Tagged("policy", Retention, "release")
ROUTING = Tagged("policy", Routing, "sticky")
PREDICTOR = Tagged("kind", Prediction, "learned")

TAGGED: dict[Path, Tagged] = {
    ("engine", "allocator"): ALLOCATOR,
    ("engine", "schedule"): SCHEDULE,
    ("engine", "prefix_cache", "eviction"): EVICTION,
    **{("tiers", name, "eviction"): EVICTION for name in TIERS},
    ("retention",): RETENTION,
    ("retention", "predictor"): PREDICTOR,
    ("routing",): ROUTING,
}

#: Mappings that hold one alternative: another key takes the place of the one there.
EXCLUSIVE: set[Path] = {("timing",), ("workload", "arrivals")}
#: What tells agents that are no spec apart.
AGENTS = ("trace", "mix")


def timing(value: Any) -> Any:
    """Let a bare name stand for the timing model with its defaults."""
    return {value: {}} if isinstance(value, str) else value


def switch(value: Any) -> Any:
    """Let true and false (or on and off, which are text) switch the prefix cache."""
    return {"enabled": value} if isinstance(value, bool | str) else value


_EXPANDERS: dict[Path, Callable[[Any], Any]] = {
    ("timing",): timing, ("engine", "prefix_cache"): switch,
    **{path: lambda value, tagged=tagged: {tagged.tag: value} if isinstance(value, str) else value  # type: ignore[misc]
       for path, tagged in TAGGED.items()},
}


def expand(value: Any, path: Path = ()) -> Any:
    """Return a copy of a raw tree in which every shorthand is written out."""
    if path in _EXPANDERS:
        value = _EXPANDERS[path](value)
    if isinstance(value, Mapping):
        return {key: expand(item, (*path, key)) for key, item in value.items()}
    return value


def complete(value: Any, path: Path = ()) -> Any:
    """Return a raw tree in which every mapping that leaves out which member of a union it is says so."""
    if path in TAGGED:
        value = TAGGED[path].expand(value)
    if isinstance(value, Mapping):
        return {key: complete(item, (*path, key)) for key, item in value.items()}
    return value


def merge(base: Any, over: Any, path: Path = ()) -> Any:
    """Lay `over` on `base`, both raw trees without shorthands, and return the result.

    Mappings merge key by key. Where `over` picks another member of a union, only the fields that this member has are
    kept from `base`; nothing is kept of agents where it names a trace or a mix and there was none. A catalogue name
    under a mapping stands for the profile of that name, the file of a spec for what it holds.
    """
    if not isinstance(over, Mapping):
        return over
    base = _opened(base, over, path)
    if not isinstance(base, Mapping):
        return dict(over)
    if path in EXCLUSIVE and not set(over) & set(base):
        return dict(over)
    tagged = TAGGED.get(path)
    if tagged is not None and tagged.tag in over and over[tagged.tag] != base.get(tagged.tag):
        fields = tagged.fields(over[tagged.tag])
        base = {key: item for key, item in base.items() if fields is None or key in fields}
    merged = dict(base)
    for key, item in over.items():
        merged[key] = merge(merged[key], item, (*path, key)) if key in merged else item
    return merged


def _opened(base: Any, over: Mapping[Any, Any], path: Path) -> Any:
    """Return `base` as something that `over` can be laid on."""
    if path in (("model",), ("hardware",)) and isinstance(base, str):
        try:
            profile: BaseModel = model(base) if path == ("model",) else node(base)
        except InputError as error:
            raise error.at(field=path[0]) from None
        return profile.model_dump(exclude_none=True)
    if path == ("workload", "agents"):
        named = next((kind for kind in AGENTS if kind in over), None)
        if named is not None:  # another kind of agents takes the place of those there
            return base if isinstance(base, Mapping) and named in base else None
        if isinstance(base, str):
            return content(FilePath(base)) if is_file(base) else library(base).model_dump(exclude_none=True)
    if isinstance(base, Mapping) or base is None or not over:
        return base
    if path[:2] == ("workload", "agents") and isinstance(base, int | float | str):
        return None  # a number that stands for a distribution
    raise InputError(f"has no field {next(iter(over))!r} to set: it is not a mapping", field=".".join(map(str, path)),
                     got=base)
