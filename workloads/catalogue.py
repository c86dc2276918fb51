"""The library of agents that ships with the package, one YAML file each."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
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
    names = workloads.library_names()
    if name not in names:
        raise InputError(f"is no agent of the library; known: {', '.join(names)}", field="workload.agents", got=name)
    path = workloads._library_folder() / f"{name}.yaml"
    try:
        return TrajectorySpec.model_validate(content(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(first["msg"], file=path, field=".".join(map(str, first["loc"]))) from error


def is_file(agents: str) -> bool:
    """Return whether agents are given by the file of a spec or a mix, not by their name in the library."""
    return agents.lower().endswith((".yaml", ".yml"))


def content(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file that holds a spec or a mix.

    Raises
    ------
    InputError
        There is no such file, it is no YAML, or it holds something else.
    """
    import yaml

    try:
        found = yaml.safe_load(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=path) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        raise InputError(f"is no YAML: {getattr(error, 'problem', None) or 'cannot be parsed'}", file=path,
                         line=None if mark is None else mark.line + 1) from None
    if not isinstance(found, dict) or "trace" in found:
        raise InputError("expected the fields of a spec, or a mix", file=path)
    return found
