"""`mlcpc mi` and `mlcpc mi-matrix`."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mlcpc.commands.shown import progress, quiet, refusals
from mlcpc.mi.command import check_plot, measure, pairwise, save_plot, table_rows

__all__ = ["Mi", "MiMatrix"]


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
        with refusals():
            if self.plot:
                check_plot(self.plot)
            result = measure(self.data, self.x, self.y, quiet if self.json else progress, **settings)
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
        with refusals():
            found = pairwise(self.data, self.columns, self.jobs, progress, **settings)
        paths = found.save(self.out)
        names = [escape(name) for name in found.names]
        table = Table("", *names, box=SIMPLE)
        for name, values in zip(names, found.matrix(), strict=True):
            table.add_row(name, *("" if math.isnan(value) else f"{value:.2f}" for value in values))
        console = Console()
        console.print(f"Lower bounds, in {'bits' if self.bits else 'nats'}:")
        console.print(table)
        for path in paths:
            console.print(f"  {path}", highlight=False, markup=False, soft_wrap=True)
        return 0
