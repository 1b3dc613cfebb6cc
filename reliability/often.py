"""`python -m reliability.often WORDS`: `mlcpc WORDS`, but with checkpoints so often that a short run has many.

And a few commands of its own, which mlcpc has not: `sweep-of-two RUNS`, `fetch URL MD5 FILE`.
"""

import dataclasses
import json
import os
import random
import resource
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from mlcpc import loop, ranks
from mlcpc.__main__ import leave
from mlcpc.classify import Training
from mlcpc.cli import main
from mlcpc.config import InputError, flags
from mlcpc.data.download import download
from mlcpc.distill.run import Distillation
from mlcpc.mi import staircase
from mlcpc.runs import Place, run_folder
from mlcpc.sweep import Job, schedule, sweep

__all__ = ["TINY", "command"]

EVERY = 0.03
"""seconds between checkpoints"""
TINY: dict[str, Any] = {"data": "digits", "epochs": 2, "batch": 32, "limit": 96}
TEACHER = Training("resnet8", **TINY)
STUDENT = Distillation("resnet8", "resnet8", "ml_cpc", "10:0.1", **TINY, negatives=40)


def command(words: list[str]) -> int:
    """Its exit code."""
    torch.set_num_threads(1)
    _often()
    _faults()
    try:
        if words[0] == "sweep-of-two":
            return _two(Path(words[1]))
        if words[0] == "fetch":
            download(words[1], words[2], Path(words[3]))
            return 0
    except InputError as error:
        print(f"mlcpc: {error}", file=sys.stderr)
        return 2
    return main(words)


def _faults() -> None:
    """Those that come by the environment: FSIZE bytes of a file at most; CLOCK: time.time() jumps."""
    if "FSIZE" in os.environ:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["FSIZE"]),) * 2)
    if "CLOCK" in os.environ:
        chance = random.Random(0)
        time.time = lambda: chance.uniform(-1e9, 4e9)


def _often() -> None:
    if "PATIENCE" in os.environ:
        ranks._PATIENCE = timedelta(seconds=float(os.environ["PATIENCE"]))
    original: Any = loop._Run.__init__

    def init(self: Any, learner: Any, data: Any, plan: Any, *more: Any) -> None:
        original(self, learner, data, dataclasses.replace(plan, checkpoint_seconds=EVERY, log_every=1), *more)

    loop._Run.__init__ = init  # type: ignore[assignment,method-assign]
    tick, folder, _ = staircase.climb.__defaults__ or ()
    staircase.climb.__defaults__ = (tick, folder, 3)


def _two(runs: Path) -> int:
    """A teacher and, after it, a student: each a command, one at a time."""
    place = Place(device="cpu", runs=runs)
    jobs: list[Job] = []
    for config, section in ((TEACHER, "train"), (STUDENT, "distill")):
        words = (section, *flags(config), *flags(place))
        program = (sys.executable, "-m", "reliability.often")
        after = tuple(job.name for job in jobs)
        jobs.append(Job(section, words, run_folder(config, section, runs), after, program))
    schedule.POLL = 0.02
    states = sweep(jobs, slots=1, devices=("cpu",))
    print(json.dumps({state.job.name: state.status for state in states}))
    return 0 if all(state.status == "done" for state in states) else 1


if __name__ == "__main__":
    leave(command(sys.argv[1:]))
