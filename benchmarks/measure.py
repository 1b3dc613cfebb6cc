"""Side by side: every way once a round, many rounds, medians of thread time. Memory in a process of its own."""

import csv
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

__all__ = ["extra_memory", "medians", "write"]

STATUS = Path("/proc/self/status")
OUT = Path(__file__).parent.parent / "results" / "bench"


def medians(ways: dict[str, Callable[[], object]], seconds: float = 6.0, least: int = 5) -> dict[str, float]:
    """Median time of each way, interleaved; as many rounds, from `least` to 200, as `seconds` allow."""
    synchronize = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    clock = time.perf_counter if torch.cuda.is_available() else time.thread_time
    for way in ways.values():
        way()
    synchronize()
    start = time.perf_counter()
    for way in ways.values():
        way()
    synchronize()
    rounds = int(min(200, max(least, seconds / (time.perf_counter() - start))))
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin = clock()
            way()
            synchronize()
            times[name].append(clock() - begin)
    return {name: statistics.median(values) for name, values in times.items()}


def extra_memory(module: str, *arguments: str) -> float:
    """MB that `python -m module --memory arguments` adds to its peak (it prints the number).

    Every array is mapped apart there, so what is freed is given back, and the heap's gaps do not count.
    """
    command = [sys.executable, "-m", module, "--memory", *arguments]
    env = os.environ | {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=65536"}
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout
    return float(out.strip().splitlines()[-1])


def settle() -> float:
    """The process's memory now, MB, with what was freed given back and its peak forgotten.

    Linux's own marks, where there are any: ru_maxrss starts at the *parent's* peak and never falls.
    """
    if not STATUS.exists():
        return peak()
    ctypes.CDLL(None).malloc_trim(0)
    STATUS.with_name("clear_refs").write_text("5")
    return _status("VmRSS")


def peak() -> float:
    """The process's highest memory since `settle`, MB."""
    return _status("VmHWM") if STATUS.exists() else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _status(field: str) -> float:
    return int(STATUS.read_text().partition(f"{field}:")[2].split()[0]) / 1024


def write(name: str, rows: list[dict[str, object]]) -> Path:
    """results/bench/<name>.csv, with the machine on every row."""
    OUT.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} thread"
    path = OUT / f"{name}.csv"
    fields = [*dict.fromkeys(key for row in rows for key in row), "device", "torch"]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "device": device, "torch": torch.__version__} for row in rows)
    return path
