"""Tables on a terminal or in a pipe: plain text, a hundred columns, nothing cut off."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from sim.metrics import wording

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: Columns of text when the output is not a terminal.
WIDTH = 100
#: Runs that are shown side by side, a column each; more are shown a row each.
MOST_COLUMNS = 5


def console(file: IO[str] | None = None) -> Console:
    """Return a console for results: a terminal's width and style, or 100 columns of plain text in a pipe."""
    from rich.console import Console

    stream = file or sys.stdout
    terminal = stream.isatty()
    return Console(file=stream, width=None if terminal else WIDTH, highlight=False, soft_wrap=False, markup=False,
                   emoji=False, no_color=None if terminal else True)


def _table(*headers: str, title: str | None = None) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD if any(headers) else None, pad_edge=False,
                  show_header=any(headers), show_edge=False)
    for position, header in enumerate(headers):
        table.add_column(header, justify="left" if position == 0 else "right", overflow="fold")
    return table


def show_summary(title: str, summary: Mapping[str, Any], to: Console | None = None) -> None:
    """Print one run."""
    out = to or console()
    latencies = _table("latency", *wording.STATISTICS, "mean, 95 % interval")
    for label, place in wording.LATENCIES.items():
        latencies.add_row(label, *wording.latency(summary, place),
                          wording.interval(summary, ".".join([*place, "mean"])))
    facts = _table("", "")
    facts.columns[0].no_wrap = True
    facts.columns[1].justify = "left"
    for label, text in wording.facts(summary):
        facts.add_row(label, text)
    out.print(title, style="bold")
    out.print()
    out.print(latencies)
    out.print()
    out.print(facts)


def show_compared(title: str, runs: Sequence[tuple[str, Mapping[str, Any]]], to: Console | None = None) -> None:
    """Print several runs side by side, one column each; columns that do not fit go to a further table."""
    out = to or console()
    columns = [dict(wording.compared(summary)) for _, summary in runs]
    names = [name for name, _ in runs]
    first = max(len(label) for label in columns[0])
    out.print(title, style="bold")
    for group in _groups([max([len(n), *map(len, c.values())]) for n, c in zip(names, columns, strict=True)],
                         out.width - first):
        table = _table("", *(names[i] for i in group))
        table.show_header = True
        for label in columns[0]:
            table.add_row(label, *(columns[i][label] for i in group))
        out.print()
        out.print(table)


def _groups(widths: Sequence[int], room: int) -> Iterable[list[int]]:
    group: list[int] = []
    used = 0
    for number, width in enumerate(widths):
        if group and used + width + 3 > room:
            yield group
            group, used = [], 0
        group.append(number)
        used += width + 3
    if group:
        yield group


def show_rows(rows: Iterable[Sequence[Any]], *, headers: Sequence[str] = (), title: str | None = None,
              to: Console | None = None) -> None:
    """Print rows of text. Only long texts wrap; columns that do not fit go to a further table, which repeats the first.

    Where that saves a table, an interval takes two lines ("1 s to" above "2 s").
    """
    out = to or console()
    data = [[str(cell) for cell in row] for row in rows]
    count = max([len(headers), *(len(row) for row in data)])
    columns = [[*(row[i] if i < len(row) else "" for row in data)] for i in range(count)]
    heads = [headers[i] if i < len(headers) else "" for i in range(count)]
    if title:
        out.print(title, style="bold")
        out.print()
    tight = sum(max(width, len(head)) + _GAP for head, width in zip(heads, map(_least, heads, columns), strict=True)
                ) - _GAP > out.width
    if tight and sum(map(_least, heads, columns)) + _GAP * (count - 1) > out.width:
        columns = [[cell.replace(" to ", " to\n") for cell in column] for column in columns]
    for number, group in enumerate(_split([*map(_least, heads, columns)], out.width)):
        if number:
            out.print()
        out.print(_rows([heads[i] for i in group], [columns[i] for i in group], tight=tight))


#: Characters of a cell that wraps, and between two columns.
_LONG, _GAP = 28, 3


def _least(head: str, cells: Sequence[str]) -> int:
    """Return the characters a column needs: its longest line, or the longest word of a text that may wrap."""
    long = any(len(line) > _LONG for cell in cells for line in cell.split("\n"))
    parts = [part for cell in cells for part in (cell.split() if long else cell.split("\n"))]
    return max(map(len, [*parts, *head.split(), ""]))


def _split(widths: Sequence[int], room: int) -> Iterable[list[int]]:
    """Return groups of columns that fit, each with the first column."""
    group, used = [0], widths[0] if widths else 0
    for number, width in list(enumerate(widths))[1:]:
        if len(group) > 1 and used + _GAP + width > room:
            yield group
            group, used = [0], widths[0]
        group.append(number)
        used += _GAP + width
    yield group


def _rows(heads: Sequence[str], columns: Sequence[Sequence[str]], *, tight: bool) -> Table:
    """Return a table; `tight` lets heads wrap to the width of their column."""
    import textwrap

    wraps = [any(len(line) > _LONG for cell in column for line in cell.split("\n")) for column in columns]
    table = _table(*(textwrap.fill(head, max(_least(head, column), 1)) if tight and not wrap else head
                     for head, column, wrap in zip(heads, columns, wraps, strict=True)))
    for column, wrap in zip(table.columns, wraps, strict=True):
        column.justify, column.no_wrap = "left", not wrap
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    return table
