"""Tables 3 and 4: what encoders learn with CPC and with ML-CPC under α curricula, by linear evaluation.

mlcpc reproduce table3 --scale quick       a ResNet-20 on CIFAR-10, 40 epochs, four seeds
mlcpc reproduce table3                     the paper's: a ResNet-50 on CIFAR-10 and CIFAR-100, 200, 500, 1000 epochs
"""

import csv
import math
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

from mlcpc import plots
from mlcpc.objectives import label
from mlcpc.pretrain.moco import IMAGENET, Settings
from mlcpc.pretrain.probe import Linear
from mlcpc.pretrain.run import Pretraining, Probing
from mlcpc.reproduce.paired import mean_and_spread, sign_flip_p
from mlcpc.reproduce.study import job, machine, results
from mlcpc.reproduce.target import Check, Drawing, Result, Scale, Target, Tick
from mlcpc.runs import Place, run_folder
from mlcpc.sweep import Job

CURRICULA = (("cpc", "1"), ("ml_cpc", "1"), ("ml_cpc", "2:0.5"), ("ml_cpc", "5:0.2"), ("ml_cpc", "10:0.1"))
"""the five rows of both tables"""
PAPER_DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "imagenet": "ImageNet"}


@dataclass(frozen=True)
class Study:
    """Which objectives, on which data, with which budgets; each is trained, then probed."""

    data: tuple[str, ...] = ("cifar10", "cifar100")
    epochs: tuple[int, ...] = (200, 500, 1000)
    objectives: tuple[tuple[str, str], ...] = CURRICULA
    undivided: bool = True
    """also the steepest curriculum without the published division of the loss by α"""
    seeds: int = 1
    network: str = "cifar_resnet50"
    batch: int = 256
    rate: float = 0.3
    settings: Settings = field(default_factory=Settings)
    probe_epochs: int = 100
    probe_rate: float = 3.0
    augmented: bool = True
    limit: int = 0

    def cells(self) -> list[tuple[str, int, str, str, bool, int]]:
        """Data, epochs, objective, α, whether divided by α, seed."""
        ways = [(*objective, True) for objective in self.objectives]
        ways += [(*self.objectives[-1], False)] if self.undivided else []
        return [
            (d, e, *way, seed) for seed in range(self.seeds) for d in self.data for e in self.epochs for way in ways
        ]

    def run(self, data: str, epochs: int, objective: str, alpha: str, divided: bool, seed: int) -> Pretraining:
        """The config of one cell's pretraining."""
        settings = replace(self.settings, objective=objective, alpha=alpha, divide_by_alpha=divided)
        return Pretraining(
            self.network, data, epochs, self.batch, self.rate, limit=self.limit, seed=seed, settings=settings
        )

    def probe(self, cell: tuple[str, int, str, str, bool, int] | None, root: Path, data: str = "") -> Probing:
        """Of a cell's encoder, or of one with random weights."""
        linear = Linear(rate=self.probe_rate, epochs=self.probe_epochs)
        shared: dict[str, Any] = {"augmented": self.augmented, "limit": self.limit, "linear": linear}
        if cell is None:
            return Probing(network=self.network, data=data, **shared)
        folder = run_folder(self.run(*cell), "pretrain", root)
        return Probing(str(folder), data=cell[0], **shared)


def jobs(config: Study, place: Place) -> list[Job]:
    """Each encoder, then its probe; and the probe of random weights."""
    found = [job(config.probe(None, place.runs, data), "probe", place) for data in config.data]
    for cell in config.cells():
        encoder = job(config.run(*cell), "pretrain", place)
        found += [encoder, job(config.probe(cell, place.runs), "probe", place, (encoder.name,))]
    return found


def compute(config: Study, tick: Tick, folder: Path) -> Result:
    """The results of the runs that are done."""
    root = folder.parent.parent
    probes = results({cell: config.probe(cell, root) for cell in config.cells()}, lambda run: "probe", root)
    runs = results({cell: config.run(*cell) for cell in config.cells()}, lambda run: "pretrain", root)
    random = results({data: config.probe(None, root, data) for data in config.data}, lambda run: "probe", root)
    names = ("top1", "top5", "best_top1", "knn_top1")
    tick(1.0)
    return {
        "cells": [
            {
                **dict(zip(("data", "epochs", "objective", "alpha", "divided", "seed"), cell, strict=True)),
                **{name: found[name] for name in names},
                "curve": [_kept(row) for row in runs[cell]["curve"]],
            }
            for cell, found in probes.items()
            if cell in runs
        ],
        "random": {data: {name: found[name] for name in names} for data, found in random.items()},
        "missing": len(config.cells()) - len(probes),
        "seconds": round(sum(r["seconds"] for r in [*runs.values(), *probes.values()]), 1),
        "computed_on": sorted({machine(r) for r in runs.values()}),
    }


def sample(config: Study) -> str:
    """What a number of the table is a mean of."""
    budgets = ", ".join(map(str, config.epochs))
    return f"seeds: {config.seeds}, of each objective; data sets: {', '.join(config.data)}; epochs: {budgets}"


def _kept(row: dict[str, Any]) -> dict[str, Any]:
    return {k: round(row[k], 5) for k in ("epoch", "loss", "estimate", "ceiling", "alpha", "knn_top1") if k in row}


def published(metric: str = "top1") -> dict[tuple[str, str, int], float]:
    """(data, objective, epochs) → percent, with the paper's names of data and ours of objectives."""
    text = (files("mlcpc.reproduce") / "published" / "representation.csv").read_text()
    rows = [row for row in csv.DictReader(text.splitlines()) if row["metric"] == metric]
    return {(r["dataset"], r["objective"].replace("->", "→"), int(r["epochs"])): float(r["value"]) for r in rows}


def name_of(objective: str, alpha: str) -> str:
    """As the tables have it: the constant curriculum is written J_1.0→J_1.0 there."""
    constant = objective == "ml_cpc" and ":" not in alpha
    return label(objective, f"{alpha}:{alpha}" if constant else alpha)


def _percent(share: float) -> float:
    return round(100 * share, 2)


def table(result: Result) -> list[dict[str, Any]]:
    """A row an objective, data set and budget, in percent; random weights first."""
    rows = [
        {
            "data": data,
            "objective": "random weights",
            "ours": _percent(r["top1"]),
            "knn": _percent(r["knn_top1"]),
            "seeds": 1,
        }
        for data, r in result["random"].items()
    ]
    paper, paper5 = published(), published("top5")
    keys = dict.fromkeys((c["data"], c["epochs"], c["objective"], c["alpha"], c["divided"]) for c in result["cells"])
    for data, epochs, objective, alpha, divided in keys:
        mine = [
            c
            for c in result["cells"]
            if (c["data"], c["epochs"], c["objective"], c["alpha"], c["divided"])
            == (data, epochs, objective, alpha, divided)
        ]
        mean, spread = mean_and_spread([100 * c["top1"] for c in mine])
        key = (PAPER_DATA.get(data, data), name_of(objective, alpha), epochs)
        rows.append(
            {
                "data": data,
                "epochs": epochs,
                "objective": name_of(objective, alpha),
                "divided_by_alpha": divided,
                "published": paper.get(key, math.nan),
                "published_top5": paper5.get(key, math.nan),
                "ours": round(mean, 2),
                "sd": round(spread, 2),
                "top5": round(fmean(100 * c["top5"] for c in mine), 2),
                "best_epoch_mean": round(fmean(100 * c["best_top1"] for c in mine), 2),
                "knn": round(fmean(100 * c["knn_top1"] for c in mine), 2),
                "seeds": len(mine),
            }
        )
    names = dict.fromkeys(name for row in rows[len(result["random"]) :] for name in row)
    return [{name: row.get(name, "") for name in names} for row in rows] if names else rows


def curves(result: Result) -> list[dict[str, Any]]:
    """Estimate, ceiling, α and loss after each epoch of each run."""
    return [
        {
            "data": c["data"],
            "epochs": c["epochs"],
            "objective": name_of(c["objective"], c["alpha"]),
            "divided_by_alpha": c["divided"],
            "seed": c["seed"],
            "epoch": row["epoch"] + 1,
            **{name: row[name] for name in ("estimate", "ceiling", "alpha", "loss")},
        }
        for c in result["cells"]
        for row in c["curve"]
    ]


def draw(result: Result, drawing: Drawing) -> list[Check]:
    """Left: accuracy of each objective, a dot a seed. Right: the estimate beside its ceiling while α falls."""
    rows = table(result)
    if rows:
        drawing.write_csv(rows)
    if result["cells"]:
        replace(drawing, name="curves").write_csv(curves(result))
    with plots.style():
        figure = plots.figure(11, 4)
        left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
        names = []
        for c in result["cells"]:
            name = _short(c)
            names += [name] if name not in names else []
            colour = plots.shades(c["objective"], 2)[1]
            left.plot([100 * c["top1"]], [names.index(name)], "o", ms=5, color=colour, alpha=0.7)
            left.plot([100 * c["knn_top1"]], [names.index(name)], "x", ms=5, color=colour, alpha=0.7)
        for data, found in result["random"].items():
            left.axvline(100 * found["top1"], color="#6e7781", ls=":", label=f"random weights ({data})")
        left.set_yticks(range(len(names)), names)
        left.invert_yaxis()
        left.set(xlabel="top-1, %   (o linear, × k-NN)", title="What the features know")
        if result["random"]:
            left.legend(fontsize=8)
        for c in [c for c in result["cells"] if c["seed"] == 0][:6]:
            curve = c["curve"]
            steps = [row["epoch"] + 1 for row in curve]
            colour = _colours(result)[_short(c)]
            right.plot(steps, [row["estimate"] for row in curve], color=colour, label=_short(c))
            right.plot(steps, [row["ceiling"] for row in curve], color=colour, ls=":", lw=1)
        right.set(xlabel="epoch", ylabel="nats", title="Estimate (solid) and its ceiling (dotted)")
        if result["cells"]:
            right.legend(fontsize=7)
        config = result["config"]
        text = f"{drawing.name} · {config['network']}, {config['seeds']} seeds · scale: {drawing.scale}"
        text += f" · {result['missing']} runs missing" if result["missing"] else ""
        figure.suptitle(text, fontsize=9, x=0.99, ha="right")
        plots.save(figure, drawing.folder, drawing.name)
    done = len(result["cells"])
    complete = Check("every run is done", result["missing"] == 0, f"{done} of {done + result['missing']}")
    return [complete, *(checks(result) if drawing.scale != "smoke" else [])]  # one epoch teaches nothing


def _short(c: dict[str, Any]) -> str:
    text = name_of(c["objective"], c["alpha"]) + ("" if c["divided"] else ", undivided")
    return f"{text}, {c['data']}, {c['epochs']} ep."


def _colours(result: Result) -> dict[str, Any]:
    names = {
        kind: list(dict.fromkeys(_short(c) for c in result["cells"] if c["objective"] == kind))
        for kind in ("cpc", "ml_cpc")
    }
    return {
        name: colour
        for kind, some in names.items()
        for name, colour in zip(some, plots.shades(kind, len(some)), strict=True)
    }


def checks(result: Result) -> list[Check]:
    """The paper's claims about these tables, of the runs that are done."""
    found = []
    worst = min(
        (
            (c["top1"] - result["random"][c["data"]]["top1"], _short(c))
            for c in result["cells"]
            if c["data"] in result["random"]
        ),
        default=None,
    )
    if worst:
        text = f"the least, {worst[1]}, by {100 * worst[0]:.1f} points"
        found.append(Check("every encoder knows more than random weights", worst[0] > 0, text))
    base = {(c["data"], c["epochs"], c["seed"]): c["top1"] for c in result["cells"] if c["objective"] == "cpc"}
    for way in dict.fromkeys((c["alpha"], c["divided"]) for c in result["cells"] if c["objective"] == "ml_cpc"):
        mine = [c for c in result["cells"] if c["objective"] == "ml_cpc" and (c["alpha"], c["divided"]) == way]
        gains = [100 * (c["top1"] - base[key]) for c in mine if (key := (c["data"], c["epochs"], c["seed"])) in base]
        if gains:
            name = name_of("ml_cpc", way[0]) + ("" if way[1] else " (undivided)")
            text = f"{fmean(gains):+.2f} points over {len(gains)} pairs of runs, p = {sign_flip_p(gains):.2g}"
            found.append(Check(f"{name} beats CPC on average", fmean(gains) > 0, text))
    return found


SMALL = Settings(dim=128, queue=16384)
_target = partial(Target, section="tables", compute=compute, jobs=jobs, draw=draw, sample=sample)

SMOKE = Study(
    ("digits",),
    (1,),
    CURRICULA[::4],
    False,
    1,
    "resnet8",
    64,
    0.06,
    Settings(dim=32, queue=256),
    5,
    augmented=False,
    limit=256,
)
TABLE3 = _target(
    name="table3",
    title="Representation learning on CIFAR: linear evaluation of CPC and of ML-CPC's α curricula",
    scales={
        "smoke": Scale(SMOKE, "a minute"),
        "quick": Scale(
            Study(("cifar10",), (40,), seeds=4, network="resnet20", settings=SMALL, augmented=False),
            "49 runs: 13 minutes on an H200, 14 at a time; days on 2 cores",
        ),
        "paper": Scale(Study(), "74 runs of a ResNet-50: weeks on one GPU"),
    },
)
TABLE4 = _target(
    name="table4",
    title="Representation learning on ImageNet: linear evaluation after 30 epochs",
    scales={
        "smoke": Scale(replace(SMOKE, objectives=CURRICULA[:2]), "a minute"),
        "paper": Scale(
            Study(("imagenet",), (30,), network="imagenet_resnet18", rate=0.03, settings=IMAGENET, probe_rate=30.0),
            "13 runs of a ResNet-18 on ImageNet",
        ),
    },
)
