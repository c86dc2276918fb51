"""Fields that take a catalogue name or the thing itself."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Discriminator, Tag

from hardware_profiles import ModelProfile, NodeProfile, names
from sim.errors import InputError
from workloads import library_names
from workloads.config import WorkloadConfig


def suggest(value: str, known: Iterable[str]) -> str:
    """Return ``did you mean ...?`` for a name close to a known one, else the list of those known."""
    known = list(known)
    folded = {name.lower().replace("-", "_"): name for name in known}
    near = difflib.get_close_matches(value.lower().replace("-", "_"), folded, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(folded[name] for name in near)}?"
    return f"choose from {', '.join(known)}"


def _known_model(name: str) -> str:
    known = names("models")
    if name not in known:
        raise InputError(f"unknown model; {suggest(name, known)}")
    return name


def _known_node(name: str) -> str:
    known = names("nodes")
    if name not in known:
        raise InputError(f"unknown hardware; {suggest(name, known)}")
    return name


def known_agents(workload: WorkloadConfig) -> WorkloadConfig:
    """Return `workload`; InputError if its agents are a name that the library does not have."""
    known = library_names()
    if isinstance(workload.agents, str) and workload.agents not in known:
        raise InputError(f"unknown agents; {suggest(workload.agents, known)}", field="agents", got=workload.agents)
    return workload


def _form(value: Any) -> str | None:
    if isinstance(value, str):
        return "name"
    return "inline" if isinstance(value, Mapping | BaseModel) else None


_by_form = Discriminator(_form, custom_error_type="name_or_mapping",
                         custom_error_message="expected a catalogue name or a mapping of fields")

Model = Annotated[Annotated[str, AfterValidator(_known_model), Tag("name")] | Annotated[ModelProfile, Tag("inline")],
                  _by_form]
Hardware = Annotated[Annotated[str, AfterValidator(_known_node), Tag("name")] | Annotated[NodeProfile, Tag("inline")],
                     _by_form]
