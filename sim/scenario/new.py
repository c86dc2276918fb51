"""Commented scenarios to start from."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from sim.errors import InputError

_FOLDER = Path(__file__).parent / "templates"
#: What to do first with a scenario from a template; of the others, `_NEXT`.
_FIRST = {"replay": "say in workload.agents.trace where the recorded sessions are, then kvplan run {file}"}
_NEXT = "kvplan explain {file} (what fits, by closed forms), then kvplan run {file} (simulated)"
#: The template that is taken when none is asked for.
TEMPLATE = "coding-agents"


def template_names() -> list[str]:
    """Return the names of the templates, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def new_text(name: str, template: str = TEMPLATE) -> str:
    """Return a commented scenario called `name`, from a template.

    Raises
    ------
    InputError
        There is no such template, or the name is empty or has a line break.
    """
    from sim.scenario.catalogue import suggest
    from sim.scenario.strict_yaml import dump

    if template not in template_names():
        raise InputError(f"unknown template; {suggest(template, template_names())}", field="template", got=template)
    if not name.strip() or not name.isprintable() or len(name) > 200:
        raise InputError("expected a name of 1 to 200 printable characters", field="name", got=name or "''")
    text = (_FOLDER / f"{template}.yaml").read_text(encoding="utf-8")
    line = dump({"name": name}).replace("\n", " ").strip()
    return re.sub(r"^name:.*$", lambda _: line, text, count=1, flags=re.MULTILINE)


def next_step(path: Path, template: str = TEMPLATE) -> str:
    """Return a line that says what was written to `path`, and what to do with it."""
    head = (_FOLDER / f"{template}.yaml").read_text(encoding="utf-8").partition("\n")[0]
    what = re.split(r"[.:(]", head.removeprefix("# "))[0].strip()
    file = shlex.quote(str(path))
    return f"wrote {path} ({what[:1].lower()}{what[1:]}); next: {_FIRST.get(template, _NEXT).format(file=file)}"
