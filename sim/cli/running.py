"""Verbs that simulate: one run, many, a search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from sim.cli.options import AsJson, Flag, Jobs, RunFolder, Set, Source, print_json, tell


def run(scenario: Path, /, *, output: RunFolder = None, set_: Set = (), seed: int | None = None,
        replications: int | None = None, vary: str | None = None, json: AsJson = False, force: Flag = False) -> None:
    """Simulate a scenario and print its summary.

    Parameters
    ----------
    scenario
        The scenario's file; or the folder of an earlier run, which is run again.
    seed
        Root of all random streams, in place of the scenario's.
    replications
        Independent repetitions, in place of the scenario's.
    vary
        FIELD=A,B,C: one run for each value, with the same agents, side by side in one table; in place of the scenario's
        own vary:.
    force
        Replace an earlier run in the output folder.
    """
    from sim.report import runs

    given = {"seed": seed, "replications": replications}
    sets = [*set_, *(f"{field}={value}" for field, value in given.items() if value is not None)]
    found = runs.start(scenario, output, sets, vary, force=force)
    if json:
        print_json(found.data())
    else:
        runs.show(found)
    drawn = runs.draw(found)
    if output is not None:
        tell(f"files in {output}")
    elif drawn:
        tell(f"figure in {found.figure}")


def sweep(scenario: Path, /, *,
          output: Annotated[Path, Parameter(name=["--output", "-o"], help="Folder of the sweep.")],
          set_: Set = (), replications: int | None = None, jobs: Jobs = None,
          backend: Literal["loky", "dask", "ray"] = "loky", keep: Flag = False, retry: Flag = False,
          json: AsJson = False, force: Flag = False) -> int:
    """Run every point of a scenario's sweep; what has finished is never run again.

    Parameters
    ----------
    scenario
        The scenario's file; it needs a section sweep:.
    replications
        Independent repetitions of each point, in place of the scenario's.
    backend
        loky: processes on this machine; dask, ray: a cluster, see docs/sweeps.md.
    keep
        Keep the tables of every run too, for compare and report.
    retry
        Run again what failed before.
    force
        Go on in a folder that was started with another scenario.
    """
    from sim.report import sweeps

    result = sweeps.run(scenario, output, set_, replications=replications, jobs=jobs, backend=backend, keep=keep,
                        retry=retry, force=force)
    if json:
        print_json(sweeps.data(result))
    else:
        sweeps.show(result)
    tell(f"files in {output}")
    return 1 if result.failed == len(result.points) else 0


def size(scenario: Source, /, *, find: Literal["concurrency", "rate", "replicas"] = "concurrency", set_: Set = (),
         jobs: Jobs = None, relief: Annotated[bool, Parameter(negative="--no-relief")] = True,
         json: AsJson = False) -> None:
    """Find the largest load that meets slo:, what binds there, and what 25 % more of each resource gives.

    Parameters
    ----------
    find
        What to look for: trajectories alive, trajectories a second, or the fewest replicas.
    relief
        Search again with more of each resource; --no-relief leaves that out.
    """
    from sim.report import sizes

    result = sizes.run(scenario, find, set_, jobs=jobs, reliefs=relief)
    if json:
        print_json(result.data())
    else:
        sizes.show(result)
