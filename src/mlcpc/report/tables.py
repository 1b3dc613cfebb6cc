"""The paper's tables: its number, ours, the difference and the spread; and as a chart, what each method gains."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from mlcpc.report.content import Block, Cell, Dots, Figure, Fold, Level, Line, Panel, Scale, Table
from mlcpc.report.figures import method_tone
from mlcpc.report.gather import Evidence, Sheet, Unusable, as_dict
from mlcpc.report.scales import number, place, signed, spread
from mlcpc.reproduce import representation

__all__ = ["Pretrained", "distillation", "learnt", "representations"]

Row = dict[str, str]
PAPER = "published_cifar100"


def distillation(evidence: Evidence) -> list[Block]:
    """Tables 1 and 2: a panel and a table a pair of networks."""
    sheet = evidence.sheet(evidence.target)
    sheet.need("pair", "method", PAPER, "ours", "sd", "seeds", "epochs", "data")
    if not any(math.isfinite(number(row["ours"])) for row in sheet.rows):
        raise Unusable(f"{sheet.name} has no number yet: none of its runs is done")
    pairs = {
        pair: [row for row in sheet.rows if row["pair"] == pair]
        for pair in dict.fromkeys(r["pair"] for r in sheet.rows)
    }
    panels = tuple(panel for pair, rows in pairs.items() if (panel := _gain_panel(pair, rows)))
    caption = (
        "Top-1 accuracy in points above CRD, the method to beat. Filled: here; bars: the method's own standard "
        "deviation over seeds. Diamonds: published, CIFAR-100 and 240 epochs."
    )
    images = number(as_dict(evidence.facts.get("config")).get("limit"))
    tables = tuple(_pair_table(pair, rows, evidence.scale == "paper", images) for pair, rows in pairs.items())
    blocks: list[Block] = [Figure(panels, caption)] if panels else []
    blocks += tables if len(tables) < 3 else (tables[0], Fold(f"The other {len(tables) - 1} pairs", tables[1:]))
    return blocks + _learning(evidence.sheets.get("curves"))


def _shown(method: str) -> str:
    return "plain student" if method == "student" else method


def _gain_panel(pair: str, rows: list[Row]) -> Panel | None:
    base = next((row for row in rows if row["method"] == "CRD"), None)
    shown = [row for row in rows if row["method"] not in ("teacher", "CRD")]
    if base is None or not shown:
        return None
    ours = [number(row["ours"]) - number(base["ours"]) for row in shown]
    theirs = [number(row[PAPER]) - number(base[PAPER]) for row in shown]
    if not any(map(math.isfinite, ours)):
        return None
    dots = [
        Dots("here", method_tone(row["method"]), (gain,), (float(i),), (number(row["sd"]),))
        for i, (row, gain) in enumerate(zip(shown, ours, strict=True))
    ]
    if any(map(math.isfinite, theirs)):
        dots.append(Dots("published", "ink", tuple(theirs), tuple(map(float, range(len(shown)))), shape="ring"))
    down = Scale("method", names=tuple(_shown(row["method"]) for row in shown))
    level = Level("CRD", 0.0, upright=True)
    return Panel(pair, Scale("points above CRD"), down, (), tuple(dots), (level,), digits=2)


def _pair_table(pair: str, rows: list[Row], like: bool, images: float) -> Table:
    crd = next((row for row in rows if row["method"] == "CRD"), {})
    lines = []
    for row in rows:
        theirs, ours = number(row[PAPER]), number(row["ours"])
        bare = row["method"] in ("CRD", "teacher")
        gains = ["–" if bare else signed(number(row[key]) - number(crd.get(key))) for key in (PAPER, "ours")]
        here = place(ours) if math.isfinite(ours) else Cell("not run", tone="muted")
        difference = Cell(signed(ours - theirs), tone="" if like else "muted")
        lines.append(
            (
                _shown(row["method"]),
                place(theirs),
                here,
                spread(number(row["sd"])) or "–",
                difference,
                *gains,
                row["seeds"],
            )
        )
    last = rows[-1]
    budget = f"{last['data']}, " + (f"{images:,.0f} images, " if images > 0 else "") + f"{last['epochs']} epochs"
    note = f"Top-1, %. Paper: CIFAR-100, 240 epochs. Here: {budget}. Spread: one standard deviation over runs."
    if not like:
        note += " Data and budget differ, so the difference says little; compare the gains over CRD."
    columns = ("Method", "Paper", "Here", "Spread", "Difference", "Paper, over CRD", "Here, over CRD", "Runs")
    return Table(columns, tuple(lines), pair, note)


def _learning(sheet: Sheet | None) -> list[Block]:
    """Top-1 after each epoch, mean over seeds; nothing where the curves are not there."""
    needed = {"teacher", "student", "method", "epoch", "top1"}
    if sheet is None or not needed <= set(sheet.columns) or not sheet.rows:
        return []
    panels = []
    for pair in dict.fromkeys((row["teacher"], row["student"]) for row in sheet.rows):
        mine = [row for row in sheet.rows if (row["teacher"], row["student"]) == pair]
        lines = []
        for method in dict.fromkeys(row["method"] for row in mine):
            points = _means((number(r["epoch"]), number(r["top1"])) for r in mine if r["method"] == method)
            lines.append(Line(_shown(method), method_tone(method), tuple(points), tuple(points.values())))
        down = Scale("top-1, %")
        panels.append(
            Panel(" → ".join(pair), Scale("epoch", stop="epoch {}"), down, tuple(lines), digits=1, height=340)
        )
    return [Fold("How they learnt, epoch by epoch", (Figure(tuple(panels), "On the test images, mean over seeds."),))]


def _means(points: Iterable[tuple[float, float]]) -> dict[float, float]:
    found: dict[float, list[float]] = {}
    for x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            found.setdefault(x, []).append(y)
    return {x: fmean(found[x]) for x in sorted(found)}


def representations(evidence: Evidence) -> list[Block]:
    """Tables 3 and 4: a panel and a table a data set and budget."""
    sheet = evidence.sheet(evidence.target)
    sheet.need("data", "objective", "ours", "knn", "seeds")
    if "epochs" not in sheet.columns:
        raise Unusable(f"{sheet.name} has random weights only: no encoder is trained yet")
    sheet.need("sd", "published", "divided_by_alpha")
    trained = [row for row in sheet.rows if row["objective"] != "random weights"]
    panels, tables = [], []
    for data, epochs in dict.fromkeys((row["data"], row["epochs"]) for row in trained):
        rows = [row for row in trained if (row["data"], row["epochs"]) == (data, epochs)]
        random = [row for row in sheet.rows if row["data"] == data and row["objective"] == "random weights"]
        paper = _Paper(data, epochs)
        panel = _curriculum_panel(rows, paper)
        panels += [panel] if panel else []
        tables.append(_curriculum_table(random + rows, paper, evidence.scale == "paper"))
    caption = (
        "Linear evaluation, top-1, in points above plain CPC; bars: the objective's own standard deviation over seeds."
    )
    figure = [Figure(tuple(panels), caption)] if panels else []
    return [*figure, *tables]


class _Paper:
    """The paper's numbers of a data set, at this budget or at the nearest one that it has."""

    def __init__(self, data: str, epochs: str) -> None:
        known = representation.published()
        self.data = representation.PAPER_DATA.get(data, data)
        self.here = number(epochs)
        budgets = {budget for name, _, budget in known if name == self.data}
        self.title = f"{self.data}, {epochs} epochs"
        if not self.here > 0:
            budgets = set()
        self.budget = min(budgets, key=lambda budget: abs(math.log(budget / self.here)), default=0)
        self.values = {o: value for (name, o, b), value in known.items() if (name, b) == (self.data, self.budget)}

    def __call__(self, row: Row) -> float:
        """Of an objective; the paper knows none that is not divided by α."""
        return self.values.get(row["objective"], math.nan) if row["divided_by_alpha"] != "False" else math.nan


def _curriculum(row: Row) -> str:
    return row["objective"] + ("" if row["divided_by_alpha"] != "False" else ", undivided")


def _curriculum_panel(rows: list[Row], paper: _Paper) -> Panel | None:
    base = next((row for row in rows if row["objective"].startswith("L_")), None)
    shown = [row for row in rows if not row["objective"].startswith("L_")]
    if base is None or not shown:
        return None
    dots = [
        Dots(
            "here",
            method_tone(row["objective"]),
            (number(row["ours"]) - number(base["ours"]),),
            (float(i),),
            (number(row["sd"]),),
        )
        for i, row in enumerate(shown)
    ]
    theirs = tuple(paper(row) - paper(base) for row in shown)
    if any(map(math.isfinite, theirs)):
        name = "published" + ("" if paper.budget == paper.here else f", {paper.budget} epochs")
        dots.append(Dots(name, "ink", theirs, tuple(map(float, range(len(shown)))), shape="ring"))
    down, level = Scale("objective", names=tuple(map(_curriculum, shown))), Level("CPC", 0.0, upright=True)
    return Panel(paper.title, Scale("points above CPC"), down, (), tuple(dots), (level,), digits=2)


def _curriculum_table(rows: list[Row], paper: _Paper, like: bool) -> Table:
    lines = []
    for row in rows:
        theirs, ours = paper(row), number(row["ours"])
        difference = Cell(signed(ours - theirs), tone="" if like else "muted")
        shown = spread(number(row["sd"])) or "–"
        lines.append(
            (_curriculum(row), place(theirs), place(ours), shown, difference, place(number(row["knn"])), row["seeds"])
        )
    budget = f"Paper, {paper.budget} epochs" if paper.budget else "Paper"
    columns = ("Objective", budget, "Here", "Spread", "Difference", "k-NN here", "Runs")
    note = "Top-1, %. J_10.0→J_0.1: α falls from 10 to 0.1. Spread: one standard deviation over runs."
    if any(row["divided_by_alpha"] == "False" for row in rows):
        note += " Undivided: without the published code's division of the loss by α."
    if not like and paper.budget:
        note += " The paper's network and budget are larger, so only the order of objectives compares."
    return Table(columns, tuple(lines), paper.title, note)


class Pretrained(NamedTuple):
    """What is kept of a pretraining run until its table is drawn."""

    config: dict[str, Any]
    rows: list[dict[str, Any]]


def learnt(evidence: Evidence, runs: Sequence[Pretrained]) -> Figure | None:
    """Estimate beside its ceiling, and neighbours' accuracy, while a table's encoders were trained: mean over seeds."""
    study = as_dict(evidence.facts.get("config"))
    same = [run for run in runs if _of_study(run.config, study)]
    curves: dict[str, list[dict[str, Any]]] = {}
    for run in same:
        settings = as_dict(run.config.get("settings"))
        undivided = settings.get("divide_by_alpha") is False
        try:
            name = representation.name_of(str(settings.get("objective")), str(settings.get("alpha")))
        except (ValueError, KeyError):
            continue
        curves.setdefault(name + (", undivided" if undivided else ""), []).extend(run.rows)
    nats: list[Line] = []
    accuracies: list[Line] = []
    for name in [row["objective"] + end for row in _rows(evidence) for end in ("", ", undivided")]:
        rows = curves.pop(name, [])
        colour = method_tone(name.partition(",")[0]) if "undivided" not in name else "plainly"
        for key, lines, factor in (("estimate", nats, 1.0), ("ceiling", nats, 1.0), ("knn_top1", accuracies, 100.0)):
            points = _means((number(row.get("epoch")) + 1, factor * number(row.get(key))) for row in rows)
            if points:
                shown = f"{name}, ceiling" if key == "ceiling" else name
                lines.append(
                    Line(shown, colour, tuple(points), tuple(points.values()), key == "ceiling", key != "ceiling")
                )
    across = Scale("epoch", stop="epoch {}")
    panels = [Panel("Estimate (bold) and its ceiling", across, Scale("nats"), tuple(nats), digits=2)] if nats else []
    down = Scale("top-1, %")
    panels += [Panel("k-NN on the test images", across, down, tuple(accuracies), digits=1)] if accuracies else []
    return Figure(tuple(panels), "Mean over the runs that lie here. A falling α lifts the ceiling.") if panels else None


def _rows(evidence: Evidence) -> tuple[Row, ...]:
    sheet = evidence.sheets.get(evidence.target)
    return sheet.rows if sheet and "objective" in sheet.columns else ()


def _of_study(config: dict[str, Any], study: dict[str, Any]) -> bool:
    """Whether a run is one of the study's, as far as network, data and budget tell."""
    kinds = [(key, study.get(key)) for key in ("data", "epochs")]
    listed = all(isinstance(some, list) and config.get(key) in some for key, some in kinds)
    return listed and all(config.get(key) == study.get(key) for key in ("network", "batch", "rate", "limit"))
