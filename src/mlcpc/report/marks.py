"""What stands in a chart's field: lines with their bands, dots with their spreads, levels and what lies beyond them."""

import math
import re
from html import escape
from itertools import pairwise

from mlcpc.report.content import Dots, Level, Line, Panel
from mlcpc.report.scales import Axis

__all__ = ["CHAR", "dots", "field", "level_line", "level_text", "line", "named", "shades"]

CHAR = 8.3
"""width of a letter in units of the picture, on a phone, where text is larger"""


def named(text: str) -> str:
    """Escaped, with the paper's subscripts set low: J_0.05."""
    low = r'\1<tspan class="sub" dy="3">\2</tspan><tspan dy="-3">&#8203;</tspan>'
    return re.sub(r"(?<![\w-])([JL])_([0-9.]+\d)", low, escape(text))


def field(lines: tuple[Line, ...], across: Axis, down: Axis) -> list[str]:
    """All curves, faint ones first; what leaves the field is cut off."""
    x, y, width, height = across.start - 3, down.end - 3, across.end - across.start + 6, down.start - down.end + 6
    size = f'x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height:.1f}"'
    drawn = [part for each in sorted(lines, key=lambda each: each.read) for part in line(each, across, down)]
    return [f'<svg {size} viewBox="{x:.1f} {y:g} {width:.1f} {height:.1f}">', *drawn, "</svg>"]


def line(line: Line, across: Axis, down: Axis) -> list[str]:
    """A curve, broken where it has no number; a point without neighbours is a small dot."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(line.xs, line.ys, strict=True):
        if across.holds(x) and math.isfinite(y):
            runs[-1].append((across(x), min(max(down(y), -9999), 9999)))
        elif runs[-1]:
            runs.append([])
    path = "".join("M" + " ".join(f"{x:.1f} {y:.1f}" for x, y in run) for run in runs if run)
    if not path:
        return []
    kind = "line" + (" dash" if line.dash else "") + ("" if line.read else " faint")
    alone = "".join(f'<circle cx="{run[0][0]:.1f}" cy="{run[0][1]:.1f}" r="2"/>' for run in runs if len(run) == 1)
    band = _band(line, across, down)
    name = f'<g class="series {line.tone}" data-name="{escape(line.name)}">'
    return [f'{name}{band}<path class="{kind}" d="{path}"/>{alone}</g>']


def _band(line: Line, across: Axis, down: Axis) -> str:
    rows = [
        (across(x), down(y + s), down(y - s))
        for x, y, s in zip(line.xs, line.ys, line.spread, strict=False)
        if across.holds(x) and math.isfinite(y) and math.isfinite(s)
    ]
    if len(rows) < 2:
        return ""
    edge = [(x, above) for x, above, _ in rows] + [(x, below) for x, _, below in reversed(rows)]
    return f'<path class="band" d="M{" ".join(f"{x:.1f} {y:.1f}" for x, y in edge)}Z"/>'


def dots(dots: Dots, across: Axis, down: Axis, rows: bool) -> list[str]:
    """Marks; in rows they are larger, and their spreads lie along the row."""
    parts = [f'<g class="series {dots.tone}" data-name="{escape(dots.name)}">']
    spreads = dots.spread or (math.nan,) * len(dots.xs)
    for x, y, s in zip(dots.xs, dots.ys, spreads, strict=True):
        if not (across.holds(x) and math.isfinite(y) and (rows or down.holds(y))):
            continue
        px, py = across(x), down(y) + dots.nudge
        if math.isfinite(s) and rows:
            parts.append(f'<path class="spread" d="M{across(x - s):.1f} {py:.1f}H{across(x + s):.1f}"/>')
        elif math.isfinite(s):
            parts.append(f'<path class="spread" d="M{px:.1f} {down(y - s):.1f}V{down(y + s):.1f}"/>')
        parts.append(_mark(dots.shape, px, py, 1.0 if rows else 0.75))
    return [*parts, "</g>"]


def _mark(shape: str, x: float, y: float, size: float) -> str:
    if shape == "ring":
        h = f"{7 * size:g}"
        return f'<path class="ring" d="M{x:.1f} {y - 7 * size:.1f}l{h} {h}l-{h} {h}l-{h} -{h}Z"/>'
    return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{4.5 * size:g}"/>'


def shades(panel: Panel, across: Axis, down: Axis) -> list[str]:
    """What is beyond a level, or above a line, behind everything."""
    parts = []
    for level in panel.levels:
        if level.beyond and level.upright and across.holds(level.value):
            x = across(level.value)
            size = f'width="{across.end - x:.1f}" height="{down.start - down.end:.1f}"'
            parts.append(f'<rect class="beyond" x="{x:.1f}" y="{down.end:g}" {size}/>')
    for each in panel.lines:
        if each.beyond:
            points = [(across(x), max(down(y), down.end)) for x, y in zip(each.xs, each.ys, strict=True)]
            first, last = points[0][0], points[-1][0]
            path = " ".join(f"{x:.1f} {y:.1f}" for x, y in points)
            parts.append(f'<path class="beyond" d="M{first:.1f} {down.end:g}L{path}L{last:.1f} {down.end:g}Z"/>')
            at = f'x="{across.start + 10:.1f}" y="{down.end + 17:g}"'
            parts.append(f'<text class="over" {at}>{escape(each.beyond)}</text>')
    return parts


def level_line(level: Level, across: Axis, down: Axis) -> str:
    """From end to end."""
    if not (across if level.upright else down).holds(level.value):
        return ""
    if level.upright:
        return f'<path class="level" d="M{across(level.value):.1f} {down.end:g}V{down.start:g}"/>'
    return f'<path class="level" d="M{across.start:.1f} {down(level.value):.1f}H{across.end:g}"/>'


def level_text(level: Level, panel: Panel, across: Axis, down: Axis) -> str:
    """At the end of the line where fewer curves are in the way."""
    if not level.text or not (across if level.upright else down).holds(level.value):
        return ""
    if level.upright:
        return f'<text class="says mid" x="{across(level.value):.1f}" y="{down.end - 4:g}">{named(level.text)}</text>'
    y, width = down(level.value) - 5, CHAR * len(level.text)
    near = [x for line in panel.lines for x, py in _along(line, across, down) if y - 13 < py < y + 2]
    left, right = sum(x < across.start + width for x in near), sum(x > across.end - width for x in near)
    if left < right:
        return f'<text class="says" x="{across.start + 6:.1f}" y="{y:.1f}">{named(level.text)}</text>'
    return f'<text class="says end" x="{across.end - 2:g}" y="{y:.1f}">{named(level.text)}</text>'


def _along(line: Line, across: Axis, down: Axis) -> list[tuple[float, float]]:
    """Points of a curve, near enough to each other to see what it meets."""
    known = [(across(x), down(y)) for x, y in zip(line.xs, line.ys, strict=True) if across.holds(x) and down.holds(y)]
    return [(a + (c - a) * i / 8, b + (d - b) * i / 8) for (a, b), (c, d) in pairwise(known) for i in range(9)]
