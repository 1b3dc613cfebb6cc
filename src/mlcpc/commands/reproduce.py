"""`mlcpc reproduce` and `mlcpc demo`."""

import csv
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path

import tyro
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from mlcpc.commands.shown import known, progress
from mlcpc.commands.sweep import run_jobs
from mlcpc.objectives import label
from mlcpc.reproduce import TARGETS, Check, reproduce
from mlcpc.runs import Place

__all__ = ["Demo", "Reproduce"]


@dataclass(frozen=True)
class Reproduce:
    """Compute and draw a figure of the paper. Without a name: list what there is."""

    target: tyro.conf.Positional[str] = ""
    """figure1 … figure4, table1 … table4, timing; all: those that need no training runs"""
    scale: str = "paper"
    """which size of it; `mlcpc reproduce` lists them with their cost"""
    out: Path = Path("results")
    """pictures and tables go to OUT/<target>/<scale>"""
    bits: bool = False
    """show bits instead of nats"""
    place: Place = field(default_factory=Place)

    def __call__(self) -> int:
        if not self.target:
            return _list_targets()
        names = known(self.target, [*TARGETS, "all"], "target")
        quick = [name for name, target in TARGETS.items() if target.jobs is None]
        chosen = quick if names == "all" else [names]
        if names == "all":
            known(self.scale, sorted({scale for name in chosen for scale in TARGETS[name].scales}), "scale")
            without = [name for name in chosen if self.scale not in TARGETS[name].scales]
            if without:
                print(f"mlcpc: {', '.join(without)}: no {self.scale} scale, left out", file=sys.stderr)
            chosen = [name for name in chosen if name not in without]
        for name in chosen:
            known(self.scale, list(TARGETS[name].scales), f"scale of {name}")
        return _reproduce([(name, self.scale) for name in chosen], self.out, self.place, self.bits)


@dataclass(frozen=True)
class Demo:
    """The first useful thing, offline, in about two minutes: Figures 1 and 2, and a short staircase."""

    out: Path = Path("demo")
    """everything is written below this folder"""
    bits: bool = False
    """show bits instead of nats"""

    def __call__(self) -> int:
        steps = [("figure1", "paper"), ("figure2", "paper"), ("figure3", "demo")]
        return _reproduce(steps, self.out, Place(runs=self.out / "runs"), self.bits)


def _list_targets() -> int:
    table = Table("target", "what", "scale", "cost", box=SIMPLE)
    for target in TARGETS.values():
        for i, (scale, (_, cost)) in enumerate(target.scales.items()):
            table.add_row(*((target.name, target.title) if i == 0 else ("", "")), scale, cost)
    Console().print(table)
    return 0


def _reproduce(steps: list[tuple[str, str]], out: Path, place: Place, bits: bool) -> int:
    results = []
    for name, scale in steps:
        jobs = TARGETS[name].jobs
        if jobs is not None:
            run_jobs(jobs(TARGETS[name].scales[scale].config, place), place.device)
        with progress(f"{name} ({scale})") as tick:
            results.append((name, *reproduce(TARGETS[name], scale, out, place.runs, bits, tick)))
    console = Console()
    console.print(_table_of_checks([(name, check) for name, _, checks in results for check in checks]))
    for name, folder, _ in results:
        if name == "figure3":
            _table_of_stairs(folder / "figure3.csv", bits)
        if TARGETS[name].jobs is not None:
            _table_of_rows(folder / f"{name}.csv")
    console.print("Open:")
    for name, folder, _ in results:
        console.print(f"  {folder / name}.svg", highlight=False, soft_wrap=True)
    return 0 if all(check.holds for _, _, checks in results for check in checks) else 1


def _table_of_checks(checks: list[tuple[str, Check]]) -> Table:
    table = Table("figure", "what must hold", "", "measured", box=SIMPLE)
    for name, check in checks:
        table.add_row(name, check.claim, "[green]yes[/]" if check.holds else "[red]NO[/]", check.measured)
    return table


def _table_of_rows(path: Path) -> None:
    """A table of the paper, its numbers beside ours; nothing where no run is done."""
    rows = list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []
    if not rows:
        return
    same = {name: rows[0][name] for name in rows[0] if len({row[name] for row in rows}) == 1}
    names = [name for name in rows[0] if name not in same]
    table = Table(*(name.replace("_", " ") for name in names), box=SIMPLE)
    for row in rows:
        table.add_row(*("" if row[name] == "nan" else row[name] for name in names))
    console = Console()
    console.print("Top-1 in %, the paper's (its data and budget) beside ours; " + ", ".join(same.values()) + ":")
    console.print(table)


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
