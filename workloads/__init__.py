"""What arrives: trajectory specs, arrivals, trace readers and a library of agents.

`build` turns a scenario's `workload:` section into the `Workload` that the engine pulls from; `library` and
`library_names` are the catalogue that ships with the package.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workloads.config import WorkloadConfig
    from workloads.spec import TrajectorySpec
    from workloads.trajectory import Workload

__all__ = ["build", "library", "library_names"]


def build(config: WorkloadConfig, base_dir: Path) -> Workload:
    """Return the workload that `config` describes.

    Parameters
    ----------
    config
        The `workload:` section of a scenario.
    base_dir
        Folder that the path of a trace is relative to.

    Raises
    ------
    InputError
        An unknown library name, a trace that is missing or of no known format, or arrivals that a trace cannot give.
    """
    from workloads.source import build as build_workload

    return build_workload(config, base_dir)


def library_names() -> list[str]:
    """Return the names of the agents in the library, sorted."""
    return sorted(path.stem for path in _library_folder().glob("*.yaml"))


def library(name: str) -> TrajectorySpec:
    """Return the agent called `name`; InputError for a name the library does not have."""
    from workloads.catalogue import load

    return load(name)


def _library_folder() -> Path:
    return Path(__file__).parent / "library"
