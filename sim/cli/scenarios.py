"""Verbs on a scenario that simulate nothing."""

from __future__ import annotations

from pathlib import Path

from sim.cli.options import Flag, Set, Source, load, print_json
from sim.errors import InputError
from sim.writing import check_place, whole_file


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
    from sim.scenario.new import TEMPLATE, new_text, next_step

    if not name.strip():
        raise InputError("expected a name of 1 to 200 printable characters", field="name", got="''")
    path = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    text = new_text(path.stem, template or TEMPLATE)
    check_place(path, field="name")
    if path.exists() and not force:
        raise InputError("exists already; --force replaces it", file=path)
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    print(next_step(path, template or TEMPLATE))


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
        print_json(json_schema())
    elif scenario is None:
        raise InputError("check needs a SCENARIO (or --schema)")
    else:
        from sim.sweep.run import check as checked

        print(dump(checked(load(scenario, set_))), end="")


def explain(scenario: Source, /, *, set_: Set = ()) -> None:
    """Closed forms only: bytes a token, pool, ceilings, break-even waits, what will bind first."""
    from sim.report import explained
    from sim.scenario.explain import explain as work_out

    explained.show(work_out(load(scenario, set_)))
