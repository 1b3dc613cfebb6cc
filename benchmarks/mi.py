"""Accuracy and time of `mlcpc.estimate_mi` on tasks with known answers, one core.

    python benchmarks/mi.py                     the twelve tasks, N = 10,000, seed 120   (about two minutes)
    python benchmarks/mi.py --tasks all         all forty
    python benchmarks/mi.py --tasks high        Gaussians and rotated cubics, d = 20, N = 20,000

Rows are appended to results/bench/mi.csv; seconds are processor seconds of one thread. Seeds 0–9 were used for tuning,
100–102 were looked at on the way, and 110–112 measured an earlier version; what is quoted comes from seeds ≥ 120.
"""

import argparse
import csv
import time
from pathlib import Path

import torch

from mlcpc.mi.estimator import estimate_mi
from mlcpc.mi.tasks import TASKS, TWELVE, cubic, gaussian

FIELDS = [
    "task",
    "n",
    "seed",
    "mode",
    "truth",
    "lower_bound",
    "se",
    "ci_low",
    "certified",
    "point",
    "cca",
    "ksg",
    "seconds",
]


def main() -> None:
    """Measure, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="twelve", help="twelve, all, high, or the beginning of a name")
    parser.add_argument("--seeds", type=int, nargs="+", default=[120])
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results/bench/mi.csv"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    tasks = {
        "twelve": [TASKS[name] for name in TWELVE],
        "all": list(TASKS.values()),
        "high": [*(gaussian(20, mi) for mi in (5.0, 10.0, 15.0)), *(cubic(20, mi) for mi in (5.0, 10.0))],
    }.get(chosen.tasks) or [task for name, task in TASKS.items() if name.startswith(chosen.tasks)]
    n = 20_000 if chosen.tasks == "high" else chosen.n
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    errors = []
    for seed in chosen.seeds:
        for task in tasks:
            row = measure(task, n, seed, chosen.fast)
            errors.append((abs(row["lower_bound"] - task.mi), abs(row["point"] - task.mi), row["ci_low"] > task.mi))
            new = not chosen.out.exists()
            with chosen.out.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerow(row)
            print(
                "  ".join(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()),
                flush=True,
            )
    bound, point, over = (sum(column) / len(errors) for column in zip(*errors, strict=True))
    print(f"mean absolute error: bound {bound:.4f}, point {point:.4f}")
    print(f"ci_low above the truth: {over:.1%} of {len(errors)}")


def measure(task, n: int, seed: int, fast: bool) -> dict:
    """One estimate as a row of the table."""
    x, y = task.sample(n, torch.Generator().manual_seed(seed))
    start = time.process_time()
    result = estimate_mi(x, y, fast=fast, seed=seed)
    seconds = time.process_time() - start
    values = [result.lower_bound, result.se, result.ci_low, result.certified_low(), result.point]
    values += [result.baselines.get(name, float("nan")) for name in ("CCA", "KSG")]
    rounded = [round(value, 4) for value in (task.mi, *values, seconds)]
    return dict(zip(FIELDS, [task.name, n, seed, "fast" if fast else "default", *rounded], strict=True))


if __name__ == "__main__":
    main()
