"""What there is to do, how far it is, and what its folder tells about it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from mlcpc.config import InputError
from mlcpc.runs import parse_json, read_json

__all__ = ["Job", "State", "check", "last_line", "look"]

TAIL = 8192
"""bytes of a log or of metrics that are read from the end"""


@dataclass(frozen=True)
class Job:
    """One command. It resumes by itself when it is started again."""

    name: str
    """unique, and shown"""
    arguments: tuple[str, ...]
    """of the program"""
    folder: Path
    """of its run: result.json there means done, metrics.jsonl shows progress; log.txt is written there"""
    after: tuple[str, ...] = ()
    """names of jobs that must be done first"""
    program: tuple[str, ...] = (sys.executable, "-m", "mlcpc")

    @property
    def done(self) -> bool:
        """Whether its result is there."""
        return (self.folder / "result.json").exists()


@dataclass
class State:
    """How far a job is."""

    job: Job
    status: str = "waiting"
    """waiting, running, done, failed; blocked: waits for one that failed"""
    attempts: int = 0
    """how often it was started by this sweep"""
    started: float | None = None
    """time.monotonic() of the newest attempt"""
    seconds: float = 0.0
    """of the newest attempt; of a finished job: of the whole run, where its result tells"""
    progress: float | None = None
    """in [0, 1]; None: not known"""
    left: float | None = None
    """seconds to go at the pace so far, where the run's metrics tell"""
    message: str = ""
    """why it failed, waits or is blocked: the last line it wrote"""
    worker: str = ""
    """where it runs"""


def check(jobs: Sequence[Job]) -> None:
    """Refuse names or folders used twice, and jobs that could never start."""
    names: set[str] = set()
    folders: dict[Path, str] = {}
    for job in jobs:
        if job.name in names:
            raise InputError(f"two jobs are called {job.name!r}: give each its own name")
        names.add(job.name)
        other = folders.setdefault(job.folder.absolute(), job.name)
        if other != job.name:
            raise InputError(f"jobs {other!r} and {job.name!r} both write to {job.folder}: give each its own folder")
    for job in jobs:
        for name in job.after:
            if name not in names:
                raise InputError(f"job {job.name!r} waits for {name!r}, which is no job of this sweep: add it")
    try:
        TopologicalSorter({job.name: job.after for job in jobs}).prepare()
    except CycleError as error:
        circle = " after ".join(repr(name) for name in reversed(error.args[1]))
        raise InputError(f"jobs wait for each other: {circle}. Take one `after` away") from error


def look(state: State) -> None:
    """Read from the run's folder how far it is; what cannot be read stays unknown."""
    folder = state.job.folder
    if state.status == "done":
        state.progress, state.left, state.message = 1.0, 0.0, ""
        seconds = _json(folder / "result.json").get("seconds")
        state.seconds = seconds if isinstance(seconds, int | float) else state.seconds
        return
    row, epochs = _newest_row(folder / "metrics.jsonl"), _json(folder / "config.json").get("epochs")
    try:
        done, seconds = (row["epoch"] + (row["kind"] == "epoch")) / epochs, row["seconds"]
        state.progress = min(1.0, max(0.0, done))
        state.left = seconds * (1 - done) / done if done > 0 else None
    except (KeyError, TypeError, ZeroDivisionError, OverflowError):
        state.progress = state.left = None


def last_line(path: Path, start: int = 0) -> tuple[str, str]:
    """The last line with something in it, and the end of the file that it stands in; from byte `start` on."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start, size - TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return "", ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[-1] if lines else ""), text


def _newest_row(path: Path) -> Any:
    """The last whole line of metrics.jsonl; the very last may still be in the writing."""
    rows = (parse_json(line.encode()) for line in reversed(last_line(path)[1].splitlines()))
    return next((row for row in rows if row is not None), None)


def _json(path: Path) -> dict[str, Any]:
    content = read_json(path)
    return content if isinstance(content, dict) else {}
