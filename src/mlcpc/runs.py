"""Run once: a config's folder holds config.json and, when it is done, result.json.

result.json is written last, by rename: its presence means done, and a second call reads it instead of computing.
"""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mlcpc.config import InputError, run_id, to_dict

__all__ = ["Place", "clear_unfinished", "replacing", "run_folder", "run_once", "write_json", "write_text"]

Config = TypeVar("Config")


@dataclass(frozen=True)
class Place:
    """Where a run happens; no part of what it computes, so no part of its config."""

    data_dir: Path | None = None
    """where the data set is, in any usual layout; otherwise it is looked for in the cache, and downloaded"""
    device: str = "auto"
    """cpu, cuda, cuda:1; auto: a GPU where there is one"""
    runs: Path = Path("runs")
    """finished runs and checkpoints are kept here"""
    tensorboard: bool = False
    """write events for TensorBoard too, into the run's folder"""


def run_folder(config: Any, section: str, root: Path) -> Path:
    """Where this config's run lives, its checkpoints included: its id, behind the words of its `name` if it has one."""
    name = getattr(config, "name", "")
    return root / section / (f"{name}-{run_id(config)}" if name else run_id(config))


def run_once(
    config: Config, section: str, compute: Callable[[Config], dict[str, Any]], root: Path, first: bool = True
) -> dict[str, Any]:
    """The result of `compute(config)`, from disk where it was done before; with config, time, environment.

    `seconds` is this call's time, unless the result brings its own: a resumed run knows better.
    first    whether this process is the one that writes; the other ranks of a run only compute
    """
    folder = run_folder(config, section, root)
    done = folder / "result.json"
    if done.exists():
        return _load(done)
    if not first:
        return compute(config)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        write_json(folder / "config.json", to_dict(config))
        started = time.perf_counter()
        result = compute(config)
        seconds = round(time.perf_counter() - started, 2)
        result = {"config": to_dict(config), "seconds": seconds, **result, "environment": environment()}
        write_json(done, result)
        for checkpoint in folder.glob("checkpoint-*"):  # only an unfinished run needs them
            checkpoint.unlink()
    return result


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two processes on one run would mix their checkpoints. The lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows: no lock
        yield
        return
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(f"another process is computing this run: wait for it, or stop it ({folder})") from error
        yield


def _load(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text())
    except ValueError:
        stored = None
    if not isinstance(stored, dict) or not {"config", "seconds", "environment"} <= stored.keys():
        raise InputError(f"{path} is not a finished run's result: delete the file to compute it again")
    return stored


def environment() -> dict[str, Any]:
    """What a reader needs to judge a number: versions and the kind of machine."""
    import torch

    import mlcpc

    return {
        "mlcpc": mlcpc.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name to write to; when that went well it goes to the disk and is renamed to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed process was writing here; only for whoever has the folder to itself."""
    for path in folder.glob(".*"):
        if path.suffix[1:].isdigit():
            path.unlink(missing_ok=True)
