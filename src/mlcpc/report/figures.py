"""The paper's figures, each from the CSV of its results: the curves here, and the published ones where known."""

import math
from collections.abc import Sequence
from statistics import fmean

from mlcpc.distill.pairs import PAIRS
from mlcpc.objectives import label
from mlcpc.report.content import Block, Cell, Dots, Figure, Level, Line, Panel, Scale, Table
from mlcpc.report.gather import Evidence, Unusable
from mlcpc.report.scales import number, place, signed, spread
from mlcpc.report.svg import tone
from mlcpc.reproduce import timing

__all__ = ["NAMES", "called", "figure1", "figure2", "figure4", "method_tone", "times"]

NAMES = {"cpc": "CPC", "ml_cpc": "ML-CPC"}
EXAMPLE = (3.0, 0.5, 0.7174)
"""m = n, α and L_α of the paper's Example 1: the one number that it prints of this setting"""
CANDIDATES = Scale("candidates m (and pairs n = m)", log=True, stop="m = {}")
Row = dict[str, str]


def called(objective: str, alpha: float) -> str:
    """As the paper does: L_1.0, J_0.01; an α of the guarantee's end is shortened.

    >>> called("cpc", 1.0), called("ml_cpc", 128 / 16257)
    ('L_1.0', 'J_0.00787')
    """
    return label(objective, f"{alpha:.3g}") if objective in NAMES and math.isfinite(alpha) else objective


def figure1(evidence: Evidence) -> list[Block]:
    """A panel an objective, a line an α; dashed without a guarantee."""
    sheet = evidence.sheet("figure1")
    sheet.need("objective", "n", "alpha", "alpha_is_min", "mean", "lower_bound", "truth")
    truth = number(sheet.rows[0]["truth"])
    panels = []
    for objective, name in NAMES.items():
        mine = [row for row in sheet.rows if row["objective"] == objective]
        fixed = sorted({number(r["alpha"]) for r in mine if r["alpha_is_min"] != "True"}, reverse=True)
        lines: list[Line] = []
        for i, alpha in enumerate(fixed):
            some = [r for r in mine if r["alpha_is_min"] != "True" and number(r["alpha"]) == alpha]
            lines += _guaranteed(called(objective, alpha), tone(objective, i, len(fixed) + 1), some)
        least = [row for row in mine if row["alpha_is_min"] == "True"]
        text = {"cpc": "L at that α", "ml_cpc": "J, smallest safe α"}[objective]
        lines += _guaranteed(text, tone(objective, len(fixed), len(fixed) + 1), least)
        m, alpha, value = EXAMPLE
        printed: tuple[Dots, ...] = ()
        if objective == "cpc" and alpha in fixed:
            colour = tone(objective, fixed.index(alpha), len(fixed) + 1)
            printed = (Dots(called(objective, alpha), colour, (m,), (value,), shape="ring"),)
        level = Level(f"truth: log 2 = {truth:.3f}", truth)
        panels.append(Panel(name, CANDIDATES, Scale("nats", low=0.3, high=1.1), tuple(lines), printed, (level,)))
    caption = (
        "What the best critic reports of a fair coin and its copy, which share log 2 nats, by batch size. Solid lines "
        "have the guarantee, dashed ones do not. The diamond is the one number that the paper prints, its Example 1."
    )
    return [Figure(tuple(panels), caption)]


def _guaranteed(name: str, colour: str, rows: list[Row]) -> list[Line]:
    """Solid where the theorem holds, dashed elsewhere, and no gap between them."""
    safe = [row["lower_bound"] == "True" for row in rows]
    xs, values = tuple(number(row["n"]) for row in rows), [number(row["mean"]) for row in rows]
    lines = []
    for want in (True, False):
        kept = [s == want or (not want and not all(safe[max(0, i - 1) : i + 2])) for i, s in enumerate(safe)]
        if any(kept):
            ys = tuple(v if k else math.nan for v, k in zip(values, kept, strict=True))
            lines.append(Line(name, colour, xs, ys, dash=not want))
    return lines


def figure2(evidence: Evidence) -> list[Block]:
    """Bias and variance against m; lower is better in both."""
    sheet = evidence.sheet("figure2")
    sheet.need("objective", "n", "variance", "bias")
    panels = []
    for column, title, unit in (
        ("bias", "Bias: how far below the truth", "nats"),
        ("variance", "Variance of one batch", "nats²"),
    ):
        lines = []
        for objective, name in (("cpc", "CPC, α = 1"), ("ml_cpc", "ML-CPC, smallest safe α")):
            mine = [row for row in sheet.rows if row["objective"] == objective]
            ys = tuple(abs(number(row[column])) for row in mine)
            lines.append(Line(name, tone(objective, 0, 1), tuple(number(row["n"]) for row in mine), ys))
        panels.append(Panel(title, CANDIDATES, Scale(unit, log=True), tuple(lines)))
    return [Figure(tuple(panels), "Of the same coin, both axes logarithmic. Exact, so there are no error bars.")]


def figure4(evidence: Evidence) -> list[Block]:
    """Gain over CRD against α, mean over the pairs of a kind."""
    sheet = evidence.sheet("figure4")
    sheet.need("pair", "method", "ours", "published_cifar100")
    kinds = {str(pair): pair.table for pair in PAIRS}
    panels = []
    for table, title in (("table1", "Teacher and student of one type"), ("table2", "Of different types")):
        mine = [row for row in sheet.rows if kinds.get(row["pair"], "table1") == table]
        lines, dots = [], []
        for objective, name in NAMES.items():
            colour = tone(objective, 0, 1)
            ours, theirs = (_gains(mine, objective, column) for column in ("ours", "published_cifar100"))
            if ours:
                lines.append(Line(name, colour, *_transposed(ours)))
                dots.append(Dots(name, colour, *_transposed(ours)))
            if theirs:
                dots.append(Dots(name, colour, *_transposed(theirs), shape="ring"))
        if lines:
            across = Scale("α", log=True, low=0.008, high=1.25, stop="α = {}")
            levels = (Level("CRD", 0.0),)
            panels.append(Panel(title, across, Scale("points above CRD"), tuple(lines), tuple(dots), levels, digits=2))
    if not panels:
        raise Unusable("figure4.csv has no number for any α yet")
    caption = "Top-1 accuracy of students, in points above CRD: means over teacher-student pairs."
    if evidence.scale != "paper":
        caption += " The diamonds are the paper's, on its own data and budget."
    return [Figure(tuple(panels), caption)]


def _gains(rows: list[Row], objective: str, column: str) -> list[tuple[float, float]]:
    crd = {row["pair"]: number(row[column]) for row in rows if row["method"] == "CRD"}
    points = []
    for alpha in (0.01, 0.05, 0.1, 0.2, 0.5, 1.0):
        mine = [row for row in rows if row["method"] == label(objective, str(alpha))]
        gains = [number(row[column]) - crd.get(row["pair"], math.nan) for row in mine]
        known = [gain for gain in gains if math.isfinite(gain)]
        points += [(alpha, fmean(known))] if known else []
    return points


def _transposed(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(x for x, _ in points), tuple(y for _, y in points)


def times(evidence: Evidence) -> list[Block]:
    """Time of an update, as a share of CPC's, and in seconds."""
    sheet = evidence.sheet("timing")
    sheet.need("critic", "objective", "mean_seconds", "sd_seconds", "updates")
    known = {
        (row["critic"], row["objective"]): (number(row["mean_seconds"]), number(row["sd_seconds"]))
        for row in sheet.rows
    }
    critics = [
        critic for critic in dict.fromkeys(critic for critic, _ in known) if known.get((critic, "cpc"), (0,))[0] > 0
    ]
    if not critics:
        raise Unusable("timing.csv has no time of CPC to compare with")
    names = (*(f"{critic} critic" for critic in critics), "published")
    dots = []
    for objective, name in NAMES.items():
        cells = [(known.get((critic, objective), (math.nan,) * 2), known[critic, "cpc"][0]) for critic in critics]
        cells.append((timing.PUBLISHED[objective], timing.PUBLISHED["cpc"][0]))
        xs, sds = (tuple(cell[k] / base for cell, base in cells) for k in (0, 1))
        rows = tuple(map(float, range(len(names))))
        dots.append(Dots(name, tone(objective, 0, 1), xs, rows, sds, nudge=-6 if objective == "cpc" else 6))
    down, level = Scale("critic", names=names), Level("CPC", 1.0, upright=True)
    panel = Panel("Time of an update, CPC's = 1", Scale("relative time"), down, (), tuple(dots), (level,), digits=2)
    caption = (
        "Bars: one standard deviation over repeats. Both objectives take turns every ten updates, so that what else "
        "the machine did falls on both alike."
    )
    lines = []
    for (critic, objective), (mean, sd) in known.items():
        theirs = timing.PUBLISHED.get(objective, (math.nan, math.nan))
        lines.append((f"{NAMES.get(objective, objective)}, {critic}", f"{place(theirs[0])} {spread(theirs[1])}",
                      f"{place(mean)} {spread(sd)}", Cell(signed(mean - theirs[0]), tone="muted")))  # fmt: skip
    note = "Seconds. The paper's are of both critics together, on a GTX 1080 Ti; only the ratio compares."
    columns = ("Objective, critic", "Paper", "Here", "Difference")
    return [Figure((panel,), caption), Table(columns, tuple(lines), f"{sheet.rows[0]['updates']} updates", note)]


def method_tone(method: str) -> str:
    """A method's colour in the tables' charts: darker for a smaller α."""
    kind = {"L": "cpc", "J": "ml_cpc"}.get(method.partition("_")[0])
    if kind is None:
        return {"KD": "kd", "CRD": "crd"}.get(method, "plainly")
    last = number(method.rsplit("_", 1)[-1])
    return f"{kind}-{5 if last <= 0.02 else 4 if last <= 0.12 else 3 if last <= 0.6 else 2}"
