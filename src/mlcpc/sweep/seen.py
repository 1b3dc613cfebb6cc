"""What a run's folder tells to somebody who only looks: config.json, the end of metrics.jsonl, result.json, .lock.

Nothing is written or locked, so a run does not notice; of metrics only the end is read, and only what has changed, so
hundreds are looked at in a moment.
"""

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcpc.runs import parse_json, read_json
from mlcpc.sweep.jobs import last_line

__all__ = ["Glance", "Seen", "held_locks"]

TAIL = 65536
"""bytes that are read from the end of metrics.jsonl: more than the lines of an epoch"""
FRESH = 60.0
"""seconds in which a run that writes is taken to be running, where its lock is another machine's"""
LOCK = re.compile(r"FLOCK\s.*\s(\w+):(\w+):(\d+)\s")
STOPPED = re.compile(r"mlcpc: (stopped after|interrupted)")
FAILED = re.compile(r"(mlcpc: |[\w.]*(Error|Exception)\b)")
ACCURACY = ("top1", "knn_top1")


@dataclass(frozen=True)
class Seen:
    """One run, as it stands."""

    folder: Path
    status: str
    """running; done; stopped: it goes on when it is started again; failed"""
    epoch: float | None = None
    """how many are done"""
    epochs: int | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    """loss, estimate, ceiling, alpha, top1, knn_top1: the newest of each that there is"""
    age: float | None = None
    """seconds since it last wrote"""
    message: str = ""
    """why it failed, if its log says so"""

    @property
    def share(self) -> float | None:
        """Of its epochs, in [0, 1]."""
        if self.status == "done":
            return 1.0
        return None if self.epoch is None or not self.epochs else min(1.0, self.epoch / self.epochs)


class Glance:
    """Looks at all runs below a folder, again and again; what has not changed is not read again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.known: dict[Path, tuple[Any, Any]] = {}

    def __call__(self) -> list[Seen]:
        """Section by section, name by name."""
        locks = held_locks()
        return [self.see(folder, locks) for folder in sorted(_folders(self.root))]

    def see(self, folder: Path, locks: set[tuple[int, int]] | None) -> Seen:
        if _stamp(folder / "result.json") is not None:
            return self._finished(folder)
        epoch, numbers = self._once(folder / "metrics.jsonl", _newest) or (None, {})
        epochs = self._once(folder / "config.json", _epochs)
        written = max((s[0] for name in ("metrics.jsonl", "config.json") if (s := _stamp(folder / name))), default=0)
        age = max(0.0, time.time() - written / 1e9)
        status, message = "running", ""
        if not (_held(folder / ".lock", locks) or age < FRESH):
            message = self._once(folder / "log.txt", _failure) or ""
            status = "failed" if message else "stopped"
        return Seen(folder, status, epoch, epochs, numbers, age, message)

    def _finished(self, folder: Path) -> Seen:
        content = self._once(folder / "result.json", read_json)
        if not isinstance(content, dict) or "config" not in content:
            return Seen(folder, "failed", message="result.json is not a finished run's: delete it to compute it again")
        _, numbers = self._once(folder / "metrics.jsonl", _newest) or (None, {})
        epochs = _epochs_of(content["config"])
        numbers = {**numbers, **{name: content[name] for name in ACCURACY if isinstance(content.get(name), float)}}
        return Seen(folder, "done", epochs, epochs, numbers)

    def _once(self, path: Path, read: Any) -> Any:
        """What `read` makes of the file as it is now; None where there is none."""
        stamp = _stamp(path)
        if stamp is None:
            return None
        if self.known.get(path, (None, None))[0] != stamp:
            self.known[path] = stamp, read(path)
        return self.known[path][1]


def held_locks() -> set[tuple[int, int]] | None:
    """Device and inode of every file that is locked on this machine; None where the system does not tell.

    Trying a lock would tell too, but a run that started in that moment would be refused.
    """
    try:
        text = Path("/proc/locks").read_text()
    except OSError:
        return None
    return {(os.makedev(int(a, 16), int(b, 16)), int(inode)) for a, b, inode in LOCK.findall(text)}


def _held(path: Path, locks: set[tuple[int, int]] | None) -> bool:
    try:
        known = path.stat()
    except OSError:
        return False
    return locks is not None and (known.st_dev, known.st_ino) in locks


def _folders(root: Path) -> Iterator[Path]:
    """<root>/<section>/<run>, each with a config.json or a result.json; or root itself, or a section, is given."""
    for folder in [root, *_below(root), *(deep for section in _below(root) for deep in _below(section))]:
        if any((folder / name).is_file() for name in ("config.json", "result.json")):
            yield folder


def _below(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except OSError:
        return []


def _stamp(path: Path) -> tuple[int, int] | None:
    """Changes whenever the file does."""
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_mtime_ns, known.st_size


def _newest(path: Path) -> tuple[float | None, dict[str, float]]:
    """Epochs done, and the newest of each number, from the last lines that are whole."""
    epoch: float | None = None
    numbers: dict[str, float] = {}
    for line in reversed(_tail(path).splitlines()):
        if epoch is not None and not any(f'"{name}"' in line for name in ACCURACY):
            continue
        row = parse_json(line.encode())
        try:
            done = float(row["epoch"] + (row["kind"] == "epoch"))
        except (ValueError, LookupError, TypeError, OverflowError):
            continue
        names = ACCURACY if epoch is not None else ("loss", "estimate", "ceiling", "alpha", *ACCURACY)
        numbers |= {name: row[name] for name in names if isinstance(row.get(name), int | float)}
        epoch = done if epoch is None else epoch
        if any(name in numbers for name in ACCURACY):
            break
    return epoch, numbers


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _failure(path: Path) -> str:
    """The last words in a sweep's log, if they tell of a failure."""
    line, _ = last_line(path)
    return line.removeprefix("mlcpc: ") if FAILED.match(line) and not STOPPED.match(line) else ""


def _epochs(path: Path) -> int | None:
    return _epochs_of(read_json(path))


def _epochs_of(config: Any) -> int | None:
    """Of a run, or of a probe's linear classifier."""
    for part in (config, config.get("linear") if isinstance(config, dict) else None):
        if isinstance(part, dict) and isinstance(part.get("epochs"), int):
            return int(part["epochs"])
    return None
