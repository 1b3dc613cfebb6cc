"""What can be read off a chart, stop by stop: the source of its read-outs and of the table beside it."""

import math
from dataclasses import dataclass

from mlcpc.report.content import Dots, Line, Panel, Table
from mlcpc.report.scales import place, short, spread

__all__ = ["Readings", "Stop", "Value", "readings", "table"]


Value = tuple[float, str, str]
"""itself, how it is said, and its tone"""


@dataclass(frozen=True)
class Stop:
    """A place on the axis that is read along, and there each series' value, text and tone (None where it has none)."""

    at: float
    title: str
    values: tuple[Value | None, ...]


@dataclass(frozen=True)
class Readings:
    """Series by name and tone, and the stops in order."""

    series: tuple[tuple[str, str], ...]
    stops: tuple[Stop, ...]
    bracketed: bool
    """whether texts have published numbers in brackets"""


def readings(panel: Panel) -> Readings:
    """Series of one name are one, with the published numbers, which are rings, in brackets."""
    found: dict[str, tuple[str, dict[float, Value]]] = {}
    bracketed = False
    rings = []
    every: tuple[Line | Dots, ...] = (*panel.lines, *panel.dots)
    for series in every:
        if isinstance(series, Line) and not series.read:
            continue
        if isinstance(series, Dots) and series.shape == "ring":
            rings.append(series)
            continue
        _, cells = found.setdefault(series.name, (series.tone, {}))
        for at, value, sd in _points(panel, series):
            text = " ".join(filter(None, (_text(panel, value), _spread(panel, sd))))
            cells.setdefault(at, (value, text, series.tone))
    for ring in rings:
        shared = ring.name in found
        bracketed |= shared
        _, cells = found.setdefault(ring.name, (ring.tone, {}))
        for at, value, _ in _points(panel, ring):
            own = cells.get(at)
            text = _text(panel, value)
            alone = (value, f"({text})" if shared else text, ring.tone)
            cells[at] = (own[0], f"{own[1]} ({text})", own[2]) if own else alone
    for bar in panel.bars:
        _, cells = found.setdefault(bar.name, (bar.tone, {}))
        cells[bar.row] = (bar.value, _text(panel, bar.value), bar.tone)
    along = panel.y if panel.rows else panel.x
    places = sorted({at for _, cells in found.values() for at in cells})
    stops = tuple(
        Stop(
            at,
            along.names[int(at)] if along.names else (along.stop or f"{along.label} {{}}").format(short(at)),
            tuple(cells.get(at) for _, cells in found.values()),
        )
        for at in places
    )
    return Readings(tuple((name, tone) for name, (tone, _) in found.items()), stops, bracketed)


def _points(panel: Panel, series: Line | Dots) -> list[tuple[float, float, float]]:
    along, across = (series.ys, series.xs) if panel.rows else (series.xs, series.ys)
    sds = series.spread or (math.nan,) * len(along)
    rows = zip(along, across, sds, strict=True)
    return [(at, value, sd) for at, value, sd in rows if math.isfinite(at) and math.isfinite(value)]


def _text(panel: Panel, value: float) -> str:
    return short(value) if panel.digits is None else place(value, panel.digits)


def _spread(panel: Panel, sd: float) -> str:
    return spread(sd, 2 if panel.digits is None else panel.digits)


def table(panel: Panel) -> Table:
    """A row a stop, a column a series."""
    read = readings(panel)
    along = panel.y if panel.rows else panel.x
    names = tuple(name for name, _ in read.series)
    rows = tuple(
        (
            along.names[int(stop.at)] if along.names else short(stop.at),
            *(cell[1] if cell else "–" for cell in stop.values),
        )
        for stop in read.stops
    )
    note = "In brackets: published." if read.bracketed else ""
    return Table((along.label, *names), rows, panel.title, note)
