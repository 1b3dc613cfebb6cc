"""Hostile files: every reader is fed seeds, what once went wrong (corpus/) and mutations of both.

Guided by coverage: an input that reaches lines of mlcpc which none before it reached is kept and mutated further. A
defect is any exception but InputError and OSError, a crash, more than SECONDS or MEMORY for one file, and any try to
write outside the file's folder, to start a process or to open a connection. Each reader runs in a process of its own.
"""

import contextlib
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

from mlcpc.config import InputError
from reliability.mutate import mutated
from reliability.parsers import PARSERS, Parser
from reliability.record import ROOT, Deadline

__all__ = ["Watch", "run"]

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 10
"""for one file of at most LARGEST bytes"""
MEMORY = 3 * 2**30
"""bytes, likewise, beyond what the process has"""
LARGEST = 200_000
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "pty.spawn")
WRITES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.symlink", "os.link", "os.truncate")
MLCPC = str(ROOT / "src" / "mlcpc")


def run(minutes: float, folder: Path) -> dict[str, Any]:
    """Each reader for its share of the time."""
    found: dict[str, Any] = {}
    for seed, name in enumerate(PARSERS):
        deadline = Deadline(minutes / len(PARSERS))
        told: dict[str, Any] = {
            "files": 0,
            "refused": 0,
            "read": 0,
            "lines": 0,
            "kept": 0,
            "seconds": 0.0,
            "defects": [],
        }
        found[name] = told
        while deadline.left > 0:
            piece = one(name, deadline.left, seed + 1000 * told["files"], folder / name)
            for key in ("files", "refused", "read", "seconds"):
                told[key] += piece[key]
            told["lines"], told["kept"] = max(told["lines"], piece["lines"]), max(told["kept"], piece["kept"])
            told["defects"] = list(dict.fromkeys([*told["defects"], *piece["defects"]]))
        told["seconds"] = round(told["seconds"])
        print(f"  {name}: {told}", flush=True)
    files = sum(told["files"] for told in found.values())
    failures = [f"{name}: {defect}" for name, told in found.items() for defect in told["defects"]]
    return {
        "summary": f"{files} files for {len(found)} readers, {len(failures)} defects",
        "files": files,
        "seconds_a_file": SECONDS,
        "memory_a_file": MEMORY,
        "readers": found,
        "failures": failures,
    }


def one(name: str, seconds: float, seed: int, folder: Path) -> dict[str, Any]:
    """A reader in a process of its own; when that dies, the file it was reading is the defect."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "told.json"
    out.unlink(missing_ok=True)
    words = [sys.executable, "-m", "reliability.hostile", name, str(seconds), str(seed), str(folder)]
    child = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    told: dict[str, Any] = json.loads(out.read_text())
    if child.returncode:
        last = next(iter(sorted((folder / "in").glob("*"))), None)
        kept = folder / f"crash-{seed}"
        if last is not None:
            shutil.copy(last, kept)
        told["defects"].append(f"died with {child.returncode}: {child.stderr[-300:]} ({kept})")
    return told


class Watch:
    """While it is on: what is done outside `allowed` that a reader must not do. An audit hook cannot be taken off."""

    def __init__(self, allowed: Path) -> None:
        self.allowed, self.on, self.seen = str(allowed.resolve()), False, list[str]()
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in FORBIDDEN or (event in WRITES and not self.inside(arguments[-1 if event == "os.symlink" else 0])):
            self.seen.append(f"{event} {arguments[:2]!r}")
        elif event == "open" and writing(*arguments[1:3]) and not self.inside(arguments[0]):
            self.seen.append(f"open for writing {arguments[0]!r}")

    def taken(self) -> list[str]:
        """What was seen since the last call."""
        seen, self.seen = self.seen, []
        return seen

    def inside(self, path: Any) -> bool:
        if isinstance(path, int):
            return True
        whole = os.path.realpath(os.fsdecode(path))
        return whole.startswith((self.allowed, "/dev/")) or "__pycache__" in whole


def writing(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


class Lines:
    """The lines of mlcpc that were reached since it was made."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int]] = set()
        self.new = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self.line if frame.f_code.co_filename.startswith(MLCPC) else None

    def line(self, frame: FrameType, event: str, argument: Any) -> Any:
        at = frame.f_code.co_filename, frame.f_lineno
        if at not in self.seen:
            self.seen.add(at)
            self.new = True
        return self.line


class TooLongError(BaseException):
    """A file took more than SECONDS; not an Exception, so that no reader takes it for a damaged file."""


def late(number: int, frame: Any) -> None:
    raise TooLongError


class Session:
    """One reader's time."""

    def __init__(self, name: str, seed: int, folder: Path, watch: Watch | None = None) -> None:
        self.parser: Parser = PARSERS[name]
        self.chance, self.folder = random.Random(seed), folder
        self.place, self.watch = folder / "in", watch
        self.told: dict[str, Any] = {"files": 0, "refused": 0, "read": 0, "defects": []}
        self.lines = Lines()
        self.kept = [*self.parser.seeds(), *(path.read_bytes() for path in sorted((CORPUS / name).glob("*")))]
        self.given = len(self.kept)

    def go(self, seconds: float) -> None:
        deadline = Deadline(seconds / 60)
        for content in self.kept[:]:  # what is loaded at first use is loaded now
            self.feed(content, watched=False)
        for content in self.kept[:]:
            self.feed(content)
        while not deadline.over:
            self.again()

    def again(self) -> None:
        """One more file."""
        base, other = self.chance.choice(self.kept), self.chance.choice(self.kept)
        content = mutated(base, other, self.parser.unpack, self.chance)
        if len(content) <= max(LARGEST, len(base)) and self.feed(content):
            self.kept.append(content)

    def feed(self, content: bytes, watched: bool = True) -> bool:
        """Whether it reached new lines."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir(parents=True)
        path = self.place / self.parser.file
        path.write_bytes(content)
        self.lines.new = False
        self.told["files"] += 1
        error = self.attempt(path, watched)
        if error is None:
            self.told["read"] += 1
        elif isinstance(error, InputError | OSError):
            self.told["refused"] += 1
            if "\n" in str(error):
                self.defect(content, f"a refusal of several lines: {str(error)[:100]!r}")
        elif isinstance(error, TooLongError):
            self.defect(content, f"more than {SECONDS} s")
        else:
            spot = traceback.extract_tb(error.__traceback__)[-1]
            ours = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(MLCPC)]
            spot = ours[-1] if ours else spot
            where = f"{Path(spot.filename).name}, {spot.name}: {spot.line}"
            self.defect(content, f"{type(error).__name__} in {where} ({str(error)[:80]!r})", where)
        if self.watch:
            for deed in self.watch.taken():
                self.defect(content, f"a reader did {deed}")
        return self.lines.new

    def attempt(self, path: Path, watched: bool) -> BaseException | None:
        """What was raised."""
        signal.alarm(SECONDS)
        try:
            if self.watch:
                self.watch.on = watched
            sys.settrace(self.lines)
            self.parser.read(path)
        except (Exception, TooLongError) as error:
            return error
        finally:
            sys.settrace(None)
            if self.watch:
                self.watch.on = False
            signal.alarm(0)
        return None

    def defect(self, content: bytes, words: str, key: str = "") -> None:
        """Each kind once, with the file that shows it."""
        kinds = self.told.setdefault("kinds", [])
        if (key or words) in kinds:
            return
        kinds.append(key or words)
        path = self.folder / f"defect-{hashlib.sha256(content).hexdigest()[:12]}"
        path.write_bytes(content)
        self.told["defects"].append(words)

    def save(self, seconds: float) -> None:
        counts = {"lines": len(self.lines.seen), "kept": len(self.kept), "seconds": seconds}
        (self.folder / "told.json").write_text(json.dumps(self.told | counts))
        for content in self.kept[self.given :]:
            (self.folder / "kept").mkdir(exist_ok=True)
            (self.folder / "kept" / hashlib.sha256(content).hexdigest()[:12]).write_bytes(content)


def main(name: str, seconds: float, seed: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(1000)
    started = time.monotonic()
    session = Session(name, seed, folder, Watch(folder / "in"))
    session.save(0.0)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))
    signal.signal(signal.SIGALRM, late)
    with contextlib.suppress(KeyboardInterrupt):
        session.go(seconds)
    session.save(time.monotonic() - started)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
