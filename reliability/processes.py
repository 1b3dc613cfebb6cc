"""Commands in forked children of this process, which has imported all that they need: a start costs a moment.

The parent must not compute with torch itself: its threads would not survive a fork.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reliability.record import ROOT

__all__ = ["PATIENCE", "Started", "alive", "descendants", "end", "spawn", "start"]

PATIENCE = 20.0
"""seconds of a forked rank with the others, instead of ten minutes"""


@dataclass
class Started:
    """One command, on one rank or more."""

    log: Path
    ranks: dict[int, int]
    """process → rank"""
    codes: dict[int, int] = field(default_factory=dict)
    """rank → exit code, 128 + the signal's number where one ended it"""

    def poll(self) -> bool:
        """Whether all have ended."""
        for process, rank in list(self.ranks.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                del self.ranks[process]
                self.codes[rank] = os.waitstatus_to_exitcode(status) % 256
        return not self.ranks

    def wait(self, seconds: float) -> bool:
        """Whether all ended within that time."""
        until = time.monotonic() + seconds
        while not self.poll():
            if time.monotonic() > until:
                return False
            time.sleep(0.005)
        return True

    def kill(self, rank: int | None = None) -> int:
        """SIGKILL to one rank, or to all; how many were still there."""
        return sum(end(process) for process, own in list(self.ranks.items()) if rank in (None, own))

    @property
    def said(self) -> str:
        """The last lines of what it wrote."""
        return self.log.read_text(errors="replace")[-1500:] if self.log.exists() else ""


def start(words: Sequence[str], folder: Path, world: int = 1, environment: Mapping[str, str] | None = None) -> Started:
    """`often.command(words)` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(f"{folder.name}.log")
    port = free_port() if world > 1 else 0
    ranks = {}
    for rank in range(world):
        child = os.fork()
        if child == 0:
            _child(words, folder, log, rank, world, port, environment or {})
        ranks[child] = rank
    return Started(log, ranks)


def spawn(words: Sequence[str], folder: Path, world: int = 1) -> Started:
    """The same under torchrun, in new processes; as one of ours, whose children are the ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(f"{folder.name}.log")
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    with log.open("ab") as out:
        agent = subprocess.Popen(
            [*program, "-m", "reliability.often", *words],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )
    agent.returncode = 0  # whoever polls `Started` waits for it
    return Started(log, {agent.pid: 0})


def _child(
    words: Sequence[str], folder: Path, log: Path, rank: int, world: int, port: int, environment: Mapping[str, str]
) -> None:
    code = 70
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(out, stream)
        os.chdir(folder)
        os.environ.update({"PYTHONPATH": str(ROOT), "PATIENCE": f"{PATIENCE:g}", **environment})
        if world > 1:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        from reliability.often import command

        code = command(list(words))
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def descendants(process: int) -> list[int]:
    """Its children, and theirs."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = entry.read_text().rsplit(")", 1)[1].split()
            children.setdefault(int(words[1]), []).append(int(entry.parent.name))
    found, queue = [], [process]
    while queue:
        for child in children.get(queue.pop(), []):
            found.append(child)
            queue.append(child)
    return found


def alive(process: int) -> bool:
    """The dead that nobody has waited for count as dead."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def end(process: int) -> bool:
    """SIGKILL; whether it was there."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
