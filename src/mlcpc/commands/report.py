"""`mlcpc report`: the page to read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mlcpc.report import report

__all__ = ["Report"]


@dataclass(frozen=True)
class Report:
    """Write one page with the paper's figures and tables beside what was measured here, and a page for each run."""

    sources: tyro.conf.Positional[tuple[Path, ...]] = ()
    """folders of results or of runs, or that hold such; none: results/ and runs/"""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report")
    """the page is OUT/index.html"""
    format: str = "html"
    """html: a page that needs no network; md: the same as Markdown"""

    def __call__(self) -> int:
        written = report(self.sources, self.out, self.format)
        for note in written.notes:
            print(note)
        print(f"{written.path}: {written.results} results, {written.runs} runs")
        return 0
