"""A page as HTML: one file that needs nothing else and asks for nothing. Every string of a file is escaped."""

import base64
import hashlib
import json
import re
from functools import singledispatch
from html import escape
from importlib.resources import files

from mlcpc.report.content import (
    Cell,
    Facts,
    Figure,
    Fold,
    Group,
    Listed,
    Numbers,
    Page,
    Panel,
    Para,
    Section,
    Table,
    Tiles,
    Verdicts,
    Words,
)
from mlcpc.report.readings import table as numbers_of
from mlcpc.report.svg import draw, spark

__all__ = ["text", "to_html"]

MARKS = {"yes": "✓", "partly": "≈", "no": "✗", "none": "–"}


def to_html(page: Page) -> str:
    """The whole file."""
    style, script = (_asset(name) for name in ("style.css", "script.js"))
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    links = "".join(f'<li><a href="#{escape(s.id)}">{text(s.short)}</a></li>' for s in page.sections if s.short)
    contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>' if links else ""
    up = f'<a href="{escape(page.back[1])}">← {text(page.back[0])}</a>' if page.back else ""
    back = f'<nav aria-label="Up">{up}</nav>' if up else ""
    top = "top small" if page.back else "top"
    lede = f'<p class="lede">{text(page.lede)}</p>' if page.lede else ""
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n',
            f"<title>{escape(page.title)}</title>\n<style>{style}</style>\n</head>\n<body>\n",
            '<a class="skip" href="#main">Skip to the content</a>\n',
            f'<div class="head">{back or contents}<button type="button" id="theme" hidden></button></div>\n',
            f'<main id="main">\n<header class="{top}"><p class="eyebrow">{text(page.eyebrow)}</p>',
            f"<h1>{text(page.title)}</h1>{lede}</header>\n",
            *(_section(section) for section in page.sections),
            f"</main>\n<footer><p>{text(page.foot)}</p></footer>\n<script>{script}</script>\n</body>\n</html>\n",
        ]
    )


def _asset(name: str) -> str:
    return (files("mlcpc.report") / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def text(content: str) -> str:
    """Escaped; the paper's subscripts set low, and in `Words` their markup."""
    shown = escape(content)
    if isinstance(content, Words):
        shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", shown)
        shown = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", shown)
        shown = re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", r'<a href="\2">\1</a>', shown)
    shown = re.sub(r"_\{([\w,]{1,8})\}", r"<sub>\1</sub>", shown)
    return re.sub(r"(?<![\w-])([JL])_([0-9.]+\d|α)", r"\1<sub>\2</sub>", shown)


def _section(section: Section) -> str:
    eyebrow = f'<p class="eyebrow">{text(section.eyebrow)}</p>' if section.eyebrow else ""
    kind = ' class="unseen"' if section.unseen else ""
    title = f"{eyebrow}<h2{kind}>{text(section.title)}</h2>"
    lead = "".join(f'<p class="lead">{text(line)}</p>' for line in section.lead)
    return f'<section id="{escape(section.id)}">{title}{lead}{_all(section.blocks)}</section>\n'


def _all(blocks: tuple[object, ...]) -> str:
    return "".join(_html(block) for block in blocks)


@singledispatch
def _html(block: object) -> str:
    raise TypeError(f"a page has no {type(block).__name__}")


@_html.register
def _(block: Para) -> str:
    tag = "h3" if block.kind == "heading" else "p"
    return f'<{tag} class="{block.kind}">{text(block.text)}</{tag}>'


@_html.register
def _(block: Listed) -> str:
    return f'<ul class="listed {block.kind}">{"".join(f"<li>{text(line)}</li>" for line in block.lines)}</ul>'


@_html.register
def _(block: Tiles) -> str:
    tiles = "".join(f"<div><dt>{text(what)}</dt><dd>{text(value)}</dd></div>" for value, what in block.items)
    return f'<dl class="tiles">{tiles}</dl>'


@_html.register
def _(block: Facts) -> str:
    rows = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in block.items)
    return (f"<h3>{text(block.caption)}</h3>" if block.caption else "") + f'<dl class="facts">{rows}</dl>'


@_html.register
def _(block: Fold) -> str:
    state = " open" if block.open else ""
    return f"<details{state}><summary>{text(block.title)}</summary>{_all(block.blocks)}</details>"


@_html.register
def _(block: Group) -> str:
    return f'<div class="{block.kind}">{"".join(f"<div>{_all(column)}</div>" for column in block.columns)}</div>'


@_html.register
def _(block: Numbers) -> str:
    badge = f'<span class="badge">{text(block.badge)}</span>' if block.badge else ""
    facts = "".join(f"<span>{text(fact)}</span>" for fact in block.facts)
    links = "".join(f'<span><a href="{escape(href)}">{text(name)}</a></span>' for name, href in block.links)
    command = f"<span><code>{escape(block.command)}</code></span>" if block.command else ""
    return f'<p class="meta">{badge}{command}{facts}{links}</p>'


@_html.register
def _(block: Verdicts) -> str:
    items = []
    for mark, claim, verdict, measured, href in block.items:
        told = f'<a href="{escape(href)}">{text(measured)}</a>' if href and measured else text(measured)
        said = f'<span class="verdict">{text(verdict)}</span>' if block.kind == "claims" else ""
        items.append(
            f'<li class="{mark}"><span class="mark" role="img" aria-label="{escape(verdict)}">{MARKS[mark]}</span>'
            f'<span class="claim">{text(claim)}</span>{said}<span class="measured">{told}</span></li>'
        )
    return f'<ul class="{block.kind}">{"".join(items)}</ul>'


@_html.register
def _(block: Table) -> str:
    left = set(block.text_columns)
    head = "".join(f'<th scope="col"{_side(i, left)}>{text(name)}</th>' for i, name in enumerate(block.columns))
    body = "".join("<tr>" + "".join(_cell(cell, i, left) for i, cell in enumerate(row)) + "</tr>" for row in block.rows)
    caption = f"<caption>{text(block.caption)}</caption>" if block.caption else ""
    note = f'<p class="note">{text(block.note)}</p>' if block.note else ""
    field = '<label class="filter" hidden>Filter <input type="search"></label>' if block.filter else ""
    name = escape(block.caption or block.columns[0])
    return (
        f'<div class="table">{field}<div class="scroll" role="group" tabindex="0" aria-label="Table: {name}"><table>'
        f"{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}</div>"
    )


def _side(i: int, left: set[int]) -> str:
    return ' class="left"' if i in left else ""


def _cell(cell: str | Cell, i: int, left: set[int]) -> str:
    cell = cell if isinstance(cell, Cell) else Cell(cell)
    kinds = " ".join(filter(None, ("left" if i in left else "", cell.tone)))
    shown = spark(cell.spark) + (f"<code>{escape(cell.text)}</code>" if cell.tone == "code" else text(cell.text))
    shown = f'<a href="{escape(cell.href)}">{shown}</a>' if cell.href else shown
    shown += f"<small>{text(cell.below)}</small>" if cell.below else ""
    tag, scope = ("th", ' scope="row"') if i == 0 else ("td", "")
    kind = f' class="{kinds}"' if kinds else ""
    return f"<{tag}{scope}{kind}>{shown}</{tag}>"


@_html.register
def _(block: Figure) -> str:
    panels = "".join(_panel(panel) for panel in block.panels)
    one = " one" if len(block.panels) == 1 else ""
    caption = f"<figcaption>{text(block.caption)}</figcaption>" if block.caption else ""
    tables = _all(tuple(numbers_of(panel) for panel in block.panels))
    behind = f'<details class="numbers"><summary>The numbers as a table</summary>{tables}</details>'
    return f'<figure class="chart{one}"><div class="panels">{panels}</div><div>{caption}{behind}</div></figure>'


def _panel(panel: Panel) -> str:
    label = ": ".join(filter(None, (panel.title, f"{panel.y.label} against {panel.x.label}")))
    drawn = draw(panel, f"{label}. The table below has the numbers.")
    keys = "".join(
        f'<li data-name="{escape(name)}"><i class="key {shape} {tone}"></i><span>{text(name)}</span></li>'
        for shape, tone, name in drawn.legend
    )
    keys = f'<ul class="legend">{keys}</ul>' if keys else ""
    title = f'<p class="title">{text(panel.title)}</p>' if panel.title else ""
    stops = escape(json.dumps(drawn.stops, ensure_ascii=False, separators=(",", ":")))
    name = escape(f"Read {panel.title or panel.y.label}, with the arrow keys")
    return (
        f'<div class="panel">{title}{keys}'
        f'<div class="plot" data-label="{name}" data-stops="{stops}">{drawn.svg}</div></div>'
    )
