"""The command ``kvplan``: verbs only. Each says what it takes and hands over to the package."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter

from sim.errors import InputError

if TYPE_CHECKING:
    from sim.scenario.model import Scenario

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Source = Annotated[Path, Parameter(help="The scenario's file.")]
Set = Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False,
                                           help="Override a field: a.b=value; repeats.")]
Out = Annotated[Path | None, Parameter(name=["--output", "-o"], help="Folder for the run's files.")]
File = Annotated[Path | None, Parameter(name=["--output", "-o"], help="The file to write; by default next to FOLDER.")]
AsJson = Annotated[bool, Parameter(name="--json", negative="", show_default=False,
                                   help="Print JSON instead of tables.")]


def _version() -> str:
    from sim.sweep.provenance import version

    return version()


app = App(name="kvplan", version=_version, help_format="plaintext", result_action="return_value",
          suppress_keyboard_interrupt=False,
          help="How many agent trajectories a pool of accelerators holds, at which latency and cost.")
hardware = App(name="hardware", help="Nodes and GPUs in the catalogue.")
model = App(name="model", help="Models in the catalogue.")
workload = App(name="workload", help="Agents in the library, and traces.")
for group in (hardware, model, workload):
    app.command(group)
# By name: nothing of it is imported until it is asked for, and the simulator itself never needs it.
app.command("calibrate.app:app", name="calibrate", help="Measure a GPU, fit what was measured, show the error.")


@app.command
def new(name: str, /, *, template: str | None = None, force: Flag = False) -> None:
    """Write a commented scenario.

    Parameters
    ----------
    name
        What it is called; written to NAME.yaml.
    template
        What it starts from; an unknown name lists those there are.
    force
        Replace an existing file.
    """
    from sim.scenario import new_text

    path = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    text = new_text(path.stem, template) if template else new_text(path.stem)
    if path.exists() and not force:
        raise InputError("exists already; --force replaces it", file=path)
    path.write_text(text, encoding="utf-8")
    print(path)


@app.command
def check(scenario: Path | None = None, /, *, set_: Set = (),
          schema: Flag = False) -> None:
    """Validate a scenario and print it with every field filled in.

    Parameters
    ----------
    scenario
        The scenario's file.
    schema
        Print the JSON Schema of scenarios instead.
    """
    from sim.scenario import dump, json_schema

    if schema:
        _print_json(json_schema())
    elif scenario is None:
        raise InputError("check needs a SCENARIO (or --schema)")
    else:
        from sim.sweep.run import check as checked

        print(dump(checked(_load(scenario, set_))), end="")


@app.command
def explain(scenario: Source, /, *, set_: Set = ()) -> None:
    """Closed forms only: bytes a token, pool, ceilings, break-even waits, what will bind first."""
    from sim.report import explained
    from sim.scenario.explain import explain as work_out

    explained.show(work_out(_load(scenario, set_)))


@app.command
def run(scenario: Path, /, *, output: Out = None, set_: Set = (), seed: int | None = None,
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
        FIELD=A,B,C: one run for each value, with the same agents, side by side in one table.
    force
        Replace an earlier run in the output folder.
    """
    from sim.report import runs

    given = {"seed": seed, "replications": replications}
    sets = [*set_, *(f"{field}={value}" for field, value in given.items() if value is not None)]
    if vary is None:
        found = runs.one(scenario, output, sets, force=force)
    else:
        found = runs.varied(scenario, output, sets, vary, force=force)
    if json:
        _print_json(found.data())
    else:
        runs.show(found)
    if output is not None:
        print(f"files in {output}", file=sys.stderr)


@app.command
def sweep(scenario: Path, /, *,
          output: Annotated[Path, Parameter(name=["--output", "-o"], help="Folder of the sweep.")],
          set_: Set = (), replications: int | None = None, jobs: int | None = None,
          backend: Literal["loky", "dask", "ray"] = "loky", keep: Flag = False, retry: Flag = False,
          json: AsJson = False, force: Flag = False) -> int:
    """Run every point of a scenario's sweep; what has finished is never run again.

    Parameters
    ----------
    scenario
        The scenario's file; it needs a section sweep:.
    replications
        Independent repetitions of each point, in place of the scenario's.
    jobs
        Runs at once; one a core when left out.
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
        _print_json(sweeps.data(result))
    else:
        sweeps.show(result)
    print(f"files in {output}", file=sys.stderr)
    return 1 if result.failed == len(result.points) else 0


@app.command
def size(scenario: Source, /, *, find: Literal["concurrency", "rate", "replicas"] = "concurrency", set_: Set = (),
         jobs: int | None = None, relief: Annotated[bool, Parameter(negative="--no-relief")] = True,
         json: AsJson = False) -> None:
    """Find the largest load that meets slo:, what binds there, and what 25 % more of each resource gives.

    Parameters
    ----------
    find
        What to look for: trajectories alive, trajectories a second, or the fewest replicas.
    jobs
        Runs at once; one a core when left out.
    relief
        Search again with more of each resource; --no-relief leaves that out.
    """
    from sim.report import sizes

    result = sizes.run(scenario, find, set_, jobs=jobs, reliefs=relief)
    if json:
        _print_json(result.data())
    else:
        sizes.show(result)


@app.command
def bill(folder: Path, /, *, price: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
         ttl: str | None = None, json: AsJson = False) -> None:
    """What a run's trajectories cost, here and at providers that cache prompts.

    Parameters
    ----------
    folder
        Folder of a run.
    price
        A model with a price; repeats; all of them when left out.
    ttl
        Time to live of what is cached, like '1 h', where the provider sells several.
    """
    from sim.report import bills

    found = bills.of_run(folder, price, ttl)
    if json:
        _print_json(bills.data(found))
    else:
        bills.show(found)


@app.command
def compare(first: Path, /, *others: Path, json: AsJson = False) -> None:
    """Runs side by side, and the differences to the first where they served the same agents.

    Parameters
    ----------
    first, others
        Folders of runs.
    """
    from sim.report import compare as comparing

    if not others:
        raise InputError("compare needs two folders or more")
    comparison = comparing.compare([first, *others])
    if json:
        _print_json(comparison.data())
    else:
        comparing.show(comparison)


@app.command
def report(folder: Path, /, *, output: File = None) -> None:
    """Write one self-contained HTML file: figures, tables, what binds and why.

    Parameters
    ----------
    folder
        The folder of a run or of a sweep.
    """
    from sim.report import html

    print(html.report(folder, output))


@app.command
def trace(folder: Path, /, *, output: File = None, limit: int = 300, replication: int = 0) -> None:
    """Write a run as Chrome-trace JSON, which ui.perfetto.dev opens.

    Parameters
    ----------
    folder
        The folder of a run.
    limit
        Trajectories drawn, the first to arrive; 0 for all. Counters are always of the whole run.
    replication
        Which repetition.
    """
    from sim.report import trace as tracing

    written = tracing.trace(folder, output, limit=limit, replication=replication)
    left = f", {written.left_out:,} left out (--limit 0 draws all)" if written.left_out else ""
    print(f"{written.events:,} events, {written.trajectories:,} trajectories{left}", file=sys.stderr)
    print(written.path)


@hardware.command(name="list")
def hardware_list() -> None:
    """Nodes and GPUs in the catalogue."""
    from sim.report import catalogue

    catalogue.list_hardware()


@hardware.command(name="show")
def hardware_show(name: str, /) -> None:
    """One node or GPU, with the source of each figure."""
    from sim.report import catalogue

    catalogue.show_hardware(name)


@model.command(name="list")
def model_list() -> None:
    """Models in the catalogue."""
    from sim.report import catalogue

    catalogue.list_models()


@model.command(name="show")
def model_show(name: str, /) -> None:
    """One model's geometry, with its source."""
    from sim.report import catalogue

    catalogue.show_model(name)


@model.command(name="import")
def model_import(file: Path, /) -> None:
    """Print the profile of a model from its Hugging Face config.json."""
    from sim.report import catalogue

    catalogue.import_model(file)


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
        print(f"picture in {output}", file=sys.stderr)


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
        _print_json({**measured, "skipped": problems.skipped})
    else:
        catalogue.show_stats(measured)
    _tell(problems.told())


@workload.command(name="convert")
def workload_convert(source: str, /, *, output: Annotated[Path, Parameter(name=["--output", "-o"])],
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
    print(f"{count:,} trajectories in {output}", file=sys.stderr)
    _tell(problems.told())


@workload.command(name="fit")
def workload_fit(trace: str, /, *others: str, output: Annotated[Path, Parameter(name=["--output", "-o"])],
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
    _tell([*done.skipped, *([written.warning(done.fit)] if done.fit.poor else []),
           f"spec in {output}, picture in {done.picture}"])


@app.command
def version() -> None:
    """Print the version."""
    print(_version())


def _load(path: Path, overrides: Sequence[str]) -> Scenario:
    from sim.sweep.run import load

    return load(path, overrides)


def _tell(lines: Sequence[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)


def _print_json(data: Any) -> None:
    import json

    print(json.dumps(data, indent=1))


def _fail(text: object, status: int) -> int:
    print(f"kvplan: {text}", file=sys.stderr)
    return status


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its status: 0 fine, 1 the run failed, 2 bad input, 130 interrupted."""
    status = 0
    try:
        status = app(arguments, exit_on_error=False, print_error=False) or 0
        sys.stdout.flush()
    except CycloptsError as error:
        status = _fail(error, 2)
    except InputError as error:
        print(error, file=sys.stderr)
        status = 2
    except KeyboardInterrupt:
        status = _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader has gone (`kvplan ... | head`): nothing more to say, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except OSError as error:
        status = _fail(error, 1)
    raise SystemExit(status)
