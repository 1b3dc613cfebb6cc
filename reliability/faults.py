"""Faults other than kills: full and read-only disks, ranks that die or hang, clocks that jump, two of a kind, damage.

Every scene ends in one clear line and a folder that can be gone on with; and when the fault is over, in what an
undisturbed command makes. Scenes that need a file system of their own are skipped where none may be mounted.
"""

import random
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

from reliability.crash import Campaign, warm
from reliability.record import Deadline
from reliability.scenes import SCENES, SkippedError
from reliability.server import Server

__all__ = ["run"]


def run(minutes: float, folder: Path) -> dict[str, Any]:
    """Every scene, again and again while there is time."""
    warm()
    deadline, chance = Deadline(minutes), random.Random(0)
    played: Counter[str] = Counter()
    slowest: dict[str, float] = {}
    skipped: dict[str, str] = {}
    failures: list[str] = []
    with Server() as server:
        campaign = Campaign(folder, chance, server.url)
        while not deadline.over or not played:
            for name, scene in SCENES.items():
                if played and deadline.over and played[name]:
                    continue
                began = time.monotonic()
                try:
                    scene(campaign, folder / "now")
                except SkippedError as reason:
                    skipped[name] = str(reason)
                except Exception as error:
                    failures.append(f"{name}: {type(error).__name__}: {error}")
                played[name] += 1
                slowest[name] = round(max(slowest.get(name, 0.0), time.monotonic() - began), 1)
                shutil.rmtree(folder / "now", ignore_errors=True)
                print(f"  {name}: {slowest[name]} s", flush=True)
    failures = list(dict.fromkeys(failures))
    return {
        "summary": f"{len(played)} scenes, {played.total()} times, {len(skipped)} skipped, {len(failures)} failed",
        "scenes": {name: {"played": played[name], "slowest_seconds": slowest[name]} for name in SCENES},
        "skipped": skipped,
        "failures": failures,
    }
