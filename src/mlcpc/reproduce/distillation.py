"""Tables 1 and 2 and Figure 4: students that learn from teachers of the same type, and of another, by every method.

mlcpc reproduce table1 --scale quick       resnet56 → resnet20 and vgg13 → vgg8 on CIFAR-10, 15 epochs, two seeds
mlcpc reproduce table1                     the paper's: seven pairs on CIFAR-100, 240 epochs, three seeds
"""

import csv
import math
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

from mlcpc import plots
from mlcpc.classify import Training
from mlcpc.distill.pairs import PAIRS, Pair
from mlcpc.distill.run import Distillation
from mlcpc.objectives import label
from mlcpc.reproduce.paired import mean_and_spread, sign_flip_p
from mlcpc.reproduce.study import job, machine, results
from mlcpc.reproduce.target import Check, Drawing, Result, Scale, Target, Tick
from mlcpc.runs import Place
from mlcpc.sweep import Job

METHODS = ("student", "KD", "CRD", "L_1.0", "L_0.1", "J_1.0", "J_0.05", "J_0.01")
ALPHAS = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
"""of Figure 4"""


@dataclass(frozen=True)
class Grid:
    """Which pairs, by which methods, how often, and with which budget."""

    pairs: tuple[tuple[str, str], ...]
    methods: tuple[str, ...] = METHODS
    seeds: int = 3
    data: str = "cifar100"
    epochs: int = 240
    teacher_epochs: int = 0
    """0: as many as the students"""
    negatives: int = 16384
    limit: int = 0
    """training images of students; 0: all. The teacher sees all"""
    precision: str = "bfloat16"

    def teacher(self, network: str) -> Training:
        """One teacher for all seeds and methods, as in the study."""
        epochs = self.teacher_epochs or self.epochs
        return Training(network, self.data, epochs, precision=self.precision)

    def run(self, teacher: str, student: str, method: str, seed: int) -> Training | Distillation:
        """The config of one cell's run."""
        shared: dict[str, Any] = {"precision": self.precision, "limit": self.limit, "seed": seed}
        if method == "student":
            return Training(student, self.data, self.epochs, **shared)
        objective, alpha = parsed(method)
        more = {"negatives": self.negatives, "teacher_epochs": self.teacher_epochs, "teacher_limit": 0, **shared}
        return Distillation(teacher, student, objective, alpha, self.data, self.epochs, **more)

    def cells(self) -> list[tuple[str, str, str, int]]:
        """Teacher, student, method, seed; a seed of all methods before the next seed."""
        return [(*pair, method, seed) for seed in range(self.seeds) for pair in self.pairs for method in self.methods]


def parsed(method: str) -> tuple[str, str]:
    """Objective and α of a method's name in the paper.

    >>> parsed("J_0.05"), parsed("CRD")
    (('ml_cpc', '0.05'), ('crd', '1'))
    """
    letter, _, alpha = method.partition("_")
    names = {"J": "ml_cpc", "L": "cpc", "KD": "kd", "CRD": "crd"}
    return names[letter], f"{float(alpha):g}" if alpha else "1"


def jobs(config: Grid, place: Place) -> list[Job]:
    """Teachers first, then students and everything that needs the teachers."""
    teachers = {network: job(config.teacher(network), "train", place) for network, _ in config.pairs}
    rest = []
    for teacher, student, method, seed in config.cells():
        run = config.run(teacher, student, method, seed)
        alone = isinstance(run, Training)
        after = () if alone else (teachers[teacher].name,)
        rest.append(job(run, "train" if alone else "distill", place, after))
    return list({each.name: each for each in [*teachers.values(), *rest]}.values())


def compute(config: Grid, tick: Tick, folder: Path) -> Result:
    """The results of the runs that are done."""
    root = folder.parent.parent
    runs = {cell: config.run(*cell) for cell in config.cells()}
    found = results(runs, lambda run: "train" if isinstance(run, Training) else "distill", root)
    teachers = results({(t,): config.teacher(t) for t, _ in config.pairs}, lambda run: "train", root)
    tick(1.0)
    return {
        "cells": [
            {"teacher": t, "student": s, "method": m, "seed": seed, **_numbers(r)}
            for (t, s, m, seed), r in found.items()
        ],
        "teachers": {t: _numbers(r) for (t,), r in teachers.items()},
        "missing": len(runs) - len(found),
        "seconds": round(sum(r["seconds"] for r in [*found.values(), *teachers.values()]), 1),
        "computed_on": sorted({machine(r) for r in found.values()}),
    }


def sample(config: Grid) -> str:
    """What a number of the table is a mean of."""
    return f"seeds: {config.seeds}, of each of {len(config.methods)} methods; pairs of networks: {len(config.pairs)}"


def _numbers(result: dict[str, Any]) -> dict[str, Any]:
    kept = {name: result[name] for name in ("top1", "top5", "best_top1", "best_epoch", "seconds")}
    return kept | {"curve": [row["top1"] for row in result["curve"] if "top1" in row]}


def published() -> dict[tuple[str, str, str], float]:
    """(teacher, student, method) → top-1 in percent, with the paper's names."""
    text = (files("mlcpc.reproduce") / "published" / "distillation.csv").read_text()
    return {(r["teacher"], r["student"], r["method"]): float(r["top1"]) for r in csv.DictReader(text.splitlines())}


def table(result: Result) -> list[dict[str, Any]]:
    """A row a pair and method: the paper's number, ours, their spread over seeds, last and best epoch, in percent."""
    rows = []
    paper = published()
    config = result["config"]
    for teacher, student in config["pairs"]:
        pair = _pair(teacher, student)
        cells = [c for c in result["cells"] if (c["teacher"], c["student"]) == (teacher, student)]
        knows = result["teachers"].get(teacher)
        found = [("teacher", [knows] if knows else [])]
        found += [(method, [c for c in cells if c["method"] == method]) for method in config["methods"]]
        crd = {c["seed"]: c["top1"] for c in cells if c["method"] == "CRD"}
        for method, runs in found:
            last, spread = mean_and_spread([100 * c["top1"] for c in runs]) if runs else (math.nan, math.nan)
            gain = [100 * (c["top1"] - crd[c["seed"]]) for c in runs if c.get("seed") in crd]
            rows.append(
                {
                    "pair": str(pair),
                    "method": method,
                    "published_cifar100": paper.get((*pair.labels, method), math.nan),
                    "ours": round(last, 2),
                    "sd": round(spread, 2),
                    "best_epoch_mean": round(100 * fmean([c["best_top1"] for c in runs]), 2) if runs else math.nan,
                    "against_crd": round(fmean(gain), 2) if gain else math.nan,
                    "seeds": len(runs),
                    "epochs": (method == "teacher" and config["teacher_epochs"]) or config["epochs"],
                    "data": config["data"],
                }
            )
    return rows


def _pair(teacher: str, student: str) -> Pair:
    known = {(pair.teacher, pair.student): pair for pair in PAIRS}
    return known.get((teacher, student)) or Pair("table1", teacher, student)


def curves(result: Result) -> list[dict[str, Any]]:
    """Top-1 after each epoch of every run."""
    return [
        {
            **{k: cell[k] for k in ("teacher", "student", "method", "seed")},
            "epoch": epoch + 1,
            "top1": round(100 * top1, 2),
        }
        for cell in result["cells"]
        for epoch, top1 in enumerate(cell["curve"])
    ]


def draw(result: Result, drawing: Drawing) -> list[Check]:
    """A panel a pair: each seed a dot, the mean a bar; the paper's number, where the budget is the paper's."""
    rows = table(result)
    drawing.write_csv(rows)
    if result["cells"]:
        replace(drawing, name="curves").write_csv(curves(result))
    pairs = list(dict.fromkeys(row["pair"] for row in rows))
    across = min(3, len(pairs))
    with plots.style():
        down = -(-len(pairs) // across)
        figure = plots.figure(1.2 + 4.4 * across, 0.6 + 3.1 * down)
        panels = figure.subplots(down, across, squeeze=False).flatten()
        for panel, pair, networks in zip(panels, pairs, result["config"]["pairs"], strict=False):
            _panel(panel, [row for row in rows if row["pair"] == pair], result, networks, drawing.scale == "paper")
            panel.set_title(pair)
        for panel in panels[len(pairs) :]:
            panel.set_axis_off()
        _signature(figure, result, drawing)
        plots.save(figure, drawing.folder, drawing.name)
    return [_complete(result), *(checks(result) if drawing.scale != "smoke" else [])]


def _panel(panel: Any, rows: list[dict[str, Any]], result: Result, networks: list[str], paper: bool) -> None:
    shown = [row for row in rows if row["method"] != "teacher"]
    for place, row in enumerate(shown):
        mine = [c for c in result["cells"] if [c["teacher"], c["student"]] == list(networks)]
        values = [100 * c["top1"] for c in mine if c["method"] == row["method"]]
        panel.plot(values, [place] * len(values), "o", ms=4, color=_colour(row["method"]), alpha=0.6, zorder=3)
        panel.plot([row["ours"]], [place], "|", ms=16, mew=2.2, color=_colour(row["method"]), zorder=4)
        if paper:
            panel.plot([row["published_cifar100"]], [place], "D", ms=5, mfc="none", color=plots.INK, zorder=2)
    panel.set_yticks(range(len(shown)), [row["method"] for row in shown])
    panel.set_ylim(len(shown) - 0.4, -0.6)
    teacher = rows[0]["ours"]
    panel.set_xlabel(f"top-1, %   (teacher {teacher:.2f})" if not math.isnan(teacher) else "top-1, %")


def _colour(method: str) -> Any:
    kind = {"L": "cpc", "J": "ml_cpc"}.get(method.split("_")[0])
    return plots.shades(kind, 2)[1] if kind else "#6e7781"


def _signature(figure: Any, result: Result, drawing: Drawing) -> None:
    config = result["config"]
    images = f"{config['limit']} images, " if config["limit"] else ""
    budget = f"{config['data']}, {images}{config['epochs']} epochs, {config['seeds']} seeds"
    text = f"{drawing.name} · {budget} · scale: {drawing.scale}"
    text += f" · {result['missing']} runs missing" if result["missing"] else ""
    figure.suptitle(text, fontsize=9, x=0.99, ha="right")


def _complete(result: Result) -> Check:
    """All that a smoke scale is asked for: one epoch teaches nothing."""
    done = len(result["cells"])
    return Check("every run is done", result["missing"] == 0, f"{done} of {done + result['missing']}")


def checks(result: Result) -> list[Check]:
    """What the paper says of these tables, of the runs that are done."""
    by = {(c["teacher"], c["student"], c["method"], c["seed"]): 100 * c["top1"] for c in result["cells"]}
    methods = [m for m in result["config"]["methods"] if m not in ("student", "KD", "CRD")]
    found = []
    for base, words in (("student", "the plain student"), ("CRD", "CRD")):
        for method in methods if base == "CRD" else [*methods, "CRD"]:
            pairs = [(v, by[t, s, base, i]) for (t, s, m, i), v in by.items() if m == method and (t, s, base, i) in by]
            gains = [a - b for a, b in pairs]
            if not gains:
                continue
            text = f"{fmean(gains):+.2f} points, better in {sum(g > 0 for g in gains)} of {len(gains)} runs"
            text += f", p = {sign_flip_p(gains):.2g}"
            found.append(Check(f"{method} beats {words} on average", fmean(gains) > 0, text))
    return found


def draw_figure4(result: Result, drawing: Drawing) -> list[Check]:
    """Mean top-1 over pairs against α, CPC and ML-CPC, with CRD's as a line; left the same type, right another."""
    rows = table(result)
    drawing.write_csv(rows)
    kinds = {"same type": "table1", "different types": "table2"}
    pairs = [_pair(*networks) for networks in result["config"]["pairs"]]
    kinds = {title: kind for title, kind in kinds.items() if any(pair.table == kind for pair in pairs)}
    found = []
    with plots.style():
        figure = plots.figure(1 + 4.4 * len(kinds), 3.6)
        panels = figure.subplots(1, len(kinds), squeeze=False).flatten()
        for panel, (title, kind) in zip(panels, kinds.items(), strict=True):
            names = {str(pair) for pair in pairs if pair.table == kind}
            mean = {m: _mean(rows, names, m) for m in result["config"]["methods"]}
            for objective, text in (("cpc", "CPC"), ("ml_cpc", "ML-CPC")):
                line = [(a, mean.get(label(objective, str(a)), math.nan)) for a in ALPHAS]
                colour = plots.shades(objective, 2)[1]
                panel.plot(*zip(*line, strict=True), marker="o", ms=4, color=colour, label=text)
                small, large = (fmean(value for a, value in line if a in some) for some in ((0.01, 0.05), (0.5, 1.0)))
                claim = f"{title}: {text} is better at α ≤ 0.05 than at α ≥ 0.5"
                found.append(Check(claim, small > large, f"{small:.2f} against {large:.2f} % top-1"))
            panel.axhline(mean["CRD"], color="#6e7781", ls=":", label="CRD")
            panel.set(title=title, xscale="log", xlim=(0.008, 1.25), xlabel="α")
            panel.legend(fontsize=8)
        panels[0].set_ylabel("mean top-1, %")
        _signature(figure, result, drawing)
        plots.save(figure, drawing.folder, drawing.name)
    return [_complete(result), *(found if drawing.scale != "smoke" else [])]


def _mean(rows: list[dict[str, Any]], pairs: set[str], method: str) -> float:
    values = [row["ours"] for row in rows if row["pair"] in pairs and row["method"] == method]
    return fmean(values) if values else math.nan


def _grid(table: str, **more: Any) -> Grid:
    chosen = tuple((pair.teacher, pair.student) for pair in PAIRS if pair.table.startswith(table))
    return Grid(**{"pairs": chosen, **more})


COST = "17 runs: hours on 2 cores, minutes on a GPU"
SMOKE: dict[str, Any] = {"seeds": 1, "data": "digits", "epochs": 1, "negatives": 64, "limit": 256}
QUICK: dict[str, Any] = {"seeds": 2, "data": "cifar10", "epochs": 15, "teacher_epochs": 10, "limit": 20000}
FIGURE4 = ("CRD", *(label(objective, str(alpha)) for objective in ("cpc", "ml_cpc") for alpha in ALPHAS))
_target = partial(Target, section="tables", compute=compute, jobs=jobs, sample=sample)

TABLE1 = _target(
    name="table1",
    title="Distillation between networks of one type: top-1 of students by every method",
    scales={
        "smoke": Scale(_grid("table1", pairs=(("resnet14", "resnet8"),), **SMOKE), "a minute"),
        "quick": Scale(
            _grid("table1", pairs=(("resnet56", "resnet20"),), **QUICK), "17 runs: a day on 2 cores, minutes on a GPU"
        ),
        "paper": Scale(_grid("table1"), "170 runs of 240 epochs"),
    },
    draw=draw,
)
TABLE2 = _target(
    name="table2",
    title="Distillation between networks of different types",
    scales={
        "smoke": Scale(_grid("table2", pairs=(("resnet8", "ShuffleV2"),), **SMOKE), "two minutes"),
        "quick": Scale(
            _grid("table2", pairs=(("resnet56", "vgg8"),), **QUICK), "17 runs: a day on 2 cores, minutes on a GPU"
        ),
        "paper": Scale(_grid("table2"), "142 runs of 240 epochs"),
    },
    draw=draw,
)
FIGURE4_TARGET = _target(
    name="figure4",
    title="Mean top-1 of students against α, with CPC and ML-CPC",
    scales={
        "smoke": Scale(_grid("table1", pairs=(("resnet14", "resnet8"),), methods=FIGURE4, **SMOKE), "two minutes"),
        "quick": Scale(
            _grid("table1", pairs=(("resnet56", "resnet20"),), methods=FIGURE4, **QUICK),
            "27 runs, 13 of them table1's: a day on 2 cores",
        ),
        "paper": Scale(_grid("table", methods=FIGURE4), "513 runs of 240 epochs"),
    },
    draw=draw_figure4,
)
