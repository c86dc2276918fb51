"""Agents of the library, and traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from sim.cli.options import AsJson, Flag, Output, print_json, tell

workload = App(name="workload", help="Agents in the library, and traces.")


@workload.command(name="list")
def workload_list() -> None:
    """Agents in the library."""
    from sim.report import catalogue

    catalogue.list_workloads()


@workload.command(name="show")
def workload_show(source: str, /, *, output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
                  spec: Flag = False, trajectories: int | None = None, seed: int = 0) -> None:
    """One agent: a trajectory turn by turn, its waits, and where its figures come from.

    Parameters
    ----------
    source
        The name of an agent, the file of a spec, or a trace.
    output
        A picture (.png, .svg, .pdf): the trajectory over time, its context, and the waits of all that were drawn.
    spec
        Print the spec as it is written instead.
    trajectories
        How many to draw before a typical one is chosen; 200 of an agent, all of a trace, when left out.
    seed
        Root of the random streams of an agent.
    """
    from workloads import showing

    if spec:
        print(showing.written(source), end="")
        return
    from sim.report.tables import show_rows

    shown = showing.show(source, trajectories, seed, output)
    print(shown.text)
    show_rows(shown.rows, headers=showing.HEADERS)
    if output is not None:
        tell(f"picture in {output}")


@workload.command(name="stats")
def workload_stats(source: str, /, *, trajectories: int | None = None, seed: int = 0, format: str | None = None,
                   on_error: Literal["stop", "skip"] = "stop", json: AsJson = False) -> None:
    """Turns, tokens, waits and reuse of a trace or an agent.

    Parameters
    ----------
    source
        A trace's file or folder, the name of an agent, or the file of a spec.
    trajectories
        How many to look at; all of a trace, or 200 of an agent, when left out.
    seed
        Root of the random streams of an agent.
    format
        The trace's format; guessed when left out.
    on_error
        Stop at the first bad line of a trace, or count it and skip it.
    """
    from sim.report import catalogue
    from workloads.source import named
    from workloads.stats import stats

    found, problems = named(source, trajectories=trajectories, seed=seed, format=format, on_error=on_error)
    measured = stats(found())
    if json:
        print_json({**measured, "skipped": problems.skipped})
    else:
        catalogue.show_stats(measured)
    tell(*problems.told())


@workload.command(name="convert")
def workload_convert(source: str, /, *, output: Output,
                     format: str | None = None, to: str = "kvplan", trajectories: int | None = None, seed: int = 0,
                     on_error: Literal["stop", "skip"] = "stop") -> None:
    """Write a trace, or trajectories drawn from an agent, in another format.

    Parameters
    ----------
    source
        A trace's file or folder, the name of an agent, or the file of a spec.
    output
        The file to write (a folder for kv-cache-tester).
    format
        The trace's format; guessed when left out.
    to
        The format to write; one that cannot hold what there is says so, an unknown one lists those there are.
    trajectories
        How many to write; all of a trace, or 200 of an agent, when left out.
    seed
        Root of the random streams of an agent.
    on_error
        Stop at the first bad line of a trace, or count it and skip it.
    """
    from workloads.convert import write
    from workloads.source import named

    found, problems = named(source, trajectories=trajectories, seed=seed, format=format, on_error=on_error)
    count = write(found, output, to)
    tell(f"{count:,} trajectories in {output}")
    tell(*problems.told())


@workload.command(name="fit")
def workload_fit(trace: str, /, *others: str, output: Output,
                 picture: Path | None = None, format: str | None = None, on_error: Literal["stop", "skip"] = "stop",
                 force: Flag = False) -> None:
    """Fit an agent to traces, and say how good the fit is.

    Parameters
    ----------
    trace, others
        Files or folders of traces.
    output
        The file of the spec; a scenario takes it as `workload: {agents: FILE}`.
    picture
        Where to draw quantiles against quantiles; beside the spec, as .png, when left out.
    format
        The traces' format; guessed when left out.
    on_error
        Stop at the first bad line of a trace, or count it and skip it.
    force
        Replace an existing file.
    """
    from sim.report.tables import show_rows
    from workloads.fit import command, written

    done = command.run((trace, *others), output, picture, format, on_error, force=force)
    show_rows(written.table(done.fit), headers=written.HEADERS)
    tell(*done.skipped, *([written.warning(done.fit)] if done.fit.poor else []),
         f"spec in {output}, picture in {done.picture}")
