"""The command line. Each command is a dataclass: its fields are the flags, its docstring the help.

tyro rather than typer: the flags come from dataclasses, which the configs are anyway, so nothing is declared twice.
"""

import contextlib
import csv
import io
import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

import mlcpc
from mlcpc.bounds import alpha_min, ceiling, is_lower_bound
from mlcpc.config import InputError
from mlcpc.mi.command import measure, pairwise, save_plot, table_rows
from mlcpc.objectives import label
from mlcpc.reproduce import TARGETS, Check, reproduce
from mlcpc.reproduce.target import Tick

__all__ = ["main"]


@dataclass(frozen=True)
class Reproduce:
    """Compute and draw a figure of the paper. Without a name: list what there is."""

    target: tyro.conf.Positional[str] = ""
    """figure1, figure2, figure3, timing, or all"""
    scale: str = "paper"
    """which size of it; `mlcpc reproduce` lists them with their cost"""
    out: Path = Path("results")
    """pictures and tables go to OUT/<target>/<scale>"""
    runs: Path = Path("runs")
    """finished computations are kept here and not repeated"""
    bits: bool = False
    """show bits instead of nats"""

    def __call__(self) -> int:
        if not self.target:
            return _list_targets()
        names = _known(self.target, [*TARGETS, "all"], "target")
        chosen = list(TARGETS) if names == "all" else [names]
        if names == "all":
            _known(self.scale, sorted({scale for target in TARGETS.values() for scale in target.scales}), "scale")
            without = [name for name in chosen if self.scale not in TARGETS[name].scales]
            if without:
                print(f"mlcpc: {', '.join(without)}: no {self.scale} scale, left out", file=sys.stderr)
            chosen = [name for name in chosen if name not in without]
        for name in chosen:
            _known(self.scale, list(TARGETS[name].scales), f"scale of {name}")
        return _reproduce([(name, self.scale) for name in chosen], self.out, self.runs, self.bits)


@dataclass(frozen=True)
class Demo:
    """The first useful thing, offline, in about two minutes: Figures 1 and 2, and a short staircase."""

    out: Path = Path("demo")
    """everything is written below this folder"""
    bits: bool = False
    """show bits instead of nats"""

    def __call__(self) -> int:
        steps = [("figure1", "paper"), ("figure2", "paper"), ("figure3", "demo")]
        return _reproduce(steps, self.out, self.out / "runs", self.bits)


@dataclass(frozen=True)
class Bounds:
    """Which α? The valid range for m candidates and n pairs, and what each α can report at most."""

    m: int
    """candidates per row: one positive and m-1 negatives (the batch size, for in-batch negatives)"""
    n: int
    """pairs in the batch"""
    alpha: tuple[float, ...] = ()
    """further values to look at"""
    bits: bool = False
    """show bits instead of nats"""

    def __call__(self) -> int:
        with _refusals():
            table = self._table()
        Console().print(table)
        return 0

    def _table(self) -> Table:
        lowest = alpha_min(self.m, self.n)
        table = Table(
            "α", f"ceiling ({'bits' if self.bits else 'nats'})", "ML-CPC is a lower bound", "CPC is a lower bound"
        )
        for alpha in sorted({lowest, min(1.0, self.m / 2), self.m / 2, *self.alpha}):
            top = ceiling(self.m, alpha) / (math.log(2) if self.bits else 1)
            words = ["yes" if is_lower_bound(alpha, self.m, self.n, name) else "no" for name in ("ml_cpc", "cpc")]
            table.add_row(f"{alpha!r}" + (" = α_{m,n}" if alpha == lowest else ""), f"{top:.3f}", *words)
        return table


@dataclass(frozen=True)
class Mi:
    """How much do columns of a file tell about each other? A lower bound on their mutual information."""

    data: tyro.conf.Positional[Path]
    """a CSV, TSV, Parquet, NPZ or NPY file, one row for each pair"""
    x: str
    """columns of the one side, separated by commas"""
    y: str
    """columns of the other side"""
    method: str = "ml_cpc"
    """or cpc, dv, nwj, smile, js, for comparison"""
    fast: bool = False
    """three times faster, and lower"""
    drop_missing: bool = False
    """leave out rows with missing values instead of refusing them"""
    seed: int = 0
    """the same seed gives the same number"""
    bits: bool = False
    """show bits instead of nats"""
    json: bool = False
    """print the result as JSON and nothing else"""
    plot: Path | None = None
    """also draw it, to a .svg, .png or .pdf"""

    def __call__(self) -> int:
        missing = "drop" if self.drop_missing else "refuse"
        settings = {"method": self.method, "fast": self.fast, "missing": missing, "seed": self.seed, "bits": self.bits}
        with _refusals():
            result = measure(self.data, self.x, self.y, _quiet if self.json else _progress, **settings)
            if self.plot:
                save_plot(result, self.plot)
        if self.json:
            print(json.dumps(result.to_dict(), indent=1))
            return 0
        table = Table("", result.unit, box=SIMPLE)
        for row in table_rows(result):
            table.add_row(*row)
        console = Console()
        console.print(table)
        for warning in result.warnings:
            console.print(f"Note: {warning}.", highlight=False, markup=False)
        console.print(result.sentence(self.x, self.y), highlight=False, markup=False)
        return 0


@dataclass(frozen=True)
class MiMatrix:
    """The mutual information of every pair of columns of a file: a table and a heat map."""

    data: tyro.conf.Positional[Path]
    """a CSV, TSV, Parquet, NPZ or NPY file"""
    columns: str = ""
    """only these, separated by commas"""
    out: Path = Path("mi_matrix")
    """mi_matrix.csv, .json and .svg are written below this folder"""
    jobs: int = 0
    """pairs at a time; 0: one for each core"""
    fast: bool = True
    """a third of the training; --no-fast for all of it"""
    drop_missing: bool = False
    """leave out rows with missing values instead of refusing them"""
    bits: bool = False
    """show bits instead of nats"""

    def __call__(self) -> int:
        missing = "drop" if self.drop_missing else "refuse"
        settings = {"fast": self.fast, "missing": missing, "bits": self.bits}
        with _refusals():
            found = pairwise(self.data, self.columns, self.jobs, _progress, **settings)
        paths = found.save(self.out)
        table = Table("", *found.names, box=SIMPLE)
        for name, values in zip(found.names, found.matrix(), strict=True):
            table.add_row(name, *("" if math.isnan(value) else f"{value:.2f}" for value in values))
        console = Console()
        console.print(f"Lower bounds, in {'bits' if self.bits else 'nats'}:")
        console.print(table)
        for path in paths:
            console.print(f"  {path}", highlight=False, soft_wrap=True)
        return 0


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """What these commands' functions refuse came from the command line or the file it names."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from error


ABOUT = "Multi-label contrastive predictive coding: losses, bounds, mutual information, and the figures of the paper."
COMMANDS: Any = (
    Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Bounds, tyro.conf.subcommand("bounds")]
    | Annotated[Mi, tyro.conf.subcommand("mi")]
    | Annotated[MiMatrix, tyro.conf.subcommand("mi-matrix")]
)


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Exit code 0: done; 1: a check failed; 2: bad input, said in one line; 130: interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):  # a terminal without α shows a ? rather than a traceback
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if arguments[:2] == ["mi", "matrix"]:
        arguments = ["mi-matrix", *arguments[2:]]
    if arguments in (["--version"], ["-V"]):
        print(f"mlcpc {mlcpc.__version__}")
        return 0
    try:
        with _one_line_errors():
            command: Reproduce | Demo | Bounds | Mi | MiMatrix = tyro.cli(
                COMMANDS, prog="mlcpc", description=ABOUT, args=arguments
            )
        return command()
    except (InputError, OSError) as error:
        print(f"mlcpc: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("mlcpc: interrupted; finished runs are kept", file=sys.stderr)
        return 130


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    """tyro explains bad input in a box; keep its sentence, and the exit code 2."""
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            yield
    except SystemExit as stop:
        if stop.code == 2:
            lines = [line.strip("│ ") for line in box.getvalue().splitlines() if "╭" not in line and "╰" not in line]
            sentence = re.split(r"─{3,}", " ".join(lines))[0].strip().rstrip(".")
            print(f"mlcpc: {sentence}. See mlcpc --help", file=sys.stderr)
        raise


def _known(value: str, choices: list[str], what: str) -> str:
    if value not in choices:
        raise InputError(f"{what} is {value!r}, which is not known: write one of {', '.join(choices)}")
    return value


def _list_targets() -> int:
    table = Table("target", "what", "scale", "cost", box=SIMPLE)
    for target in TARGETS.values():
        for i, (scale, (_, cost)) in enumerate(target.scales.items()):
            table.add_row(*((target.name, target.title) if i == 0 else ("", "")), scale, cost)
    Console().print(table)
    return 0


def _reproduce(steps: list[tuple[str, str]], out: Path, runs: Path, bits: bool) -> int:
    results = []
    for name, scale in steps:
        with _progress(f"{name} ({scale})") as tick:
            results.append((name, *reproduce(TARGETS[name], scale, out, runs, bits, tick)))
    console = Console()
    console.print(_table_of_checks([(name, check) for name, _, checks in results for check in checks]))
    for name, folder, _ in results:
        if name == "figure3":
            _table_of_stairs(folder / "figure3.csv", bits)
    console.print("Open:")
    for name, folder, _ in results:
        console.print(f"  {folder / name}.svg", highlight=False, soft_wrap=True)
    return 0 if all(check.holds for _, _, checks in results for check in checks) else 1


@contextlib.contextmanager
def _progress(title: str) -> Iterator[Tick]:
    columns = (TextColumn("{task.description:<18}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda done: bar.update(task, completed=done)
        bar.update(task, completed=1.0)


@contextlib.contextmanager
def _quiet(title: str) -> Iterator[Tick]:
    yield lambda done: None


def _table_of_checks(checks: list[tuple[str, Check]]) -> Table:
    table = Table("figure", "what must hold", "", "measured", box=SIMPLE)
    for name, check in checks:
        table.add_row(name, check.claim, "[green]yes[/]" if check.holds else "[red]NO[/]", check.measured)
    return table


def _table_of_stairs(path: Path, bits: bool) -> None:
    rows = list(csv.DictReader(path.read_text().splitlines()))
    levels = list(dict.fromkeys(row["mi_true"] for row in rows))
    unit = math.log(2) if bits else 1

    def numbers(texts: list[str]) -> list[str]:
        return [f"{float(text) / unit:.2f}" for text in texts]

    table = Table(
        "",
        *(f"stair {i + 1}" if i == 0 else str(i + 1) for i in range(len(levels))),
        "ceiling",
        "guaranteed",
        box=SIMPLE,
    )
    table.add_row("truth", *numbers(levels), "", "")
    several = len({row["critic"] for row in rows}) > 1
    for i in range(0, len(rows), len(levels)):
        stairs = rows[i : i + len(levels)]
        method = label(stairs[0]["objective"], f"{float(stairs[0]['alpha']):.2g}")
        method += f", {stairs[0]['critic']}" if several else ""
        guaranteed = "yes" if stairs[0]["lower_bound"] == "True" else "no"
        table.add_row(method, *numbers([s["plateau_mean"] for s in stairs] + [stairs[0]["ceiling"]]), guaranteed)
    console = Console()
    console.print(f"Estimates on the staircase, in {'bits' if bits else 'nats'} (mean of each stair's last quarter):")
    console.print(table)
