"""`mlcpc watch`: what all runs are doing, while they do it."""

import contextlib
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.box import SIMPLE
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from mlcpc.config import InputError
from mlcpc.sweep.seen import Glance, Seen

__all__ = ["Watch"]

ORDER = ("running", "failed", "stopped", "done")
ID = re.compile(r"-[0-9a-f]{10}(?=-|$)")
NARROW = 96
"""columns of a terminal below which the sections are left out"""
COLOURS = {"running": "green", "failed": "red", "stopped": "yellow", "done": "dim"}


@dataclass(frozen=True)
class Watch:
    """Show what all runs are doing; q or Ctrl-C ends it. Only reads, and the runs do not notice."""

    runs: tyro.conf.Positional[Path] = Path("runs")
    """the folder of runs, or one of its sections"""
    every: float = 1.0
    """seconds between looks"""
    once: bool = False
    """print the state and end; so it does where the output is no terminal"""

    def __call__(self) -> int:
        if not self.runs.is_dir():
            raise InputError(f"{self.runs} is no folder: write the one that --runs named, or start a run first")
        if self.every <= 0:
            raise InputError(f"every is {self.every} but must be above 0: write seconds, such as 1")
        glance, console = Glance(self.runs), Console()
        if self.once or not console.is_terminal:
            console.print(sheet(glance(), console.width))
            return 0
        stop, live = contextlib.suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False)
        with stop, _keys() as asked, live:
            ended = False
            while not ended:
                live.update(sheet(glance(), console.width, max(1, console.height - 6)), refresh=True)
                ended = asked(self.every)
        console.print(sheet(glance(), console.width, max(1, console.height - 6)))  # what stays in the terminal
        return 0


def sheet(seen: list[Seen], width: int = 120, rows: int | None = None) -> Table:
    """The totals, and a row a run, those that are running first. What does not fit into `rows` is counted only."""
    counts = Counter(run.status for run in seen)
    words = ", ".join(f"{counts[status]} {status}" for status in ORDER if counts[status]) or "no runs here"
    shown = sorted(seen, key=lambda run: ORDER.index(run.status))[:rows]
    words += f"; {len(seen) - len(shown)} not shown" if len(shown) < len(seen) else ""
    title = f"{len(seen)} runs: {words}" if seen else words
    table = Table(box=SIMPLE, title=title, title_justify="left", pad_edge=False, padding=(0, 0, 0, 1))
    sections = width >= NARROW
    if sections:
        table.add_column("section", no_wrap=True)
    table.add_column("run", overflow="fold", min_width=16)  # the one that gives way in a narrow terminal
    table.add_column("", no_wrap=True)
    for name in ("epoch", "loss", "estimate", "α", "top-1", "wrote"):
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    for run in shown:
        cells = _cells(run)
        table.add_row(*cells[not sections :], style=COLOURS[run.status] if run.status in ("failed", "done") else "")
        if run.message:
            message = Text(f"  {run.message}", style=COLOURS[run.status])
            table.add_row(*[""] * sections, message)
    return table


def _cells(run: Seen) -> list[str]:
    def number(name: str, text: str = "{:.3g}") -> str:
        return text.format(run.numbers[name]) if name in run.numbers else ""

    epochs = "" if run.epochs is None else f"{run.epoch or 0:g}/{run.epochs}"
    estimate = number("estimate") + number("ceiling", " of {:.3g}")
    accuracy = number("top1", "{:.1%}") or number("knn_top1", "{:.1%} k-NN")
    status = f"[{COLOURS[run.status]}]{run.status}[/]"
    age = "" if run.age is None else _age(run.age)
    where = [run.folder.parent.name, escape(ID.sub("", run.folder.name)), status]
    return [*where, epochs, number("loss"), estimate, number("alpha"), accuracy, age]


def _age(seconds: float) -> str:
    """
    >>> _age(3.2), _age(7000), _age(3e6)
    ('3 s', '117 m', '35 d')
    """
    for size, unit in ((1, "s"), (60, "m"), (3600, "h")):
        if seconds < 120 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """A function that waits so many seconds and says whether q was pressed; where there are no keys, it only waits."""

    def wait(seconds: float) -> bool:
        time.sleep(seconds)
        return False

    try:
        import select
        import termios
        import tty
    except ImportError:  # Windows
        yield wait
        return
    try:
        before = termios.tcgetattr(sys.stdin)
    except (termios.error, OSError, ValueError):  # nobody types there
        yield wait
        return

    def ask(seconds: float) -> bool:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        typed = os.read(sys.stdin.fileno(), 1024) if ready else b" "
        return not typed or b"q" in typed.lower()

    tty.setcbreak(sys.stdin)
    try:
        yield ask
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
