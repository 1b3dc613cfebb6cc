"""A Ray cluster: Ray decides which node; retries, order and everything else are as on one machine.

Run folders, the working directory and the data must be on a filesystem that every node sees under the same path, and
every node needs mlcpc. RAY_ADDRESS names the cluster (host:port of its head); without it Ray is started on this
machine, listening on 127.0.0.1 only, and stopped at the end.
"""

import importlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlcpc.config import InputError
from mlcpc.sweep.child import Child, Ending
from mlcpc.sweep.jobs import Job, State
from mlcpc.sweep.local import PER_GPU

__all__ = ["Cluster"]

STORE = 80 * 2**20
"""bytes of shared memory for Ray's objects; only names and messages travel"""
NODES = 2.0
"""seconds for which the list of nodes holds"""


class Cluster:
    """Up to `slots` jobs at a time, or twice what fits: those that queue tell an autoscaler to add nodes."""

    def __init__(self, slots: int | None, devices: Sequence[str] | None) -> None:
        self.ray, self.owned = connect()
        self.slots = slots
        try:
            self.needs = self.shares(devices)
        except InputError:
            self.close()
            raise
        self.task = self.ray.remote(work)
        self.flying: dict[Any, tuple[State, dict[str, float]]] = {}  # by the stream that tells of it; what it was given
        self.known: list[dict[str, float]] = []
        self.known_at = -NODES

    def shares(self, devices: Sequence[str] | None) -> dict[str, float]:
        """Of a node's resources, for one job."""
        for name in devices or ():
            if name not in ("cpu", "cuda"):
                raise InputError(f"device is {name!r}, but on a cluster Ray chooses which: write cpu or cuda")
        nodes = self.nodes()
        cpus, gpus = (sum(node.get(kind, 0) for node in nodes) for kind in ("CPU", "GPU"))
        if "cuda" in (devices or ()) and not gpus:
            raise InputError("no node of the cluster has a GPU: write cpu, or start nodes with --num-gpus")
        if gpus and "cpu" not in (devices or ()):
            each = PER_GPU if self.slots is None else max(1, -(-self.slots // int(gpus)))
            return {"num_cpus": 1, "num_gpus": 1 / each}
        widest = max((node.get("CPU", 0) for node in nodes), default=0)
        wanted = cpus // self.slots if self.slots else 2
        return {"num_cpus": int(max(1, min(wanted, widest))), "num_gpus": 0}

    def nodes(self) -> list[dict[str, float]]:
        """Resources of those that are alive."""
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def room(self) -> int:
        if time.monotonic() - self.known_at > NODES:
            self.known, self.known_at = self.nodes(), time.monotonic()
        fit = sum(
            min(
                int(node.get(kind, 0) / self.needs[need] + 1e-6)
                for kind, need in (("CPU", "num_cpus"), ("GPU", "num_gpus"))
                if self.needs[need]
            )
            for node in self.known
        )
        return (2 * fit + 1 if self.slots is None else self.slots) - len(self.flying)

    def start(self, state: State) -> None:
        alone = {} if self.needs["num_gpus"] else {"CUDA_VISIBLE_DEVICES": ""}
        options = {**self.needs, "max_retries": 0, "name": state.job.name}  # we start it again ourselves, and count
        arguments = (replace(state.job, folder=state.job.folder.absolute()), state.attempts, Path.cwd(), sys.executable)
        self.flying[self.task.options(**options).remote(*arguments, alone)] = (state, dict(self.needs))

    def news(self) -> Iterator[tuple[State, Ending]]:
        ready, _ = (
            self.ray.wait(list(self.flying), num_returns=len(self.flying), timeout=0) if self.flying else ([], [])
        )
        for stream in ready:
            state, needs = self.flying[stream]
            try:
                item = self.ray.get(next(stream))
            except StopIteration:
                item = Ending("lost", "its worker said nothing at the end")
            except self.ray.exceptions.RayError as error:
                item = self.mishap(error)
            if not isinstance(item, Ending):  # it runs
                state.status, state.worker, state.started = "running", item, time.monotonic()
                continue
            if item.kind == "memory":
                self.spread(needs)
            del self.flying[stream]
            yield state, item

    def mishap(self, error: Exception) -> Ending:
        """What Ray's error says about the job."""
        errors = self.ray.exceptions
        words = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
        if isinstance(error, errors.OutOfMemoryError):
            return Ending("memory", "its node ran out of memory")
        if isinstance(error, errors.RayTaskError | errors.TaskCancelledError):
            return Ending("failed", words.strip())
        return Ending("lost", f"its node or worker was lost ({type(error).__name__})")

    def spread(self, needs: dict[str, float]) -> None:
        """After one ran out of memory: from now on a job gets twice what that one had, so half as many fit."""
        if needs["num_gpus"]:
            self.needs["num_gpus"] = max(self.needs["num_gpus"], min(1.0, 2 * needs["num_gpus"]))
            return
        widest = max((node.get("CPU", 0) for node in self.nodes()), default=0)
        self.needs["num_cpus"] = max(self.needs["num_cpus"], min(widest, 2 * needs["num_cpus"]))

    def ask(self, number: int = signal.SIGTERM) -> None:
        """All to leave; every run gets a SIGTERM."""
        for stream in self.flying:
            self.ray.cancel(stream)

    def kill(self) -> None:
        """All workers; their runs are asked to leave by their guards, which nobody waits for."""
        for stream in self.flying:
            self.ray.cancel(stream, force=True)

    def close(self) -> None:
        """Guards end what would still run when its worker goes."""
        if self.owned:
            self.ray.shutdown()


def connect() -> tuple[Any, bool]:
    """Ray, and whether it was we who connected."""
    address = os.environ.get("RAY_ADDRESS")
    if not address or address.startswith("127."):  # read when ray is imported: stay on 127.0.0.1, report to nobody
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as missing:
        raise InputError("Ray is not installed: pip install 'mlcpc[ray]', or write --engine local") from missing
    if ray.is_initialized():
        return ray, False
    if address and address.startswith("ray://"):
        raise InputError(f"RAY_ADDRESS is {address!r}: write host:port of the head, and run the sweep on a node")
    own = {"include_dashboard": False, "object_store_memory": STORE}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **({} if address else own))
    except ConnectionError as error:
        raise InputError(
            f"no Ray cluster answers at {address}: start one (ray start --head), or unset RAY_ADDRESS"
        ) from error
    return ray, True


def work(job: Job, attempt: int, folder: Path, python: str, environment: dict[str, str]) -> Iterator[str | Ending]:
    """On a node: say where this is, run the job, say how it ended."""
    where = socket.gethostname()
    yield where
    for path in (folder, job.folder):
        if not path.is_dir():
            lack = f"{path} is not there on {where}: a sweep needs a filesystem that every node sees under one path"
            yield Ending("failed", lack)
            return
    program = tuple(sys.executable if word == python else word for word in job.program)  # this node's own Python
    child = Child(replace(job, program=program), attempt, where, environment, folder)
    ending = None
    try:
        while ending is None:
            time.sleep(0.1)
            ending = child.ending()
    except KeyboardInterrupt:  # ray.cancel
        child.ask()
        while child.ending() is None:
            time.sleep(0.1)
        raise
    yield ending
