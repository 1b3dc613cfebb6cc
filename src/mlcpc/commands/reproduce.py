"""`mlcpc reproduce` and `mlcpc demo`."""

import csv
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path

import tyro
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mlcpc.commands.shown import known, progress
from mlcpc.commands.sweep import run_jobs
from mlcpc.objectives import label
from mlcpc.report import report
from mlcpc.reproduce import TARGETS, Check, reproduce
from mlcpc.reproduce.claims import Claim, summary
from mlcpc.reproduce.standing import standing
from mlcpc.runs import Place
from mlcpc.sweep import Job

__all__ = ["Demo", "Reproduce"]


@dataclass(frozen=True)
class Reproduce:
    """Compute and draw a figure or table of the paper, or judge its claims. Without a name: what there is and is done.

    A finished run is not repeated, an interrupted one goes on.
    """

    target: tyro.conf.Positional[str] = ""
    """figure1 … figure4, table1 … table4, timing, claims; all: those without training runs, at smoke scale every one"""
    scale: str = ""
    """which size of it, the largest if not given; `mlcpc reproduce` lists them with their cost"""
    out: Path = Path("results")
    """pictures and tables go to OUT/<target>/<scale>"""
    bits: bool = False
    """show bits instead of nats"""
    place: Place = field(default_factory=Place)

    def __call__(self) -> int:
        if not self.target:
            return _list_targets(self.out, self.place.runs)
        return _reproduce(self._steps(), self.out, self.place, self.bits)

    def _steps(self) -> list[tuple[str, str]]:
        """Targets and scales."""
        names = [known(self.target, [*TARGETS, "all"], "target")]
        if self.target == "all":
            names = [name for name, target in TARGETS.items() if target.jobs is None or self.scale == "smoke"]
            if self.scale:
                known(self.scale, sorted({scale for name in names for scale in TARGETS[name].scales}), "scale")
                without = [name for name in names if self.scale not in TARGETS[name].scales]
                if without:
                    print(f"mlcpc: {', '.join(without)}: no {self.scale} scale, left out", file=sys.stderr)
                names = [name for name in names if name not in without]
        scales = {name: list(TARGETS[name].scales) for name in names}
        return [(name, known(self.scale or scales[name][-1], scales[name], f"scale of {name}")) for name in names]


@dataclass(frozen=True)
class Demo:
    """The first useful thing, offline, in some two minutes: Figures 1 and 2, a short staircase, claims, a report."""

    out: Path = Path("demo")
    """everything is written below this folder"""
    bits: bool = False
    """show bits instead of nats"""

    def __call__(self) -> int:
        steps = [("figure1", "paper"), ("figure2", "paper"), ("figure3", "demo"), ("claims", "best")]
        results, runs = self.out / "results", self.out / "runs"
        code = _reproduce(steps, results, Place(runs=runs), self.bits)
        written = report([results, runs], self.out / "report")
        Console().print(f"  {written.path}", highlight=False, soft_wrap=True)
        return code


def _list_targets(out: Path, runs: Path) -> int:
    console = Console(highlight=False)
    for target in TARGETS.values():
        console.print(f"\n[bold]{target.name}[/]  {target.title}")
        table = Table.grid(padding=(0, 2, 0, 0))
        for width in (2, 9, 48, 28):
            table.add_column(width=width)
        for scale, (_, cost) in target.scales.items():
            here = str(standing(target, scale, out, runs))
            colour = "green" if here.startswith("done and") else "dim" if here == "nothing" else "yellow"
            table.add_row("", scale, cost, f"[{colour}]{here}[/]")
        console.print(table)
    console.print(f"\nResults in {out}, runs in {runs}. Write mlcpc reproduce NAME --scale SCALE.", soft_wrap=True)
    return 0


def _reproduce(steps: list[tuple[str, str]], out: Path, place: Place, bits: bool) -> int:
    """The runs of all of them first, in one sweep; then each is computed, if need be, and drawn."""
    jobs: dict[str, Job] = {}
    for name, scale in steps:
        make = TARGETS[name].jobs
        if make is not None:
            jobs |= {job.name: job for job in make(TARGETS[name].scales[scale].config, place)}
    if jobs:
        run_jobs(list(jobs.values()), place.device)
    results = []
    for name, scale in steps:
        with progress(f"{name} ({scale})") as tick:
            results.append((name, *reproduce(TARGETS[name], scale, out, place.runs, bits, tick)))
    checks = [(name, check) for name, _, checks in results for check in checks]
    console = Console()
    if checks:
        console.print(_table_of_checks(checks))
    for name, folder, _ in results:
        if name == "figure3":
            _table_of_stairs(folder / "figure3.csv", bits)
        if name == "claims":
            _table_of_claims(folder / "claims.csv")
        if TARGETS[name].jobs is not None:
            _table_of_rows(folder / f"{name}.csv")
    console.print("Open:")
    for name, folder, _ in results:
        shown = next(path for end in ("svg", "md") if (path := folder / f"{name}.{end}").exists())
        console.print(f"  {shown}", highlight=False, soft_wrap=True)
    return 0 if all(check.holds for _, check in checks) else 1


def _table_of_checks(checks: list[tuple[str, Check]]) -> Table:
    table = Table("figure", "what must hold", "", "measured", box=SIMPLE)
    for name, check in checks:
        table.add_row(name, check.claim, "[green]yes[/]" if check.holds else "[red]NO[/]", check.measured)
    return table


def _table_of_claims(path: Path) -> None:
    """The paper's claims with their verdicts. One that is not reproduced is a finding, not a failure of the command."""
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    found = [Claim(**{"scale" if k == "judged_by" else k: v for k, v in row.items() if k != "scale"}) for row in rows]
    table = Table("claim", "verdict", "measured", box=SIMPLE)
    for claim in found:
        if claim.scale:
            colour = "green" if claim.verdict.startswith("reproduced") else "red"
            table.add_row(claim.text, f"[{colour}]{claim.words}[/]", escape(claim.measured))
    needed = dict.fromkeys(name for claim in found if not claim.scale for name in claim.source.split(" and "))
    console = Console(highlight=False)
    if table.rows:
        console.print(table)
    console.print(f"Claims: {summary(found)}." + (f" To judge the rest: {', '.join(needed)}" if needed else ""))


def _table_of_rows(path: Path) -> None:
    """A table of the paper, its numbers beside ours; nothing where no run is done."""
    rows = list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []
    if not rows:
        return
    same = {name: rows[0][name] for name in rows[0] if len({row[name] for row in rows}) == 1}
    rows = [{name: "" if text == "nan" else text for name, text in row.items()} for row in rows]
    names = [name for name in rows[0] if name not in same and any(row[name] for row in rows)]
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    for name in names:
        width = max(len(word) for word in [*name.split("_"), *(row[name] for row in rows)])
        number = not any(row[name].strip("+-.0123456789") for row in rows)
        table.add_column(name.replace("_", " "), width=width, justify="right" if number else "left")
    for row in rows:
        table.add_row(*(row[name] for name in names))
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
