"""Kills: commands die by SIGKILL at random moments, are started again, and must end as if nothing had happened.

After each kill every file of the run's folders must still be readable; after the last resume all that the command made
must be equal, bit for bit, to what an undisturbed command makes (times aside), and nothing temporary may be left. Most
kills hit children forked from this warm process; torchrun and the jobs of a sweep are real new processes.
"""

import hashlib
import importlib
import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mlcpc import checkpoints
from reliability.processes import Started, alive, descendants, end, spawn, start
from reliability.record import ROOT, Deadline
from reliability.server import CONTENT, MD5, Server

__all__ = ["SUBJECTS", "Subject", "fingerprint", "run"]

KILLS = 200
PATIENCE = 120.0
"""seconds for anything to end by itself"""
WARM = ("sklearn.datasets", "torch._dynamo", "torch.distributed", "matplotlib.figure", "scipy.spatial", "rich.progress")
TIMES = ("seconds", "seconds_by_critic", "mean_seconds", "sd_seconds")
TINY = " --data digits --epochs 2 --batch 32 --limit 96 --device cpu --runs runs"


@dataclass(frozen=True)
class Subject:
    """What is killed."""

    words: tuple[str, ...]
    share: int
    """of the kills, relative to the others"""
    ranks: int = 1
    torchrun: bool = False
    """real new processes instead of forked ones"""
    prints: bool = False
    """what it prints belongs to what it makes"""


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TRAIN = words("train --network resnet8" + TINY)
DISTILL = words("distill --teacher resnet8 --student resnet8 --alpha 10:0.1 --negatives 40" + TINY)
PRETRAIN = words("pretrain --network resnet8 --alpha 10:0.1 --dim 16 --queue 100 --rate 0.03" + TINY)
PROBE = words("probe --network resnet8 --data digits --epochs 3 --limit 96 --device cpu --runs runs")
SUBJECTS = {
    "train": Subject(TRAIN, 3),
    "train, two ranks": Subject(TRAIN, 3, ranks=2),
    "train, torchrun": Subject(TRAIN, 1, ranks=2, torchrun=True),
    "distill": Subject(DISTILL, 4),
    "distill, two ranks": Subject(DISTILL, 3, ranks=2),
    "distill, torchrun": Subject(DISTILL, 1, ranks=2, torchrun=True),
    "pretrain": Subject(PRETRAIN, 4),
    "pretrain, two ranks": Subject(PRETRAIN, 3, ranks=2),
    "pretrain, torchrun": Subject(PRETRAIN, 1, ranks=2, torchrun=True),
    "probe": Subject(PROBE, 2),
    "staircase and figure": Subject(words("reproduce figure3 --scale smoke --out out --runs runs"), 3),
    "estimate": Subject(words("mi table.csv --x a --y b --fast --json"), 2, prints=True),
    "matrix": Subject(words("mi-matrix table.csv --out out --jobs 2"), 1),
    "report": Subject(words("report results --out out"), 2),
    "sweep": Subject(words("sweep-of-two runs"), 1),
    "download": Subject(words("fetch URL MD5 data/file"), 3),
}


def warm() -> None:
    """Import in this process what those that are forked from it would import again."""
    for name in WARM:
        importlib.import_module(name)
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def run(minutes: float, folder: Path) -> dict[str, Any]:
    """Until there have been KILLS kills, or the time is over; each subject at least once."""
    warm()
    deadline, chance = Deadline(minutes), random.Random(0)
    kills: Counter[str] = Counter()
    chains: Counter[str] = Counter()
    failures: list[str] = []
    with Server() as server:
        campaign = Campaign(folder, chance, server.url)
        while not deadline.over and sum(kills.values()) < KILLS:
            name = min(SUBJECTS, key=lambda name: (kills[name] / SUBJECTS[name].share, name))
            try:
                hit = campaign.chain(name)
            except Exception as error:  # told, and the campaign goes on
                failures.append(f"{name}: {type(error).__name__}: {error}")
                hit = 1
            kills[name] += hit
            chains[name] += 1
            shutil.rmtree(folder / "now", ignore_errors=True)
            if not failures or not failures[-1].startswith(f"{name}:"):
                (folder / "now.log").unlink(missing_ok=True)
            elif (folder / "now.log").exists():
                (folder / "now.log").rename(folder / f"failure-{len(failures)}.log")
            if len(failures) > 20:
                break
            print(f"  {sum(kills.values())} kills, {name}: {hit}", flush=True)
    return {
        "summary": f"{sum(kills.values())} kills of {len(kills)} kinds of work, {len(failures)} ended otherwise",
        "kills": sum(kills.values()),
        "by_subject": {name: {"kills": kills[name], "ends_compared": chains[name]} for name in kills},
        "slowest_stop_of_other_ranks_seconds": round(campaign.slowest, 1),
        "damaged_files_after_kills": campaign.damaged,
        "failures": failures,
    }


class Campaign:
    """Undisturbed ends by subject, made once, and how long they take."""

    def __init__(self, folder: Path, chance: random.Random, url: str) -> None:
        self.folder, self.chance, self.url = folder, chance, url
        self.wanted: dict[str, tuple[dict[str, str], float]] = {}
        self.slowest, self.damaged = 0.0, 0

    def begin(self, subject: Subject, folder: Path, environment: dict[str, str] | None = None) -> Started:
        folder.mkdir(parents=True, exist_ok=True)
        if "table.csv" in subject.words and not (folder / "table.csv").exists():
            a = np.linspace(0, 30, 400)
            rows = "".join(f"{x},{y}\n" for x, y in zip(np.sin(a), np.sin(a) + 0.3 * np.cos(17 * a), strict=True))
            (folder / "table.csv").write_text("a,b\n" + rows)
        if "report" in subject.words and not (folder / "results").exists():
            for name in ("figure1", "table1"):
                shutil.copytree(ROOT / "results" / name, folder / "results" / name)
        known = {"URL": self.url, "MD5": MD5}
        chosen = [known.get(word, word) for word in subject.words]
        if subject.torchrun:
            return spawn(chosen, folder, subject.ranks)
        return start(chosen, folder, subject.ranks, environment)

    def whole(self, name: str) -> tuple[dict[str, str], float]:
        """What it makes, and in how many seconds, without a fault."""
        if name not in self.wanted:
            subject, folder = SUBJECTS[name], self.folder / f"whole-{len(self.wanted)}"
            began = time.monotonic()
            self.finish(self.begin(subject, folder))
            seconds = time.monotonic() - began
            self.wanted[name] = fingerprint(folder, subject.prints), seconds
        return self.wanted[name]

    def chain(self, name: str) -> int:
        """Kill, resume, perhaps kill again, and compare the end; the number of kills that hit."""
        (wanted, seconds), subject, folder = self.whole(name), SUBJECTS[name], self.folder / "now"
        hit = 0
        for _ in range(self.chance.choice((1, 2, 3))):
            started = self.begin(subject, folder)
            started.wait(self.chance.uniform(0.02, 1.05) * seconds)
            if not started.ranks:
                break
            hit += self.kill(started, subject)
            self.readable(folder)
        self.finish(self.begin(subject, folder))
        found = fingerprint(folder, subject.prints)
        if found != wanted:
            odd = sorted(path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path))
            raise AssertionError(f"another end after {hit} kills: {', '.join(odd[:5])}")
        return hit

    def kill(self, started: Started, subject: Subject) -> int:
        """Everything at once, as when the power goes; or one rank, and the others must stop by themselves."""
        one = subject.ranks > 1 and self.chance.random() < 0.5
        below = [child for process in started.ranks for child in descendants(process)]
        if subject.torchrun and below:
            hit = sum(map(end, [self.chance.choice(below)] if one else below))
            hit += 0 if one else started.kill()
        else:
            hit = started.kill(self.chance.randrange(subject.ranks) if one else None)
        began = time.monotonic()
        if not started.wait(PATIENCE):
            raise AssertionError(f"the others did not stop within {PATIENCE:.0f} s: {started.said[-300:]}")
        if one:
            self.slowest = max(self.slowest, time.monotonic() - began)
        while any(map(alive, below)):  # those that a sweep guards leave by themselves
            if time.monotonic() - began > PATIENCE:
                raise AssertionError(f"children live on: {[child for child in below if alive(child)]}")
            time.sleep(0.01)
        return min(1, hit)

    def finish(self, started: Started) -> None:
        if not started.wait(PATIENCE):
            started.kill()
            raise AssertionError(f"it did not end: {started.said[-500:]}")
        if set(started.codes.values()) != {0}:
            raise AssertionError(f"exit codes {started.codes}: {started.said[-500:]}")

    def readable(self, folder: Path) -> None:
        """Whatever has its final name is whole; only the last line of metrics may be torn."""
        for path in folder.rglob("*"):
            if path.name.startswith(".") or not path.is_file():
                continue
            if path.suffix == ".json":
                json.loads(path.read_text())
            elif path.suffix == ".safetensors":
                checkpoints.load(path)
            elif path.suffix == ".jsonl":
                for line in path.read_bytes().split(b"\n")[:-1]:
                    json.loads(line)
            elif path.name == "file" and path.read_bytes() != CONTENT:
                raise AssertionError("a download has its name and is not whole")


def fingerprint(folder: Path, prints: bool = False) -> dict[str, str]:
    """Path → digest of everything below, times aside; a temporary file counts as a file too many."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and path.name not in (".lock", ".file.lock", "log.txt"):
            found[name] = hashlib.sha256(content(path)).hexdigest()
    if prints:
        text = folder.with_name(f"{folder.name}.log").read_text()
        found["printed"] = hashlib.sha256(text[text.rindex("{\n") :].encode()).hexdigest()
    return found


def content(path: Path) -> bytes:
    """Without what a clock put in."""
    if path.suffix == ".json":
        return json.dumps(timeless(json.loads(path.read_text()))).encode()
    if path.suffix == ".jsonl":
        return json.dumps([timeless(json.loads(line)) for line in path.read_text().splitlines()]).encode()
    if path.suffix == ".safetensors":  # whose header is written in any order
        return repr(_bytes(checkpoints.load(path))).encode()
    if path.suffix == ".pt":
        return repr(_bytes(timeless(torch.load(path, weights_only=True)))).encode()
    return path.read_bytes()


def timeless(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: timeless(value) for key, value in node.items() if key not in TIMES}
    return [timeless(value) for value in node] if isinstance(node, list) else node


def _bytes(node: Any) -> Any:
    if isinstance(node, dict):
        return sorted((str(key), _bytes(value)) for key, value in node.items())
    return node.numpy().tobytes() if hasattr(node, "numpy") else repr(node)


if __name__ == "__main__":
    sys.exit("python -m reliability crash")
