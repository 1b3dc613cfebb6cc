"""What this machine brings and lacks: versions, devices, optional packages, folders, and what would be slow here.

Each check yields findings, a line each. `broken`: mlcpc cannot do its work here. `warning`: it can, but something is
missing or slow, and the advice says what to do.
"""

import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import torch
from torch.nn import functional as F  # noqa: N812

import mlcpc
from mlcpc import data
from mlcpc.config import InputError
from mlcpc.contrastive import contrastive_loss
from mlcpc.data.cifar import CIFAR10, CIFAR100

__all__ = ["EXTRAS", "Finding", "examine"]

State = Literal["ok", "note", "warning", "broken"]

EXTRAS = {
    "cli": "the command line and pictures",
    "mi": "estimates on NumPy arrays, and the KSG baseline",
    "train": "training, image files, saved networks",
    "parquet": "Parquet files",
    "ray": "sweeps on a cluster",
}
"""extra of the package → what lacks without it"""
_ROOM = 5e9
"""bytes that CIFAR, checkpoints and weights of some runs take"""


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what was found, and what to do about it."""

    what: str
    found: str
    state: State = "ok"
    advice: str = ""


def examine(runs: Path, data_dir: Path | None = None) -> list[Finding]:
    """All checks; a check that itself fails is a finding, not an error."""
    findings: list[Finding] = []
    checks: list[Callable[[], Iterator[Finding]]] = [_versions, _devices, _processor, _packages]
    checks += [lambda: _data(data_dir), lambda: _runs(runs), _loss]
    for check in checks:
        try:
            findings += check()
        except (OSError, RuntimeError, ImportError) as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            findings.append(Finding("check", said, "broken", "install mlcpc and torch again"))
    return findings


def _versions() -> Iterator[Finding]:
    system = f"{platform.system()} {platform.machine()}"
    yield Finding("mlcpc", mlcpc.__version__)
    yield Finding("python", f"{platform.python_version()}, {system}")
    yield Finding("torch", torch.__version__)


def _devices() -> Iterator[Finding]:
    for i in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(i)
        half = "bfloat16" if torch.cuda.is_bf16_supported() else "no bfloat16"
        yield Finding(f"cuda:{i}", f"{found.name}, {found.total_memory / 2**30:.0f} GB, {half}")
    if torch.cuda.device_count():
        return
    if torch.version.cuda or torch.version.hip:
        advice = "look at the driver (nvidia-smi), or install a CPU build of torch"
        yield Finding("GPU", "torch is built for GPUs and sees none", "warning", advice)
    else:
        advice = "losses and estimates are made for this; pretraining at the paper's scale wants a GPU"
        yield Finding("GPU", "none: all runs on the processor", "note", advice)


def _processor() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    if threads > cores:
        advice = f"set OMP_NUM_THREADS={cores}: threads that wait for a core make all of them slow"
        yield Finding("threads", f"{threads} on {cores} cores", "warning", advice)
    elif threads < cores:
        yield Finding("threads", f"{threads} on {cores} cores", "note", "unset OMP_NUM_THREADS to use them all")
    elif threads > 1 and os.environ.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE":
        advice = "where others use them too, set OMP_WAIT_POLICY=PASSIVE: threads that spin may take ten times as long"
        yield Finding("threads", f"{threads} on {cores} cores", "note", advice)
    else:
        yield Finding("threads", f"{threads} on {cores} cores")
    units = ("avx512_bf16", "amx_tile")
    has = [name for name in units if getattr(torch.cpu, f"_is_{name}_supported", lambda: False)()]
    level = getattr(torch.backends.cpu, "get_cpu_capability", lambda: "unknown")()
    yield Finding("processor", ", ".join([level, *has]))
    ratio = _time_of(torch.bfloat16) / _time_of(torch.float32)
    words = f"products take {ratio:.2g} × the time of float32"
    if ratio > 1.1 and not torch.cuda.is_available():
        yield Finding("bfloat16", words, "warning", "write --precision float32 for train, distill and pretrain")
    else:
        yield Finding("bfloat16", words)


def _time_of(dtype: torch.dtype, size: int = 512) -> float:
    """Seconds of a product on the processor: the best of five."""
    x = torch.ones(size, size, dtype=dtype)
    times = []
    for _ in range(6):
        begin = time.perf_counter()
        x @ x
        times.append(time.perf_counter() - begin)
    return min(times[1:])


def _packages() -> Iterator[Finding]:
    """Each extra's packages, as the installed metadata states them."""
    wanted: dict[str, list[tuple[str, str]]] = {extra: [] for extra in EXTRAS}
    for line in metadata.requires("mlcpc") or []:
        match = re.match(r"([\w-]+)>=([\d.]+); extra == ['\"](\w+)['\"]", line)
        if match and match[3] in wanted:
            wanted[match[3]].append((match[1], match[2]))
    for extra, packages in wanted.items():
        found, missing = [], []
        for name, least in packages:
            try:
                version = metadata.version(name)
            except metadata.PackageNotFoundError:
                missing.append(name)
                continue
            if _numbers(version) < _numbers(least):
                missing.append(f"{name} {least} or newer (this is {version})")
            found.append(f"{name} {version}")
        text = ", ".join(found) or "not installed"
        if missing:
            advice = f"{EXTRAS[extra]} need {', '.join(missing)}: pip install 'mlcpc[{extra}]'"
            yield Finding(f"[{extra}]", text, "note", advice)
        else:
            yield Finding(f"[{extra}]", text)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _data(data_dir: Path | None) -> Iterator[Finding]:
    """Which data sets are there already; nothing is fetched."""
    root = (data_dir or data.cache_folder()).expanduser()
    if not root.is_dir():
        asked = data_dir is not None or "MLCPC_DATA" in os.environ
        advice = "data sets are downloaded into it; without a network, put their archives there"
        yield Finding("data", f"{root} does not exist yet", "warning" if asked else "note", advice)
        return
    here = [name for name in ("fashion-mnist", "imagenet") if (root / name).is_dir()]
    for cifar in (CIFAR10, CIFAR100):
        try:
            here += [cifar.name] if any(form.find(root) for form in cifar.layouts) else []
        except InputError as error:
            found, _, advice = str(error).rpartition(": ")
            yield Finding("data", found, "warning", advice)
    yield Finding("data", f"{root} holds {', '.join(here) or 'none of the known data sets yet'}")


def _runs(runs: Path) -> Iterator[Finding]:
    there = runs.expanduser().absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK):
        yield Finding("runs", f"{there} cannot be written", "broken", "write --runs with a folder of yours")
        return
    done = len(list(runs.glob("*/*/result.json")))
    free = shutil.disk_usage(there).free
    text = f"{runs}: {done} finished runs, {free / 1e9:.0f} GB free"
    if free < _ROOM:
        yield Finding("runs", text, "warning", "make room, or write --runs with a folder on another disk")
    else:
        yield Finding("runs", text)


def _loss() -> Iterator[Finding]:
    """The loss and its gradient against torch's own cross entropy, on every device."""
    devices = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    for device in devices:
        x = torch.linspace(-1, 1, 96, device=device).sin().view(12, 8).requires_grad_()
        y = torch.linspace(-2, 3, 96, device=device).cos().view(12, 8)
        ours = contrastive_loss(x, y, objective="cpc", temperature=0.5)
        logits = F.normalize(x, dim=1) @ F.normalize(y, dim=1).T / 0.5
        theirs = F.cross_entropy(logits, torch.arange(12, device=device))
        apart = (torch.autograd.grad(ours, x)[0] - torch.autograd.grad(theirs, x)[0]).abs().max().item()
        apart = max(apart, abs(ours.item() - theirs.item()))
        if apart < 1e-4:
            yield Finding(f"loss on {device}", "equals cross entropy, value and gradient")
        else:
            yield Finding(f"loss on {device}", f"is {apart:.2g} from cross entropy", "broken", "install torch again")
