"""What a campaign found, with when, of which commit and on what machine."""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

import mlcpc
from mlcpc.runs import write_json

__all__ = ["ROOT", "Deadline", "write"]

ROOT = Path(__file__).parent.parent


class Deadline:
    """When a campaign's time is over."""

    def __init__(self, minutes: float) -> None:
        self.started, self.seconds = time.monotonic(), 60 * minutes

    @property
    def left(self) -> float:
        """Seconds; below 0 when it is over."""
        return self.started + self.seconds - time.monotonic()

    @property
    def over(self) -> bool:
        return self.left <= 0


def write(name: str, found: dict[str, Any], seconds: float, out: Path) -> Path:
    """<out>/<name>.json."""
    path = out / f"{name}.json"
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    head = {"campaign": name, "date": when, "commit": commit(), "machine": machine(), "seconds": round(seconds)}
    write_json(path, head | found)
    return path


def commit() -> str:
    """Of the checkout; with "+" where files differ from it."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=10", "--match=-", "--dirty=+"]
    try:
        asked = subprocess.run(words, capture_output=True, text=True, timeout=60)
    except OSError:
        return "unknown"
    return asked.stdout.strip() or "unknown"


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "system": platform.system(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "mlcpc": mlcpc.__version__,
    }
