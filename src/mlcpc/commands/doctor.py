"""`mlcpc doctor`."""

import json as writer
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from mlcpc.doctor import examine

__all__ = ["Doctor"]

_MARKS = {"ok": "[green]✓[/]", "note": "[blue]·[/]", "warning": "[yellow]![/]", "broken": "[red]✗[/]"}


@dataclass(frozen=True)
class Doctor:
    """What this machine brings and lacks, and what would be slow: for a first look, and for a report of a bug."""

    runs: Path = Path("runs")
    """the folder that runs would go to"""
    data_dir: Path | None = None
    """the folder of data sets; otherwise $MLCPC_DATA or the cache"""
    json: bool = False
    """print the findings as JSON and nothing else"""

    def __call__(self) -> int:
        findings = examine(self.runs, self.data_dir)
        broken = sum(finding.state == "broken" for finding in findings)
        warned = sum(finding.state == "warning" for finding in findings)
        if self.json:
            print(writer.dumps([asdict(finding) for finding in findings], indent=1))
            return 1 if broken else 0
        console = Console()
        width = max(len(finding.what) for finding in findings)
        for finding in findings:
            line = f"{_MARKS[finding.state]} {escape(f'{finding.what:<{width}}')}  {escape(finding.found)}"
            console.print(line, highlight=False, soft_wrap=True)
            if finding.advice:
                console.print(f"  {'':<{width}}  → {escape(finding.advice)}", highlight=False, soft_wrap=True)
        end = f"{broken} broken, {warned} to look at" if broken or warned else "all is well"
        console.print(f"{len(findings)} findings: {end}", highlight=False)
        return 1 if broken else 0
