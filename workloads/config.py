"""The `workload:` section of a scenario: which agents, and how they arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

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
    repeat: Annotated[int, Field(ge=1)] = 1
    """Play it so many times, one after the other (with arrivals that are given); each time with contents of its own."""
    block_size: Annotated[int, Field(ge=1)] | None = None
    """Tokens a hash id covers, for a format that does not say; None: the format's usual (512)."""


class Kind(BaseModel):
    """One kind of agent in a mix."""

    model_config = _CONFIG

    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """How often it arrives, relative to the others."""
    agents: str | TrajectorySpec
    """A library name, or a spec."""


class Mix(BaseModel):
    """Several kinds of agents that arrive in one stream; each trajectory is drawn from one of them."""

    model_config = _CONFIG

    description: str = ""
    """What it stands for, and where its numbers come from."""
    mix: Annotated[tuple[Kind, ...], Field(min_length=1)]
    """The kinds."""


def _which(agents: Any) -> str:
    """Tell a library name, a trace, a mix and a spec apart."""
    if isinstance(agents, str):
        return "LibraryName"
    for kind, key in ((TraceConfig, "trace"), (Mix, "mix")):
        if isinstance(agents, kind) or (isinstance(agents, dict) and key in agents):
            return kind.__name__
    return "TrajectorySpec"


def _from_file(agents: Any) -> Any:
    """Replace the name of a YAML file by what it holds, so that a resolved scenario stands on its own."""
    from workloads.catalogue import content, is_file

    return content(Path(agents).expanduser()) if isinstance(agents, str) and is_file(agents) else agents


class WorkloadConfig(BaseModel):
    """Which agents arrive, and when."""

    model_config = _CONFIG

    agents: Annotated[
        Annotated[str, Tag("LibraryName")] | Annotated[TraceConfig, Tag("TraceConfig")] | Annotated[Mix, Tag("Mix")]
        | Annotated[TrajectorySpec, Tag("TrajectorySpec")],
        Discriminator(_which), BeforeValidator(_from_file),
    ]
    """A library name; a spec or ``{mix: [...]}``, written in place or in a file ``NAME.yaml`` (relative to the
    scenario's folder); or a recording, ``{trace: FILE-or-FOLDER, format: NAME}``."""
    arrivals: Arrivals | None = None
    """None: a trace's own times; for a trace without, all its trajectories at once; for a spec, 16 always alive."""
