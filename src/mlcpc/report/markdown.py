"""A page as Markdown: the same blocks, with each chart as its table of numbers."""

import re
from functools import singledispatch
from typing import Any

from mlcpc.report.content import (
    Cell,
    Facts,
    Figure,
    Fold,
    Group,
    Listed,
    Numbers,
    Page,
    Para,
    Section,
    Table,
    Tiles,
    Verdicts,
    Words,
)
from mlcpc.report.readings import table as numbers_of

__all__ = ["to_markdown"]

MARKS = {"yes": "✓", "partly": "≈", "no": "✗", "none": "–"}


def to_markdown(page: Page) -> str:
    """The whole file."""
    parts = [f"# {_text(page.title)}"]
    if page.back:
        parts.append(f"[← {_text(page.back[0])}]({page.back[1].replace('.html', '.md')})")
    parts += [f"*{_text(page.eyebrow)}*", _text(page.lede)]
    for section in page.sections:
        parts += _section(section)
    parts.append(_text(page.foot))
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section) -> list[str]:
    title = ": ".join(_text(part) for part in (section.eyebrow, section.title) if part)
    return [f"## {title}" if title else "", *map(_text, section.lead), *(_md(block) for block in section.blocks)]


def _text(content: str) -> str:
    """Data letter by letter: nothing in it is markup, and a line stays a line."""
    if not isinstance(content, Words):
        content = re.sub(r"([\\`*_\[\]<>|#!~$&])", r"\\\1", " ".join(content.split()))
    return re.sub(r"\\?_\{([^}]+)\}", r"<sub>\1</sub>", content)


@singledispatch
def _md(block: Any) -> str:
    raise TypeError(f"a page has no {type(block).__name__}")


@_md.register
def _(block: Para) -> str:
    if block.kind == "heading":
        return f"### {_text(block.text)}"
    return ("> " if block.kind == "warn" else "") + _text(block.text)


@_md.register
def _(block: Listed) -> str:
    return "\n".join(f"- {_text(line)}" for line in block.lines)


@_md.register
def _(block: Tiles) -> str:
    return "\n".join(f"- {_text(what)}: **{_text(value)}**" for value, what in block.items)


@_md.register
def _(block: Facts) -> str:
    title = f"### {_text(block.caption)}\n\n" if block.caption else ""
    return title + "\n".join(f"- {_text(name)}: {_text(value)}" for name, value in block.items)


@_md.register
def _(block: Fold) -> str:
    return "\n\n".join([f"### {_text(block.title)}", *(_md(inner) for inner in block.blocks)])


@_md.register
def _(block: Group) -> str:
    return "\n\n".join(_md(inner) for column in block.columns for inner in column)


@_md.register
def _(block: Numbers) -> str:
    links = [f"[{_text(name)}]({href})" for name, href in block.links]
    command = [f"`{' '.join(block.command.replace('`', ' ').split())}`"] if block.command else []
    badge = [f"**{_text(block.badge)}**"] if block.badge else []
    return " · ".join([*badge, *command, *map(_text, block.facts), *links])


@_md.register
def _(block: Verdicts) -> str:
    lines = []
    for mark, claim, verdict, measured, _ in block.items:
        told = f" ({_text(measured)})" if measured else ""
        said = f"**{_text(verdict)}**: " if block.kind == "claims" else ""
        lines.append(f"- {MARKS[mark]} {said}{_text(claim)}{told}")
    return "\n".join(lines)


@_md.register
def _(block: Table) -> str:
    left = set(block.text_columns)
    lines = [f"**{_text(block.caption)}**\n" if block.caption else ""]
    lines.append("| " + " | ".join(_text(name) for name in block.columns) + " |")
    lines.append("| " + " | ".join("---" if i in left else "---:" for i in range(len(block.columns))) + " |")
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in block.rows]
    lines += [f"\n{_text(block.note)}"] if block.note else []
    return "\n".join(lines).lstrip("\n")


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return _text(cell)
    shown = f"[{_text(cell.text)}]({cell.href.replace('.html', '.md')})" if cell.href else _text(cell.text)
    return shown + (f" ({_text(cell.below)})" if cell.below else "")


@_md.register
def _(block: Figure) -> str:
    return "\n\n".join([*(_md(numbers_of(panel)) for panel in block.panels), *filter(None, [_text(block.caption)])])
