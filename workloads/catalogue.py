"""The library of agents that ships with the package, one YAML file each."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import ValidationError

import workloads
from sim.errors import InputError
from workloads.spec import TrajectorySpec


@lru_cache(maxsize=64)
def load(name: str) -> TrajectorySpec:
    """Return the agent called `name`.

    Raises
    ------
    InputError
        The library has no such agent.
    """
    import yaml

    names = workloads.library_names()
    if name not in names:
        raise InputError(f"is no agent of the library; known: {', '.join(names)}", field="workload.agents", got=name)
    path = workloads._library_folder() / f"{name}.yaml"
    content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    try:
        return TrajectorySpec.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(first["msg"], file=path, field=".".join(map(str, first["loc"]))) from error
