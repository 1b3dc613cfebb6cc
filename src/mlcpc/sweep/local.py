"""This machine: a process for each job, several to a GPU."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import torch

from mlcpc.config import InputError
from mlcpc.sweep.child import Child, Ending
from mlcpc.sweep.jobs import State

__all__ = ["Local"]

PER_GPU = 4
"""small runs that one GPU is given: alone, a network for 32x32 pixels leaves most of it idle"""
BYTES = 8 * 2**30
"""of a GPU's memory for each of them"""


class Local:
    """`slots` jobs at a time, spread evenly over the devices."""

    def __init__(self, slots: int | None, devices: Sequence[str] | None) -> None:
        self.devices = find(devices)
        self.slots = slots or default_slots(self.devices)
        self.running: list[tuple[State, Child, str, int]] = []  # with its device and the slots when it started

    def room(self) -> int:
        """How many more jobs may start."""
        return self.slots - len(self.running)

    def start(self, state: State) -> None:
        """Where there is least to do."""
        taken = [device for _, _, device, _ in self.running]
        device = min(self.devices, key=taken.count)
        environment = {"CUDA_VISIBLE_DEVICES": self.devices[device]}
        if "OMP_NUM_THREADS" not in os.environ:
            environment["OMP_NUM_THREADS"] = str(max(1, cores() // self.slots))
        state.status, state.worker, state.started = "running", device, time.monotonic()
        self.running.append((state, Child(state.job, state.attempts, device, environment), device, self.slots))

    def news(self) -> list[tuple[State, Ending]]:
        """Those that have ended. One that ran out of memory leaves half the slots that there were when it started."""
        ended = []
        for item in list(self.running):
            state, child, _, slots = item
            ending = child.ending()
            if ending is None:
                continue
            if ending.kind == "memory":
                least = len(self.devices) if ending.device_memory else 1  # one to a GPU is as few as helps its memory
                self.slots = min(self.slots, max(least, slots // 2))
            self.running.remove(item)
            ended.append((state, ending))
        return ended

    def ask(self, number: int = signal.SIGTERM) -> None:
        """All to leave."""
        for _, child, _, _ in self.running:
            child.ask(number)

    def kill(self) -> None:
        """All, at once."""
        for _, child, _, _ in self.running:
            child.kill()

    def close(self) -> None:
        """Nothing to give back."""


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find(devices: Sequence[str] | None) -> dict[str, str]:
    """What CUDA_VISIBLE_DEVICES must be for each device; None: every GPU, or the CPU where there is none."""
    count = torch.cuda.device_count() if devices is None or any(name != "cpu" for name in devices) else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    numbers = visible.split(",") if visible else [str(i) for i in range(count)]
    gpus = {f"cuda:{i}": number.strip() for i, number in enumerate(numbers[:count])}
    found: dict[str, str] = {}
    for name in devices or (["cuda"] if gpus else ["cpu"]):
        if name == "cpu":
            found["cpu"] = ""
        elif name == "cuda" and gpus:
            found |= gpus
        elif name in gpus:
            found[name] = gpus[name]
        else:
            raise InputError(f"device {name!r} is not here: write some of {', '.join(['cpu', *gpus])}")
    return found


def default_slots(devices: dict[str, str]) -> int:
    """Up to 4 for each GPU, as memory and cores allow; on a CPU one for each two cores."""
    gpus = [device for device in devices.values() if device]
    if not gpus:
        return max(1, cores() // 2)
    each = max(1, min(PER_GPU, _free_memory(gpus) // BYTES))
    return max(len(gpus), min(each * len(gpus), cores()))


def _free_memory(gpus: list[str]) -> int:
    """Bytes on the fullest of them; asked in another process, because whoever asks holds some of it until it ends."""
    code = "import torch; print(min(torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())))"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    return int(asked.stdout) if asked.returncode == 0 else 0
