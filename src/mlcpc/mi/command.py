"""`mlcpc mi` and `mlcpc mi-matrix`: mutual information of the columns of a file."""

import csv
import json
import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import combinations
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import torch

from mlcpc.config import InputError
from mlcpc.mi.estimate import Estimate
from mlcpc.mi.estimator import estimate_mi
from mlcpc.mi.files import choose, read_columns
from mlcpc.mi.intake import MAX_ROWS, pair, sampled
from mlcpc.mi.methods import method_named
from mlcpc.runs import replacing, write_text

__all__ = ["Pairwise", "check_plot", "measure", "pairwise", "save_plot"]

Progress = Callable[[str], AbstractContextManager[Callable[[float], None]]]


def measure(data: Path, x: str, y: str, progress: Progress, **settings: Any) -> Estimate:
    """The estimate between the columns named in x and those named in y (comma-separated)."""
    sides: list[list[str]] = []

    def pick(names: list[str]) -> list[str]:
        if not x or not y:
            raise ValueError(f"name the columns with --x and --y; {data} has: {', '.join(names)}")
        sides.extend(choose(names, text, flag) for text, flag in ((x, "--x"), (y, "--y")))
        if both := set(sides[0]) & set(sides[1]):
            raise ValueError(f"--x and --y both name {', '.join(sorted(both))}: a column tells everything about itself")
        return [*sides[0], *sides[1]]

    most, seed = settings.get("max_rows", MAX_ROWS), settings.get("seed", 0)
    method_named(settings.get("method", "ml_cpc"))
    columns, total = read_columns(data, pick, most, seed)
    with progress("estimating") as tick:
        result = estimate_mi(*({name: columns[name] for name in side} for side in sides), tick=tick, **settings)
    return replace(result, warnings=(sampled(most, total), *result.warnings)) if total > most else result


def table_rows(result: Estimate) -> list[tuple[str, str]]:
    """What the small table shows."""
    rows = [
        ("lower bound", f"{result.lower_bound:.3f} ± {result.se:.3f}"),
        ("95 % sure above", f"{result.ci_low:.3f}"),
        ("certified above", f"{result.certified_low():.3f}"),
        ("point (not a bound)", f"{result.point:.3f}"),
        *((name, f"{value:.3f}") for name, value in result.baselines.items()),
        ("ceiling", f"{result.max_detectable:.2f}"),
        ("rows", str(result.n)),
    ]
    return rows


def check_plot(path: Path) -> None:
    """Before anything is computed: is it a name that `save_plot` can write?"""
    if path.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise ValueError(f"--plot is {path}: give a name that ends in .svg, .png or .pdf")


def save_plot(result: Estimate, path: Path) -> None:
    """By its ending: svg, png or pdf."""
    check_plot(path)
    from mlcpc.plots import write

    write(result.plot(), path)


@dataclass(frozen=True)
class Pairwise:
    """The estimates of all pairs of columns; matrix() has the lower bounds."""

    names: tuple[str, ...]
    results: dict[tuple[str, str], Estimate]

    def matrix(self) -> list[list[float]]:
        """Symmetric, NaN on the diagonal; never below 0."""
        either = self.results | {(b, a): result for (a, b), result in self.results.items()}
        return [[math.nan if a == b else max(0.0, either[a, b].lower_bound) for b in self.names] for a in self.names]

    def save(self, folder: Path) -> list[Path]:
        """mi_matrix.csv, .json and .svg."""
        from mlcpc import plots

        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"mi_matrix.{ending}" for ending in ("csv", "json", "svg")]
        with replacing(paths[0]) as temporary, temporary.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["x", "y", "lower_bound", "se", "ci_low", "point", "unit"])
            for (a, b), r in self.results.items():
                writer.writerow([a, b, *(f"{v:.4f}" for v in (r.lower_bound, r.se, r.ci_low, r.point)), r.unit])
        plain = [{"x": a, "y": b} | r.to_dict() for (a, b), r in self.results.items()]
        write_text(paths[1], json.dumps(plain, indent=1) + "\n")
        with plots.style():
            size = 2 + 0.5 * len(self.names)
            figure = plots.figure(size + 1, size)
            axes = figure.subplots()
            image = axes.imshow(self.matrix(), cmap="Blues", vmin=0)
            axes.set_xticks(range(len(self.names)), self.names, rotation=45, ha="right", parse_math=False)
            axes.set_yticks(range(len(self.names)), self.names, parse_math=False)
            axes.grid(visible=False)
            figure.colorbar(image, label=f"lower bound, {next(iter(self.results.values())).unit}")
            plots.write(figure, paths[2], metadata={"Date": None})
        return paths


def pairwise(data: Path, only: str, jobs: int, progress: Progress, **settings: Any) -> Pairwise:
    """Every pair of columns (or of those named in `only`), `jobs` at a time, each on one core."""
    if jobs < 0:
        raise ValueError(f"--jobs is {jobs} but must be 0 (one for each core) or more")
    pick = (lambda names: choose(names, only, "--columns")) if only else list
    columns, _ = read_columns(data, pick, settings.get("max_rows", MAX_ROWS), settings.get("seed", 0))
    if len(columns) < 2:
        raise ValueError(f"only {', '.join(columns)} is chosen of {data}: a pair needs two columns")
    for name, column in columns.items():
        try:  # before hours of work on the others
            pair({name: column}, {name: column}, settings.get("missing", "refuse"))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name}: {error} (--columns names those to take)") from error
    pairs = list(combinations(columns, 2))
    results: dict[tuple[str, str], Estimate] = {}
    workers = min(jobs or os.cpu_count() or 1, len(pairs))
    begun = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_leave_with_parent)
    with progress(f"{len(pairs)} pairs") as tick, begun as pool:
        waiting = {pool.submit(_one, {a: columns[a]}, {b: columns[b]}, settings): (a, b) for a, b in pairs}
        for done in as_completed(waiting):
            try:
                results[waiting[done]] = done.result()
            except (ValueError, TypeError):
                pool.shutdown(cancel_futures=True)
                raise
            except BrokenProcessPool as error:
                raise InputError("an estimate's process was killed, likely for want of memory: try --jobs 1") from error
            tick(len(results) / len(pairs))
    return Pairwise(tuple(columns), {pair: results[pair] for pair in pairs})


def _leave_with_parent() -> None:
    """A worker whose parent is killed would wait for work for ever."""

    def watch() -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _one(x: dict[str, Any], y: dict[str, Any], settings: dict[str, Any]) -> Estimate:
    torch.set_num_threads(1)
    return estimate_mi(x, y, **settings)
