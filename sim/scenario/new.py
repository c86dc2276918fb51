"""Commented scenarios to start from."""

from __future__ import annotations

import re
from pathlib import Path

from sim.errors import InputError

_FOLDER = Path(__file__).parent / "templates"


def template_names() -> list[str]:
    """Return the names of the templates, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def new_text(name: str, template: str = "coding-agents") -> str:
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
