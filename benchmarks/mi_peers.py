"""`mlcpc.estimate_mi` beside the estimators of other libraries, on the same samples in the same run, one core.

    python -m benchmarks.mi_peers                      the twelve tasks, N = 10,000, seed 120   (some ten minutes)
    python -m benchmarks.mi_peers --tasks "normal 1×1" "spiral 5×5" --methods mlcpc InfoNCE

Peers by their own defaults on standardised inputs: InfoNCE, MINE and KSG of benchmark-mi, SMILE of torch-mist, and
scikit-learn's nearest neighbours, which take one column on each side. Rows are appended to results/bench/mi_peers.csv;
seconds are processor seconds of one core, compilation included, the methods taking turns on every task. A method whose
library is missing is left out.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import argparse
import contextlib
import csv
import io
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from mlcpc.mi.estimator import estimate_mi
from mlcpc.mi.tasks import TASKS, TWELVE

FIELDS = ["task", "n", "seed", "method", "truth", "estimate", "seconds"]


def ours(fast: bool) -> Callable:
    return lambda x, y, seed: estimate_mi(x, y, fast=fast, seed=seed).lower_bound


def of_benchmark_mi(name: str, **settings) -> Callable:
    def estimate(x, y, seed: int) -> float:
        from bmi import estimators

        own = {} if name.startswith("KSG") else {"seed": seed, "verbose": False}
        return float(getattr(estimators, name)(**settings, **own).estimate(x.numpy(), y.numpy()))

    return estimate


def smile(x, y, seed: int) -> float:
    """torch-mist's default, which is read on the rows it was trained on."""
    from torch_mist import estimate_mi as mist

    torch.manual_seed(seed)
    x, y = ((side - side.mean(0)) / side.std(0) for side in (x, y))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        value = mist((x.numpy(), y.numpy()), estimator="smile", verbose=False)
    return float(value[0] if isinstance(value, tuple) else value)


def neighbours(x, y, seed: int) -> float:
    from sklearn.feature_selection import mutual_info_regression

    if x.shape[1] + y.shape[1] > 2:
        return float("nan")
    return float(mutual_info_regression(x.numpy(), y[:, 0].numpy(), random_state=seed)[0])


METHODS = {
    "mlcpc": ours(False),
    "mlcpc fast": ours(True),
    "InfoNCE": of_benchmark_mi("InfoNCEEstimator"),
    "MINE": of_benchmark_mi("MINEEstimator"),
    "SMILE": smile,
    "KSG": of_benchmark_mi("KSGEnsembleFirstEstimator", neighborhoods=(10,)),
    "scikit-learn": neighbours,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TWELVE)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=120)
    parser.add_argument("--out", type=Path, default=Path("results/bench/mi_peers.csv"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    new = not chosen.out.exists()
    with chosen.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        for task in (TASKS[name] for name in chosen.tasks):
            x, y = task.sample(chosen.n, torch.Generator().manual_seed(chosen.seed))
            for name in chosen.methods:
                start = time.process_time()
                try:
                    value = METHODS[name](x, y, chosen.seed)
                except ModuleNotFoundError as missing:
                    print(f"{name}: left out, {missing.name} is not installed")
                    continue
                seconds = time.process_time() - start
                row = [task.name, chosen.n, chosen.seed, name, round(task.mi, 4), round(value, 4), round(seconds, 2)]
                if value == value:
                    writer.writerow(dict(zip(FIELDS, row, strict=True)))
                    file.flush()
                    print("  ".join(map(str, row)), flush=True)


if __name__ == "__main__":
    main()
