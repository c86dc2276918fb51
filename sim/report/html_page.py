"""A page as data: sections of sentences, figures, tables and code; one template turns it into one HTML file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure in large type; `mood` is ``good``, ``bad`` or empty."""

    label: str
    value: str
    note: str = ""
    mood: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence; `mood` is ``first``, ``bad`` or empty."""

    topic: str
    text: str
    mood: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: its text, what it sorts by (its text when None), and a share that a bar shows."""

    text: str
    key: float | str | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a section; `kind` says which of the template's it is."""

    kind: str
    items: Sequence[Any] = ()
    caption: str = ""
    head: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    words: Sequence[int] = (0,)
    text: str = ""
    open: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of the page."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """What links point to."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")


@dataclass(slots=True)
class Page:
    """The whole."""

    title: str
    subtitle: str
    footer: str = ""
    tiles: list[Tile] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)

    def add(self, title: str, *blocks: Block) -> None:
        """Add a section, unless it holds nothing."""
        kept = [block for block in blocks if block.items or block.rows or block.text]
        if kept:
            self.sections.append(Section(title, kept))


def sentences(items: Iterable[Said]) -> Block:
    """Return sentences as a block."""
    return Block("sentences", items=list(items))


def table(head: Sequence[str], rows: Iterable[Sequence[Cell | str]], caption: str = "",
          words: Sequence[int] = (0,)) -> Block:
    """Return a table that sorts by its columns; `words` are the columns that hold text."""
    made = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    return Block("table", caption=caption, head=head, rows=made, words=words)


def side_by_side(tables: Iterable[Block]) -> Block:
    """Return small tables next to each other; empty ones are left out."""
    return Block("tables", items=[one for one in tables if one.rows])


def code(text: str, caption: str, *, opened: bool = False) -> Block:
    """Return text in a fixed width that opens on a click."""
    return Block("code", text=text, caption=caption, open=opened)


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture and what it says."""

    svg: str
    caption: str


class Sketchbook:
    """Draws figures for a page; ids are made unique within it."""

    def __init__(self) -> None:
        self._count = 0

    def draw(self, function: Any, caption: str, *args: Any, width: float = 6.8, height: float = 3.3,
             **options: Any) -> Figure:
        """Return the figure that ``function(*args, ax=ax, **options)`` draws."""
        from sim.report.plots import style

        figure, ax = style.figure(width, height)
        with style.context():
            drawn: Axes = function(*args, ax=ax, **options)
        title = drawn.get_title(loc="left") or drawn.get_title()
        return Figure(self._own(style.svg(figure), title or caption), caption)

    def _own(self, svg: str, title: str) -> str:
        import html

        self._count += 1
        prefix = f"f{self._count}-"
        svg = re.sub(r'\bid="', f'id="{prefix}', svg)
        svg = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\g<1>{prefix}", svg)
        return svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(title, quote=True)}" ', 1)


def render(page: Page) -> str:
    """Return the page as one HTML document that asks the network for nothing."""
    import jinja2

    environment = jinja2.Environment(loader=jinja2.PackageLoader("sim.report"), autoescape=True, trim_blocks=False,
                                     undefined=jinja2.StrictUndefined)
    return environment.get_template("page.html.j2").render(page=page) + "\n"
