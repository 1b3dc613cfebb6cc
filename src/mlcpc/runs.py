"""Run once: a config's folder holds config.json and, when it is done, result.json.

result.json is written last, by rename: its presence means done, and a second call reads it instead of computing.
"""

import glob
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mlcpc.config import InputError, run_id, to_dict

__all__ = [
    "Place",
    "alone",
    "clear_unfinished",
    "parse_json",
    "read_json",
    "read_result",
    "replacing",
    "run_folder",
    "run_once",
    "write_json",
    "write_text",
]

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
        if first:
            _drop_checkpoints(folder)
        return read_result(done)
    if not first:
        return compute(config)
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / ".lock", f"another process is computing this run: wait for it, or stop it ({folder})"):
        clear_unfinished(folder)
        write_json(folder / "config.json", to_dict(config))
        started = time.perf_counter()
        result = compute(config)
        seconds = round(time.perf_counter() - started, 2)
        result = {"config": to_dict(config), "seconds": seconds, **result, "environment": environment()}
        write_json(done, result)
        _drop_checkpoints(folder)
    return result


def _drop_checkpoints(folder: Path) -> None:
    """Only an unfinished run needs them; one that was killed right after its result still has them."""
    for checkpoint in folder.glob("checkpoint-*"):
        with suppress(OSError):
            checkpoint.unlink()


@contextmanager
def alone(lock: Path, refusal: str = "") -> Iterator[None]:
    """One process at a time; others wait, or are told the refusal. However a process ends, its lock goes with it."""
    try:
        import fcntl
    except ImportError:  # Windows: no lock
        yield
        return
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError as error:
            raise InputError(refusal) from error
        yield


def read_result(path: Path) -> dict[str, Any]:
    """A finished run's result.json."""
    stored = parse_json(path.read_bytes())
    if not isinstance(stored, dict) or not {"config", "seconds", "environment"} <= stored.keys():
        raise InputError(f"{path} is not a finished run's result: delete the file to compute it again")
    return stored


def parse_json(text: bytes) -> Any:
    """What it says; None where it is damaged, as a file that somebody is still writing."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def read_json(path: Path) -> Any:
    """What the file says; None where it is not there, cannot be read, or is damaged."""
    try:
        return parse_json(path.read_bytes())
    except OSError:
        return None


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
    for left in path.parent.glob(f".{glob.escape(path.name)}.*"):
        if left.suffix[1:].isdigit() and not _runs(int(left.suffix[1:])):  # killed while it was writing
            left.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    """Whether there is such a process; where that cannot be asked without harm, yes."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed process was writing here; only for whoever has the folder to itself."""
    for path in folder.glob(".*"):
        if path.suffix[1:].isdigit():
            path.unlink(missing_ok=True)
