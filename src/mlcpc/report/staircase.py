"""Figure 3: what is reported while the truth climbs; as plateaus, as one stair, and as the climb itself."""

import math
from typing import Any

from mlcpc.report.content import Bar, Block, Dots, Figure, Level, Line, Panel, Scale
from mlcpc.report.figures import NAMES, called
from mlcpc.report.gather import Evidence, Sheet, Unusable, as_dict, dicts
from mlcpc.report.scales import number
from mlcpc.report.svg import tone

__all__ = ["climb", "figure3", "headline"]

Row = dict[str, str]


def figure3(evidence: Evidence) -> list[Block]:
    """Estimate against truth: a panel a critic and objective, a line an α, the published plateaus as diamonds."""
    sheet = _sheet(evidence)
    top = max(number(row[name]) for row in sheet.rows for name in ("plateau_mean", "mi_true"))
    batch = number(as_dict(evidence.facts.get("config")).get("batch"))
    log_m = (Level(f"log m = {math.log(batch):.2f}", math.log(batch)),) if batch > 1 else ()
    panels = [
        _panel(critic, objective, mine, min(top, 50), log_m)
        for critic in dict.fromkeys(row["critic"] for row in sheet.rows)
        for objective in NAMES
        if (mine := [row for row in sheet.rows if (row["critic"], row["objective"]) == (critic, objective)])
    ]
    caption = (
        "Each point is the mean of a stair's last quarter, its band the standard deviation of one batch; diamonds are "
        "the paper's, read off its figure. Solid: guaranteed. Dashed: not. In the shaded corner an estimate claims "
        "more than there is."
    )
    return [Figure(tuple(panels), caption)]


def _sheet(evidence: Evidence) -> Sheet:
    """Rows whose numbers are numbers."""
    sheet = evidence.sheet("figure3")
    needed = ("alpha", "mi_true", "plateau_mean", "plateau_std", "ceiling")
    sheet.need("critic", "objective", "lower_bound", "published_mean", *needed)
    rows = tuple(row for row in sheet.rows if all(math.isfinite(number(row[name])) for name in needed))
    if not rows:
        raise Unusable(f"{sheet.name} has no row of numbers")
    return Sheet(sheet.name, sheet.columns, rows)


def _panel(critic: str, objective: str, rows: list[Row], top: float, levels: tuple[Level, ...]) -> Panel:
    alphas = sorted({number(row["alpha"]) for row in rows}, reverse=True)
    truth = tuple(sorted({number(row["mi_true"]) for row in rows}))
    room = 0.05 * (truth[-1] - truth[0]) or 1.0
    ends = (truth[0] - room, truth[-1] + room)
    lines = [Line("truth", "ink", ends, ends, read=False, beyond="more than there is")]
    dots = []
    for i, alpha in enumerate(alphas):
        some = sorted((row for row in rows if number(row["alpha"]) == alpha), key=lambda row: number(row["mi_true"]))
        colour, name = tone(objective, i, len(alphas)), called(objective, alpha)
        xs, means, sds, theirs = (
            tuple(number(row[key]) for row in some)
            for key in ("mi_true", "plateau_mean", "plateau_std", "published_mean")
        )
        safe = all(row["lower_bound"] == "True" for row in some)
        lines.append(Line(name, colour, xs, means, dash=not safe, spread=sds))
        dots.append(Dots(name, colour, xs, means))
        if any(map(math.isfinite, theirs)):
            dots.append(Dots(name, colour, xs, theirs, shape="ring"))
    across = Scale("true mutual information, nats", low=ends[0], high=ends[1], stop="{} nats")
    down = Scale("estimate, nats", low=0, high=math.ceil(top))
    title = f"{NAMES[objective]}, {critic} critic"
    return Panel(title, across, down, tuple(lines), tuple(dots), levels, digits=2, height=340)


def headline(evidence: Evidence) -> Figure:
    """The last stair alone: each objective's ceiling, and what it reports."""
    sheet = _sheet(evidence)
    critic, last = sheet.rows[-1]["critic"], max(number(row["mi_true"]) for row in sheet.rows)
    rows = [row for row in sheet.rows if row["critic"] == critic and number(row["mi_true"]) == last]
    rows.sort(key=lambda row: (row["objective"], -number(row["alpha"])))
    names = tuple(f"{NAMES.get(row['objective'], row['objective'])}, α = {number(row['alpha']):.2g}" for row in rows)
    tones = []
    for row in rows:
        same = [other for other in rows if other["objective"] == row["objective"]]
        tones.append(tone(row["objective"], same.index(row), len(same)))
    each = list(enumerate(zip(rows, tones, strict=True)))
    bars = tuple(Bar("its ceiling", colour, i, number(row["ceiling"])) for i, (row, colour) in each)
    dots = [
        Dots("reported here", colour, (number(row["plateau_mean"]),), (float(i),), (number(row["plateau_std"]),))
        for i, (row, colour) in each
    ]
    theirs = [(number(row["published_mean"]), float(i)) for i, (row, _) in each]
    known = [point for point in theirs if math.isfinite(point[0])]
    if known:
        dots.append(Dots("published", "ink", tuple(x for x, _ in known), tuple(y for _, y in known), shape="ring"))
    panel = Panel(
        f"What each reports when there are {last:g} nats",
        Scale("nats", low=0, stop="{} nats"),
        Scale("objective", names=names),
        (),
        tuple(dots),
        (Level("the truth", last, upright=True, beyond="more than there is"),),
        bars,
        digits=2,
    )
    caption = f"From Figure 3, {critic} critic, {evidence.scale} scale. Shaded: more than there is."
    return Figure((panel,), caption)


def climb(result: dict[str, Any]) -> Figure | None:
    """The climb itself, of a staircase run's result: running means, with the truth's stairs."""
    config = as_dict(result.get("config"))
    levels = config.get("levels")
    stairs = [number(level) for level in levels] if isinstance(levels, list) else []
    steps = number(config.get("steps"))
    methods = [
        m for m in dicts(result.get("methods")) if isinstance(m.get("smooth"), list) and number(m.get("window")) > 0
    ]
    if not stairs or not steps > 0:
        return None
    panels = []
    for critic in dict.fromkeys(str(m.get("critic")) for m in methods):
        for objective, name in NAMES.items():
            mine = [m for m in methods if (str(m.get("critic")), m.get("objective")) == (critic, objective)]
            if mine:
                across = Scale("update", low=0, high=steps * len(stairs), stop="update {}", most=5)
                lines = [_truth(stairs, steps), *_curves(mine, objective)]
                panels.append(
                    Panel(f"{name}, {critic} critic", across, Scale("estimate, nats"), tuple(lines), digits=2)
                )
    caption = "Running means of the estimates on new batches, while the truth (thin) climbs. Dashed: no guarantee."
    return Figure(tuple(panels), caption) if panels else None


def _curves(methods: list[dict[str, Any]], objective: str) -> list[Line]:
    lines = []
    for i, m in enumerate(methods):
        window = number(m["window"])
        hop = max(1.0, window // 2)
        xs = tuple(window / 2 + hop * j for j in range(len(m["smooth"])))
        ys = tuple(map(number, m["smooth"]))
        name, safe = called(objective, number(m.get("alpha"))), m.get("lower_bound") is True
        lines.append(Line(name, tone(objective, i, len(methods)), xs, ys, dash=not safe))
    return lines


def _truth(levels: list[float], steps: float) -> Line:
    xs = tuple(x for i in range(len(levels)) for x in (i * steps, (i + 1) * steps))
    return Line("truth", "ink", xs, tuple(v for v in levels for _ in range(2)), read=False)
