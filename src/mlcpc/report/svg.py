"""A panel as SVG. Colours are classes, so that light and dark are the style sheet's; nothing here is styled inline."""

import math
from dataclasses import dataclass
from html import escape
from typing import Any

from mlcpc.report import marks
from mlcpc.report.content import Panel, Scale
from mlcpc.report.marks import CHAR, named
from mlcpc.report.readings import Readings, Value, readings
from mlcpc.report.scales import Axis, axis

__all__ = ["Drawn", "draw", "spark", "tone"]

WIDTH = 480
_TOP, _RIGHT, _BOTTOM, _ROW = 30, 14, 48, 34


@dataclass(frozen=True)
class Drawn:
    """The picture, what a pointer or the arrow keys read off it, and its legend: (shape, tone, name)."""

    svg: str
    stops: dict[str, Any]
    legend: tuple[tuple[str, str, str], ...]


def tone(kind: str, place: int, count: int) -> str:
    """One of five shades of an objective's hue.

    >>> [tone("cpc", i, 2) for i in range(2)], tone("ml_cpc", 0, 1)
    (['cpc-2', 'cpc-5'], 'ml_cpc-4')
    """
    if kind not in ("cpc", "ml_cpc"):
        return "plainly"
    first = 2 if count < 4 else 1
    return f"{kind}-{4 if count == 1 else first + round(place * (5 - first) / (count - 1))}"


def draw(panel: Panel, label: str) -> Drawn:
    """The picture of a panel; `label` says to those who cannot see it what it is."""
    across, down = _axes(panel)
    size = f"0 0 {WIDTH} {down.start + _BOTTOM:g}"
    parts = [f'<svg viewBox="{size}" role="img" aria-label="{escape(label)}">']
    parts += marks.shades(panel, across, down) + _grid(panel, across, down)
    for bar in panel.bars:
        if math.isfinite(bar.value) and bar.value > across.low:
            y, end = down(bar.row) - 9, across(min(bar.value, across.high))
            box = f'x="{across.start:g}" y="{y:.1f}" width="{end - across.start:.1f}" height="18"'
            parts.append(f'<rect class="block {bar.tone}" {box}/>')
    parts += [marks.level_line(level, across, down) for level in panel.levels]
    parts += marks.field(panel.lines, across, down) if panel.lines else []
    for dots in sorted(panel.dots, key=lambda dots: dots.shape == "ring"):
        parts += marks.dots(dots, across, down, panel.rows)
    parts += [marks.level_text(level, panel, across, down) for level in panel.levels]
    return Drawn("".join([*parts, "</svg>"]), _stops(panel, readings(panel), across, down), _legend(panel))


def _axes(panel: Panel) -> tuple[Axis, Axis]:
    xs = [x for line in panel.lines for x in line.xs] + [x for dots in panel.dots for x in dots.xs]
    ys = [y for line in panel.lines for y in line.ys] + [y for dots in panel.dots for y in dots.ys]
    xs += [bar.value for bar in panel.bars] + [level.value for level in panel.levels if level.upright]
    ys += [level.value for level in panel.levels if not level.upright]
    if panel.rows:
        xs += [x + sign * s for d in panel.dots for x, s in zip(d.xs, d.spread, strict=False) for sign in (-1, 1)]
        names = panel.y.names
        left = 14 + CHAR * min(24, max(len(name.replace("_", "")) for name in names))
        ticks = tuple((float(i), name if len(name) < 25 else f"{name[:23]}…") for i, name in enumerate(names))
        down = Axis(len(names) - 0.5, -0.5, False, 12.0 + _ROW * len(names), 12, ticks)
        return _ends(panel.x, xs, left, WIDTH - _RIGHT), down
    down = _ends(panel.y, ys, panel.height - _BOTTOM, _TOP)
    left = 12 + CHAR * max((len(text) for _, text in down.ticks), default=1)
    return _ends(panel.x, xs, left, WIDTH - _RIGHT), down


def _ends(scale: Scale, values: list[float], start: float, end: float) -> Axis:
    return axis(values, start, end, scale.log, scale.most, scale.low, scale.high)


def _grid(panel: Panel, across: Axis, down: Axis) -> list[str]:
    left, right, bottom, top = across.start, across.end, down.start, down.end
    rules = [f"M{left:.1f} {down(at):.1f}H{right:g}" for at, _ in down.ticks]
    rules += [f"M{across(at):.1f} {top:g}V{bottom:g}" for at, _ in across.ticks] if panel.rows else []
    ends = "".join(f"M{across(at):.1f} {bottom:g}v4" for at, _ in across.ticks)
    parts = [
        f'<path class="grid" d="{"".join(rules)}"/><path class="axis" d="M{left:.1f} {bottom:g}H{right:g}{ends}"/>'
    ]
    for at, text in across.ticks:
        parts.append(f'<text class="mid" x="{across(at):.1f}" y="{bottom + 19:g}">{escape(text)}</text>')
    kind = "row end" if panel.rows else "end"
    for at, text in down.ticks:
        parts.append(f'<text class="{kind}" x="{left - 8:.1f}" y="{down(at) + 4.5:.1f}">{named(text)}</text>')
    parts.append(f'<text class="end" x="{right:g}" y="{bottom + 41:g}">{named(panel.x.label)}</text>')
    if not panel.rows:
        parts.append(f'<text x="2" y="14">{named(panel.y.label)}</text>')
    return parts


def _stops(panel: Panel, read: Readings, across: Axis, down: Axis) -> dict[str, Any]:
    along, other = (down, across) if panel.rows else (across, down)

    def shown(cell: Value | None, usual: str) -> Any:
        """The text, where it is in the picture, if it is, and its tone where that is not the series' usual one."""
        if cell is None:
            return 0
        value, text, tone = cell
        return [text, round(other(value), 1) if other.holds(value) else None, *([tone] if tone != usual else [])]

    tones = [tone for _, tone in read.series]
    return {
        "rows": panel.rows,
        "box": [round(edge, 1) for edge in (across.start, across.end, down.end, down.start)],
        "series": [[name, tone] for name, tone in read.series],
        "stops": [
            [round(along(stop.at), 1), stop.title, [shown(*pair) for pair in zip(stop.values, tones, strict=True)]]
            for stop in read.stops
            if panel.rows or along.holds(stop.at)
        ],
    }


def _legend(panel: Panel) -> tuple[tuple[str, str, str], ...]:
    """One key a name; a name of many tones is grey, and what others published is one key. None for a single one."""
    keys: dict[str, tuple[str, str, str]] = {}
    for line in panel.lines:
        if line.read and keys.get(line.name, ("dash",))[0] == "dash":
            keys[line.name] = ("dash" if line.dash else "line", line.tone, line.name)
    for dots in sorted(panel.dots, key=lambda dots: dots.shape == "ring"):
        shape, colour, _ = keys.get(dots.name, ("", dots.tone, ""))
        if dots.shape == "ring":
            name = "published" if shape else dots.name
            keys.setdefault(name, ("ring", "ink" if shape else dots.tone, name))
        elif shape in ("", "dot"):
            keys[dots.name] = (dots.shape, dots.tone if dots.tone == colour else "plainly", dots.name)
    for bar in panel.bars:
        keys.setdefault(bar.name, ("block", "ink", bar.name))
    return tuple(keys.values()) if len(keys) > 1 else ()


def spark(values: tuple[float, ...]) -> str:
    """A curve of a word's size."""
    known = [value for value in values if math.isfinite(value)]
    if len(known) < 2:
        return ""
    low, high = min(known), max(known)
    step, size = 68 / (len(known) - 1), 14 / ((high - low) or 1)
    path = " ".join(f"{2 + i * step:.1f} {17 - (value - low) * size:.1f}" for i, value in enumerate(known))
    return f'<svg class="spark" viewBox="0 0 72 20" aria-hidden="true"><path d="M{path}"/></svg>'
