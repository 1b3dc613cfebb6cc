"""One attempt at a job: its process, its log, and how it ended."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mlcpc.sweep.jobs import Job, last_line

__all__ = ["GRACE", "Child", "Ending"]

GUARD = Path(__file__).with_name("guard.py")
GRACE = 30.0
"""seconds in which a run that is asked to stop can write its checkpoint"""
BUSY = "another process is computing this run"
"""said, with exit code 2, by a run whose folder is locked"""
MEMORY = re.compile(r"out of memory|can't allocate memory|\bMemoryError\b", re.IGNORECASE)


@dataclass(frozen=True)
class Ending:
    """How an attempt ended."""

    kind: str
    """done; failed; refused: bad input; busy: another process has the run; memory: ran out of it; lost: its node is"""
    message: str = ""
    device_memory: bool = False
    """it was a GPU's memory"""


class Child:
    """A running attempt."""

    def __init__(
        self, job: Job, attempt: int, where: str, environment: Mapping[str, str], folder: Path | None = None
    ) -> None:
        """Start it, with `environment` added to this process's own, in `folder` if not here."""
        command = [*job.program, *job.arguments]
        self.job, self.log = job, job.folder / "log.txt"
        with self.log.open("ab") as log:
            when = time.strftime("%Y-%m-%d %H:%M:%S")
            log.write(f"--- {when}, attempt {attempt}, {where}: {shlex.join(command)}\n".encode())
            log.flush()
            self.start = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD), str(GRACE), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                cwd=folder,
                start_new_session=True,  # a terminal's ^C goes to the sweep, which passes it on in order
            )

    def ask(self, number: int = signal.SIGTERM) -> None:
        """To leave; after GRACE seconds it is killed."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """At once, with its children. Not by a second signal: of two in quick succession one is lost."""
        with suppress(OSError, ValueError):  # it has just ended
            assert self.process.stdin is not None
            self.process.stdin.write(b"k")
            self.process.stdin.flush()

    def ending(self) -> Ending | None:
        """None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        if self.job.done:
            return Ending("done")
        return judge(code if code >= 0 else 128 - code, *last_line(self.log, self.start))


def judge(code: int, line: str, tail: str) -> Ending:
    """What an exit code and the last words mean, where there is no result.

    >>> judge(2, "mlcpc: epochs is 0", "").kind, judge(137, "", "").message
    ('refused', 'killed by SIGKILL')
    """
    line = line.removeprefix("mlcpc: ")
    if code == 2:
        return Ending("busy" if BUSY in tail else "refused", line or "exit code 2")
    out_of_memory = MEMORY.search(tail)
    if code == 128 + signal.SIGKILL or (code and out_of_memory):
        on_device = bool(re.search(r"(cuda|hip)[^\n]*out of memory", tail, re.IGNORECASE))
        return Ending("memory", line if out_of_memory else _words("killed by SIGKILL", line), on_device)
    if code == 0:
        return Ending("failed", _words("ended without a result.json", line))
    if code > 128 and code - 128 in set(signal.Signals):
        return Ending("failed", _words(f"killed by {signal.Signals(code - 128).name}", line))
    return Ending("failed", line or f"exit code {code}")


def _words(what: str, line: str) -> str:
    return f"{what}; its last words: {line}" if line else what
