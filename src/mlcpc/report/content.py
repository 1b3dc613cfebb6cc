"""What a page is made of, before it is HTML or Markdown: plain blocks, in the order in which they are read.

A `str` is data and is shown letter by letter, whatever it holds; `Words` are ours and may use `code`, **bold** and
[links](#there).
"""

from dataclasses import dataclass

__all__ = [
    "Bar",
    "Block",
    "Cell",
    "Dots",
    "Facts",
    "Figure",
    "Fold",
    "Group",
    "Level",
    "Line",
    "Listed",
    "Numbers",
    "Page",
    "Panel",
    "Para",
    "Scale",
    "Section",
    "Table",
    "Tiles",
    "Verdicts",
    "Words",
]


class Words(str):
    """Text of ours, never of a file."""


@dataclass(frozen=True)
class Scale:
    """An axis; limits that are None come from the data."""

    label: str
    log: bool = False
    low: float | None = None
    high: float | None = None
    names: tuple[str, ...] = ()
    """rows instead of numbers: row i is at i"""
    stop: str = ""
    """how one of its values is said, such as `m = {}`"""
    most: int = 7
    """ticks, about"""


@dataclass(frozen=True)
class Line:
    """A curve; NaN is a gap."""

    name: str
    tone: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    dash: bool = False
    read: bool = True
    """whether the read-out and the table of numbers have it; otherwise it is drawn only, and faintly"""
    spread: tuple[float, ...] = ()
    """drawn as a band"""
    beyond: str = ""
    """shade what lies above it, and say so"""


@dataclass(frozen=True)
class Dots:
    """Single values, with a spread where there is one."""

    name: str
    tone: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    spread: tuple[float, ...] = ()
    shape: str = "dot"
    """dot, or ring: what others published"""
    nudge: float = 0.0
    """downwards, where two would hide each other"""


@dataclass(frozen=True)
class Bar:
    """From 0 to a value in a row, behind everything: a ceiling."""

    name: str
    tone: str
    row: int
    value: float


@dataclass(frozen=True)
class Level:
    """A line across a panel with a word on it; `x` where it stands upright."""

    text: str
    value: float
    upright: bool = False
    beyond: str = ""
    """shade what lies to the right of it, and say so"""


@dataclass(frozen=True)
class Panel:
    """One chart."""

    title: str
    x: Scale
    y: Scale
    lines: tuple[Line, ...] = ()
    dots: tuple[Dots, ...] = ()
    levels: tuple[Level, ...] = ()
    bars: tuple[Bar, ...] = ()
    digits: int | None = None
    """decimals of its numbers; None: some four significant digits"""
    height: int = 300

    @property
    def rows(self) -> bool:
        """Whether it is read row by row, rather than from left to right."""
        return bool(self.y.names)


@dataclass(frozen=True)
class Figure:
    """Panels beside each other; each is also a table of numbers."""

    panels: tuple[Panel, ...]
    caption: str = ""


@dataclass(frozen=True)
class Cell:
    """A table's cell that is more than text."""

    text: str
    href: str = ""
    tone: str = ""
    """muted, good, bad; done, open, broken: a state"""
    below: str = ""
    """a second, smaller line"""
    spark: tuple[float, ...] = ()


@dataclass(frozen=True)
class Table:
    """The first column names the row; those of which `numbers` is true stand to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    caption: str = ""
    note: str = ""
    text_columns: tuple[int, ...] = (0,)
    filter: bool = False


@dataclass(frozen=True)
class Numbers:
    """Links to files, and facts that fit into one line."""

    badge: str = ""
    facts: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    command: str = ""


@dataclass(frozen=True)
class Para:
    """A paragraph; kind: plain, note, warn, or heading."""

    text: str
    kind: str = "plain"


@dataclass(frozen=True)
class Listed:
    """Points, each a line."""

    lines: tuple[str, ...]
    kind: str = "plain"


@dataclass(frozen=True)
class Verdicts:
    """Claims, each with what became of it and what was measured: (mark, claim, verdict, measured, link).

    mark: yes, partly, no, none
    """

    items: tuple[tuple[str, str, str, str, str], ...]
    kind: str = "claims"
    """claims, or checks: the same in small"""


@dataclass(frozen=True)
class Tiles:
    """A few large numbers: (value, what it is)."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    items: tuple[tuple[str, str], ...]
    caption: str = ""


@dataclass(frozen=True)
class Fold:
    """Blocks that open on demand."""

    title: str
    blocks: tuple["Block", ...]
    open: bool = False


@dataclass(frozen=True)
class Group:
    """Blocks side by side, where there is room; `story`: numbered passages."""

    columns: tuple[tuple["Block", ...], ...]
    kind: str = "columns"


Block = Para | Listed | Figure | Table | Numbers | Verdicts | Tiles | Facts | Fold | Group


@dataclass(frozen=True)
class Section:
    """A part of a page that can be pointed to."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    eyebrow: str = ""
    """above the title: Figure 3"""
    short: str = ""
    """in the table of contents; empty: not there"""
    lead: tuple[str, ...] = ()
    """what to look at"""
    unseen: bool = False
    """a title for those who listen only"""


@dataclass(frozen=True)
class Page:
    """A whole page."""

    title: str
    eyebrow: str
    lede: str
    sections: tuple[Section, ...]
    foot: str = ""
    back: tuple[str, str] | None = None
    """text and address of a link upwards"""
