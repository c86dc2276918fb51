"""YAML without surprises, and with the line of every field.

Differs from PyYAML's safe loader: ``off``, ``on``, ``yes``, ``no``, ``12:30``, ``010`` and dates are text, ``1e6`` is a
number, and duplicate keys, tags of foreign types, merge keys and values that are not finite are errors.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sim.errors import InputError

#: Guards against files that expand without end through aliases, or nest without end.
MAX_VALUES = 200_000
MAX_DEPTH = 64
MAX_CHARACTERS = 1_000_000

_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+(?:_[0-9]+)*\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?"
                    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_NULL = re.compile(r"~|null|Null|NULL|")
#: What YAML 1.1 readers take for something else than text: never written without quotes.
_OTHERS = re.compile(r"(?:y|n|yes|no|on|off)|[-+]?[0-9][0-9_,]*(?::[0-9]+)*(?:\.[0-9]*)?|0[xob][0-9a-f_]+|=|<<"
                     r"|[0-9]{4}-[0-9]+-[0-9]+.*", re.IGNORECASE)


Path = tuple[Any, ...]
_Table = dict[Any, list[tuple[str, re.Pattern[str]]]]


def _resolvers(*more: tuple[str, re.Pattern[str], str | None]) -> _Table:
    """Return PyYAML's table of plain scalars: first character -> [(tag, pattern)]; the key None is for any."""
    table: _Table = {"": [(_TAG + "null", _NULL)]}
    rows = [("null", _NULL, "~nN"), ("bool", _BOOL, "tTfF"), ("int", _INT, "-+0123456789"),
            ("float", _FLOAT, "-+.0123456789"), *more]
    for name, pattern, first in rows:
        for character in first or [None]:
            table.setdefault(character, []).append((_TAG + name, re.compile(f"(?:{pattern.pattern})$", pattern.flags)))
    return table


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = _resolvers()


class _Dumper(yaml.SafeDumper):
    #: Text that a YAML 1.1 reader would take for something else is quoted.
    yaml_implicit_resolvers = _resolvers(("timestamp", _OTHERS, None))

    def ignore_aliases(self, data: Any) -> bool:
        """Write every value out."""
        return True


@dataclass
class Document:
    """A YAML document as plain Python values, with the line (from 1) of every field and item by path."""

    data: Any
    lines: dict[Path, int] = field(default_factory=dict)


def dump(data: Any) -> str:
    """Return plain values as YAML that `read` and any YAML 1.1 reader read back the same."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def read(text: str) -> Document:
    """Read one YAML document.

    Raises
    ------
    InputError
        With the line, when the text is no YAML or holds something that is refused.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"more than {MAX_CHARACTERS} characters of YAML")
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InputError(_syntax(error), line=mark.line + 1 if mark else None) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        raise InputError(f"character U+{code:04X} is not allowed in YAML", line=line) from None
    except RecursionError:
        raise InputError("nested too deeply") from None
    if node is None:
        return Document(None)
    reader = _Reader()
    return Document(reader.value(node, ()), reader.lines)


def _syntax(error: yaml.MarkedYAMLError) -> str:
    problem = " ".join(part for part in (error.context, error.problem) if part)
    if "'\\t'" in problem:
        problem = "a tab; indent with spaces"
    elif "expected a single document" in problem:
        problem = "more than one document"
    elif "mapping values are not allowed" in problem:
        problem = "a colon where none may be; indent alike, and quote text that holds ': '"
    return f"not valid YAML: {problem}"


class _Reader:
    """Turns PyYAML's nodes into values."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self._values = 0

    def value(self, node: Node, path: Path) -> Any:
        self._values += 1
        line = node.start_mark.line + 1
        if self._values > MAX_VALUES:
            raise InputError(f"more than {MAX_VALUES} values, aliases written out", line=line)
        if len(path) > MAX_DEPTH:
            raise InputError(f"nested more than {MAX_DEPTH} deep (or an alias that holds itself)", line=line)
        self.lines.setdefault(path, line)
        if isinstance(node, MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, ScalarNode):
            try:
                return _scalar(node)
            except InputError as error:
                raise error.at(line=line, field=dotted(path)) from None
        raise InputError("this YAML tag is not allowed", line=line, got=node.tag.replace(_TAG, "!!"))

    def _mapping(self, node: MappingNode, path: Path) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key_node, item in node.value:
            line = key_node.start_mark.line + 1
            try:
                key = _scalar(key_node) if isinstance(key_node, ScalarNode) else None
            except InputError as error:
                raise error.at(line=line) from None
            if key == "<<" and key_node.style is None:
                raise InputError("merge keys (<<) are not supported; write the fields out", line=line)
            if key is None or isinstance(key, bool):
                got = key_node.value if isinstance(key_node, ScalarNode) else "a list or mapping"
                raise InputError("a field's name must be text", line=line, got=got)
            if key in result:
                first = self.lines[(*path, key)]
                raise InputError(f"given twice, first in line {first}", line=line, field=dotted((*path, key)))
            self.lines[(*path, key)] = line
            result[key] = self.value(item, (*path, key))
        return result


def _scalar(node: ScalarNode) -> Any:
    text, tag = node.value, node.tag.removeprefix(_TAG)
    try:
        if tag == "str":
            return text
        if tag == "null" and _NULL.fullmatch(text):
            return None
        if tag == "bool" and _BOOL.fullmatch(text):
            return text.lower() == "true"
        if tag == "int":
            return int(text)
        if tag == "float":
            number = float(text.replace(".inf", "inf").replace(".nan", "nan"))
            if math.isfinite(number):
                return number
            raise InputError("expected a finite number", got=text)
    except ValueError as error:
        raise error if isinstance(error, InputError) else InputError("no such number", got=text) from None
    raise InputError("this YAML tag is not allowed", got=node.tag.replace(_TAG, "!!"))


def dotted(path: Path) -> str:
    """Return a path as a user writes it: ``tiers.dram.capacity``, ``workload.agents.tools[0].wait``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
