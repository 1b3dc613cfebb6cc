"""Is it α, or the size of the gradient? Controls for Table 3 at its quick scale, three seeds each.

    python -m benchmarks.curriculum [--data-dir D]      writes results/table3/controls.csv; 18 runs beside Table 3's own

A curriculum 10:0.1 whose loss is divided by α, as published, also makes the gradient grow from 1/10 to 10 times its
size. `CPC, divided by the schedule` has that and no curriculum; others have another rate. A run that is done is kept.
"""

import csv
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from unittest.mock import patch

from mlcpc.plan import Progress
from mlcpc.pretrain.moco import MoCo
from mlcpc.pretrain.run import Probing, pretrain, probe
from mlcpc.reproduce.representation import TABLE3, Study
from mlcpc.runs import Place, run_folder
from mlcpc.schedules import parse_alpha

SEEDS = 3
STEEP, PLAIN = ("ml_cpc", "10:0.1"), ("cpc", "1")
WAYS = [
    ("CPC", 0.3, *PLAIN, True),
    ("CPC, divided by the schedule", 0.3, *PLAIN, True),
    ("CPC", 0.1, *PLAIN, True),
    ("CPC", 0.03, *PLAIN, True),
    ("J_10→J_0.1", 0.3, *STEEP, True),
    ("J_10→J_0.1", 0.1, *STEEP, True),
    ("J_10→J_0.1, undivided", 0.3, *STEEP, False),
    ("J_10→J_0.1, undivided", 0.1, *STEEP, False),
    ("J_10→J_0.1, undivided", 0.03, *STEEP, False),
]
OUT = Path(__file__).parent.parent / "results" / "table3" / "controls.csv"


class Scaled(MoCo):
    """The loss is divided by 10 → 0.1, whatever α is."""

    def loss(self, batch: Any, at: Progress) -> Any:
        value, numbers = super().loss(batch, at)
        return value / parse_alpha(STEEP[1])(at.epoch / at.epochs), numbers


def accuracies(study: Study, way: tuple[str, float, str, str, bool], seed: int, place: Place) -> tuple[float, float]:
    """Linear and k-NN accuracy of one run, computed where it is missing."""
    name, rate, objective, alpha, divided = way
    config = replace(study, rate=rate).run("cifar10", 40, objective, alpha, divided, seed)
    scaled = name.endswith("by the schedule")
    if scaled:
        place = replace(place, runs=Path("runs-scaled"))
    with patch("mlcpc.pretrain.run.MoCo", Scaled if scaled else MoCo):
        pretrain(config, place)
    found = probe(Probing(str(run_folder(config, "pretrain", place.runs)), augmented=False), place)
    return 100 * found["top1"], 100 * found["knn_top1"]


def main(arguments: list[str]) -> None:
    place = Place(data_dir=Path(arguments[1]) if arguments[:1] == ["--data-dir"] else None)
    study = TABLE3.scales["quick"].config
    rows = []
    for way in WAYS:
        found = [accuracies(study, way, seed, place) for seed in range(SEEDS)]
        linear, neighbours = zip(*found, strict=True)
        rows.append(
            {
                "objective": way[0],
                "rate": way[1],
                "linear": round(fmean(linear), 2),
                "sd": round(stdev(linear), 2),
                "knn": round(fmean(neighbours), 2),
                "seeds": SEEDS,
            }
        )
        print(rows[-1], flush=True)
    with OUT.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
