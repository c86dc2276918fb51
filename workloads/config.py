"""The `workload:` section of a scenario: which agents, and how they arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from workloads.arrivals import Arrivals
from workloads.spec import TrajectorySpec

_CONFIG = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

TraceFormat = Literal["kv-cache-tester", "mooncake", "dynamo-agentic", "kvplan", "azure", "sessions-csv", "otel-genai"]


class TraceConfig(BaseModel):
    """Agents replayed from a recording. Recorded model time is never replayed, only waits."""

    model_config = _CONFIG

    trace: Path
    """A file, or a folder of files; relative to the scenario's folder."""
    format: TraceFormat | None = None
    """None: guessed from the file."""
    on_error: Literal["stop", "skip"] = "stop"
    """A bad line stops the run, or is counted and skipped."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Read at most so many trajectories."""
    block_size: Annotated[int, Field(ge=1)] | None = None
    """Tokens a hash id covers, for a format that does not say; None: the format's usual (512)."""


def _which(agents: Any) -> str:
    """Tell a library name, a trace and an inline spec apart."""
    if isinstance(agents, str):
        return "LibraryName"
    if isinstance(agents, TraceConfig) or (isinstance(agents, dict) and "trace" in agents):
        return "TraceConfig"
    return "TrajectorySpec"


class WorkloadConfig(BaseModel):
    """Which agents arrive, and when."""

    model_config = _CONFIG

    agents: Annotated[
        Annotated[str, Tag("LibraryName")] | Annotated[TraceConfig, Tag("TraceConfig")]
        | Annotated[TrajectorySpec, Tag("TrajectorySpec")],
        Discriminator(_which),
    ]
    """A library name, a spec written in place, or ``{trace: FILE-or-FOLDER, format: NAME}``."""
    arrivals: Arrivals | None = None
    """None: a trace's own times; for a trace without, all its trajectories at once; for a spec, 16 always alive."""
