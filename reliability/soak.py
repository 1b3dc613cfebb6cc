"""Long use: one process does small runs of everything, again and again; memory, files, threads and speed stay.

After each round its memory (resident set), open files, threads and processor seconds are noted. The first third is
warming up; a line through the rest has a slope with an error, from the means of ten blocks, since neighbouring
rounds are alike. It fails where the slope is more than three errors from zero and would matter.
"""

import gc
import json
import math
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from reliability.record import ROOT, Deadline

__all__ = ["run", "slope"]

BLOCKS = 10
MATTERS = {"memory_mb": 0.03, "open_files": 0.01, "threads": 0.01, "processor_seconds": 0.05}
"""growth over the whole campaign, as a share of the start, that would matter"""


def run(minutes: float, folder: Path) -> dict[str, Any]:
    """In a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "rounds.jsonl"
    words = [sys.executable, "-m", "reliability.soak", str(60 * minutes), str(folder / "work"), str(out)]
    child = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    rounds = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    failures = [f"it ended with {child.returncode}: {child.stderr[-300:]}"] if child.returncode else []
    kept = rounds[len(rounds) // 3 :]
    told = {}
    for name, share in MATTERS.items():
        values = [float(row[name]) for row in kept]
        if len(values) < BLOCKS:
            failures.append(f"only {len(rounds)} rounds: more minutes are needed")
            break
        per, error = slope(values)
        growth = per * len(values) / values[0]
        if per > 3 * error and growth > share:
            failures.append(f"{name} grows by {per:.3g} ± {error:.2g} a round, {growth:.1%} in all")
        told[name] = {
            "first": values[0],
            "last": values[-1],
            "most": max(values),
            "slope_a_round": float(f"{per:.3g}"),
            "error": float(f"{error:.2g}"),
            "growth": round(growth, 4),
        }
    return {
        "summary": f"{len(rounds)} rounds, {len(failures)} things grow",
        "rounds": len(rounds),
        "rounds_fitted": len(kept),
        "a_round": ROUND,
        "measured": told,
        "failures": failures,
    }


def slope(values: Sequence[float]) -> tuple[float, float]:
    """Of a line through the means of BLOCKS blocks, a step, and its standard error.

    >>> slope([3.0 + 0.5 * i for i in range(100)])
    (0.5, 0.0)
    """
    size = len(values) // BLOCKS
    y = [sum(values[i * size : (i + 1) * size]) / size for i in range(BLOCKS)]
    x = [(i + 0.5) * size for i in range(BLOCKS)]
    mx, my = sum(x) / BLOCKS, sum(y) / BLOCKS
    spread = sum((a - mx) ** 2 for a in x)
    per = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / spread
    rest = sum((b - my - per * (a - mx)) ** 2 for a, b in zip(x, y, strict=True))
    return per, math.sqrt(rest / (BLOCKS - 2) / spread)


ROUND = (
    "a classifier, a distillation and an encoder on 64 digits, their runs written and read again; mutual information "
    "of two columns of a CSV; a staircase of 4 updates; a picture; 20 losses with gradients of changing sizes"
)


def work(folder: Path, number: int) -> None:
    """One round."""
    from matplotlib.figure import Figure

    from mlcpc import contrastive_loss, estimate_mi, plots
    from mlcpc.distill.run import Distillation, distill
    from mlcpc.mi.files import read_columns
    from mlcpc.mi.staircase import Staircase, climb
    from mlcpc.pretrain.moco import Settings
    from mlcpc.pretrain.run import Pretraining, pretrain
    from mlcpc.runs import Place

    shutil.rmtree(folder, ignore_errors=True)
    place = Place(device="cpu", runs=folder / "runs")
    tiny: dict[str, Any] = {"data": "digits", "epochs": 1, "batch": 32, "limit": 64, "seed": number}
    for _ in range(2):  # the second time they are there
        distill(Distillation("resnet8", "resnet8", "ml_cpc", "0.05", **tiny, negatives=20), place, say=str)
        pretrain(Pretraining("resnet8", **tiny, settings=Settings(dim=16, queue=64)), place)
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(number))
    (folder / "x.csv").write_text("a,b\n" + "".join(f"{a},{a + b}\n" for a, b in x.tolist()))
    columns, _ = read_columns(folder / "x.csv", list, 1000)
    estimate_mi(columns["a"], columns["b"], fast=True, steps=20)
    climb(Staircase(methods=(("ml_cpc", 1.0),), levels=(1, 2), steps=2, batch=16, hidden=8), folder=folder)
    with plots.style():
        figure = Figure()
        figure.subplots().plot(range(9))
        plots.save(figure, folder, "picture")
    for i in range(20):
        n = 8 + (number * 20 + i) % 57
        a, b = (torch.randn(n, 16, requires_grad=True) for _ in range(2))
        contrastive_loss(a, b, objective=("cpc", "ml_cpc")[i % 2], alpha=0.5).backward()


def main(seconds: float, folder: Path, out: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    deadline, number = Deadline(seconds / 60), 0
    while not deadline.over:
        began = time.process_time()
        work(folder, number)
        number += 1
        took = time.process_time() - began
        gc.collect()
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        row = {
            "memory_mb": int(status["VmRSS"].split()[0]) / 1024,
            "open_files": len(os.listdir("/proc/self/fd")),
            "threads": int(status["Threads"]),
            "processor_seconds": round(took, 3),
        }
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
