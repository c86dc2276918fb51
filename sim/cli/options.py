"""What several verbs take, and how they answer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

if TYPE_CHECKING:
    from sim.scenario.model import Scenario

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Source = Annotated[Path, Parameter(help="The scenario's file.")]
Set = Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False,
                                           help="Override a field: a.b=value; repeats.")]
Output = Annotated[Path, Parameter(name=["--output", "-o"])]
RunFolder = Annotated[Path | None, Parameter(name=["--output", "-o"], help="Folder for the run's files.")]
NextTo = Annotated[Path | None, Parameter(name=["--output", "-o"],
                                          help="The file to write; by default next to FOLDER.")]
Jobs = Annotated[int | None, Parameter(validator=validators.Number(gte=1), show_default=False,
                                    help="Runs at once, 1 or more; one a core when left out.")]
AsJson = Annotated[bool, Parameter(name="--json", negative="", show_default=False,
                                   help="Print JSON instead of tables.")]


def load(path: Path, overrides: Sequence[str]) -> Scenario:
    """Return a scenario, as `sim.load` does."""
    from sim.sweep.run import load as loaded

    return loaded(path, overrides)


def tell(*lines: str) -> None:
    """Say something that is no result: on stderr."""
    for line in lines:
        print(line, file=sys.stderr)


def print_json(data: Any) -> None:
    """Print a result for a program."""
    import json

    print(json.dumps(data, indent=1))
