"""Reads the folders of `mlcpc reproduce` and of runs into plain data. What is missing, cut off, unreadable or of
another version becomes a sentence in `notes`; nothing here trusts a file."""

import csv
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import mlcpc
from mlcpc.config import InputError
from mlcpc.report.scales import number
from mlcpc.reproduce import TARGETS
from mlcpc.runs import parse_json

__all__ = ["Evidence", "Found", "Run", "Sheet", "Unusable", "find", "read_evidence", "read_run"]

SECTIONS = ("train", "distill", "pretrain", "probe")
"""in which order runs are shown; a probe's encoder before the probe"""
_DEEPEST = 4
_MOST_LINES = 200_000
"""of a metrics.jsonl; nobody looks at more, and a broken disk may hold any number"""


class Unusable(Exception):  # noqa: N818  it is no error of the program
    """A file is not what the report needs; the message is a sentence for the reader."""


@dataclass(frozen=True)
class Sheet:
    """A CSV file."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, str], ...]

    def need(self, *columns: str) -> None:
        """Raise `Unusable` unless it has rows, and these columns."""
        missing = [name for name in columns if name not in self.columns]
        if missing:
            raise Unusable(f"{self.name} has no column {', '.join(missing)}: it was written by another version")
        if not self.rows:
            raise Unusable(f"{self.name} has no rows")


@dataclass(frozen=True)
class Evidence:
    """What `mlcpc reproduce TARGET --scale SCALE` left."""

    folder: Path
    target: str
    scale: str
    checks: tuple[tuple[str, bool, str], ...] = ()
    """claim, whether it holds, what was measured"""
    facts: dict[str, Any] = field(default_factory=dict)
    sheets: dict[str, Sheet] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def sheet(self, name: str) -> Sheet:
        """The CSV of that name; raises `Unusable` where there is none."""
        if name not in self.sheets:
            raise Unusable(f"{name}.csv is missing, so there is nothing to draw")
        return self.sheets[name]


@dataclass(frozen=True)
class Run:
    """What a run left."""

    folder: Path
    section: str
    status: str
    """done; unfinished: it wrote lines, but no result; idle: it wrote nothing but its settings; broken"""
    config: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    rows: tuple[dict[str, Any], ...] = ()
    """of metrics.jsonl"""
    notes: tuple[str, ...] = ()
    written: str = ""
    """when a file of it was last written"""

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def environment(self) -> dict[str, Any]:
        return as_dict(self.result.get("environment"))


@dataclass(frozen=True)
class Found:
    """Folders, in order, and what is to be said of the places that were searched."""

    evidence: tuple[Path, ...]
    runs: tuple[Path, ...]
    notes: tuple[str, ...]


def find(sources: Iterable[Path]) -> Found:
    """Every folder of results and of runs in `sources`, which may be such folders or hold them.

    Without sources: results/ and runs/ here, whichever there are.
    """
    given = list(sources)
    for path in given:
        if not path.is_dir():
            what = "is a file" if path.exists() else "does not exist"
            raise InputError(f"{path} {what}: give a folder of results or of runs, such as results/ or runs/")
    notes = []
    evidence: dict[Path, Path] = {}
    runs: dict[Path, Path] = {}
    for path in given or [Path("results"), Path("runs")]:
        before = len(evidence) + len(runs)
        for folder, kind in _walk(path, 0) if path.is_dir() else ():
            (evidence if kind == "evidence" else runs).setdefault(folder.resolve(), folder)
        if len(evidence) + len(runs) == before:
            notes.append(f"{path}/ holds no results and no runs." if path.is_dir() else f"There is no {path}/ here.")
    order = {name: i for i, name in enumerate(TARGETS)}
    shown = sorted(evidence.values(), key=lambda f: (order.get(f.parent.name, len(order)), f.parent.name, f.name))
    kinds = {name: i for i, name in enumerate(SECTIONS)}
    every = sorted(runs.values(), key=lambda f: (kinds.get(f.parent.name, len(kinds)), f.parent.name, f.name))
    return Found(tuple(shown), tuple(every), tuple(notes))


def _walk(folder: Path, depth: int) -> Iterator[tuple[Path, str]]:
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
            names = {entry.name for entry in listed}
            below = [Path(entry.path) for entry in listed if entry.is_dir() and not entry.name.startswith(".")]
    except OSError:
        return
    here = folder.resolve()
    tables = here.parent.name in TARGETS and any(name.endswith(".csv") for name in names)
    if "checks.json" in names or tables:
        yield folder, "evidence"
    elif names & {"config.json", "result.json", "metrics.jsonl"}:
        yield folder, "run"
    elif depth < _DEEPEST:
        for each in below:
            yield from _walk(each, depth + 1)


def read_evidence(folder: Path) -> Evidence:
    """Of one target and scale; target and scale are the folder's names."""
    here = folder.resolve()
    facts, notes = _object(folder / "checks.json")
    checks, notes = [], list(notes)
    for item in dicts(facts.get("checks")):
        if isinstance(item.get("holds"), bool):
            checks.append((str(item.get("claim", "")), item["holds"], str(item.get("measured", ""))))
        else:
            notes.append("checks.json holds a check that is none of ours; it is left out.")
    if facts and "checks" not in facts:
        notes.append("checks.json holds no checks: it was written by another version.")
    for key, name in (("target", here.parent.name), ("scale", here.name)):
        if isinstance(facts.get(key), str) and facts[key] != name:
            notes.append(f"checks.json says {key} {facts[key]}, the folder {name}: the folder is believed.")
    sheets = {}
    for path in sorted(folder.glob("*.csv")):
        sheet, trouble = _sheet(path)
        notes += trouble
        if sheet is not None:
            sheets[path.stem] = sheet
    notes += _version(as_dict(facts.get("environment"))) if facts else []
    return Evidence(folder, here.parent.name, here.name, tuple(checks), facts, sheets, tuple(notes))


def read_run(folder: Path) -> Run:
    """Finished or not."""
    here = folder.resolve()
    notes: list[str] = []
    result, trouble = _object(folder / "result.json") if (folder / "result.json").exists() else ({}, [])
    notes += trouble
    config, trouble = _object(folder / "config.json")
    config = config or as_dict(result.get("config"))
    notes += trouble if not config else []
    rows, trouble = _lines(folder / "metrics.jsonl")
    notes += trouble
    if result:
        missing = [name for name in ("config", "seconds", "environment") if name not in result]
        if missing:
            notes.append(f"result.json has no {', '.join(missing)}: it is of another version, or of another program.")
        notes += _version(as_dict(result.get("environment")))
        status = "done"
    elif (folder / "result.json").exists():
        status = "broken"
    else:
        status = "unfinished" if rows else "idle" if config else "broken"
    return Run(folder, here.parent.name, status, config, result, rows, tuple(notes), _written(folder))


def as_dict(value: object) -> dict[str, Any]:
    """Itself if it is one, else an empty one."""
    return value if isinstance(value, dict) else {}


def dicts(value: object) -> list[dict[str, Any]]:
    """Those of a list; of anything else none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _object(path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, [f"{path.name} is missing."]
    except OSError as error:
        return {}, [f"{path.name} cannot be read: {error.strerror}."]
    except (ValueError, RecursionError):
        size = path.stat().st_size
        return {}, [f"{path.name} is {'empty' if size == 0 else 'no JSON: it is damaged, or was cut off'}."]
    if not isinstance(stored, dict):
        return {}, [f"{path.name} holds a {type(stored).__name__}, not an object of names and values."]
    return stored, []


def _sheet(path: Path) -> tuple[Sheet | None, list[str]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = list(csv.reader(text.splitlines(), strict=False))
    except (OSError, csv.Error) as error:
        return None, [f"{path.name} cannot be read: {error}."]
    if not lines:
        return None, [f"{path.name} is empty."]
    columns = tuple(lines[0])
    whole = [line for line in lines[1:] if len(line) == len(columns)]
    ragged = len(lines) - 1 - len(whole)
    notes = [f"{path.name}: {_times(ragged, 'row')} with another number of cells left out."] if ragged else []
    rows = tuple(dict(zip(columns, line, strict=True)) for line in whole)
    return Sheet(path.name, columns, rows), notes


def _lines(path: Path) -> tuple[tuple[dict[str, Any], ...], list[str]]:
    """Of metrics.jsonl; a killed run may leave half a line."""
    if not path.exists():
        return (), []
    rows: list[dict[str, Any]] = []
    bad, last_bad = 0, False
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for i, line in enumerate(file):
                if i == _MOST_LINES:
                    return tuple(rows), [f"metrics.jsonl has more than {_MOST_LINES:,} lines; the rest is not shown."]
                row = parse_json(line.encode())
                last_bad = not isinstance(row, dict)
                if isinstance(row, dict):
                    rows.append(row)
                else:
                    bad += 1
    except OSError as error:
        return tuple(rows), [f"metrics.jsonl cannot be read: {error.strerror}."]
    if bad == 1 and last_bad:
        return tuple(rows), [f"The last line of metrics.jsonl is cut off; {_times(len(rows), 'line')} before it read."]
    return tuple(rows), [f"{_times(bad, 'line')} of metrics.jsonl cannot be read and left out."] if bad else []


def _version(environment: dict[str, Any]) -> list[str]:
    theirs = environment.get("mlcpc")
    if theirs is None:
        return ["It does not say by which version of mlcpc it was made."]
    here = mlcpc.__version__
    return [] if theirs == here else [f"Made by mlcpc {theirs}; this report is by {here}, and may misread it."]


def _written(folder: Path) -> str:
    times = []
    for name in ("result.json", "metrics.jsonl", "config.json"):
        try:
            times.append((folder / name).stat().st_mtime)
        except OSError:
            continue
    return datetime.fromtimestamp(max(times)).strftime("%Y-%m-%d %H:%M") if times else ""


def _times(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def column(rows: Iterable[dict[str, Any]], name: str) -> list[float]:
    """Numbers of a column, NaN where there is none."""
    return [number(row.get(name)) for row in rows]
