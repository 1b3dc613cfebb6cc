"""A table's runs as jobs, each the command that a person would type, and their results read back."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from mlcpc.config import flags
from mlcpc.runs import Place, read_result, run_folder
from mlcpc.sweep import Job

__all__ = ["job", "machine", "results"]

Key = TypeVar("Key")


def job(config: Any, section: str, place: Place, after: tuple[str, ...] = ()) -> Job:
    """`mlcpc <section> …` with the flags of this config; its name is that of its folder."""
    folder = run_folder(config, section, place.runs)
    device = "cuda" if place.device.startswith("cuda") else place.device  # which of them the sweep decides
    words = [section, *flags(config), *flags(replace(place, device=device))]
    return Job(folder.name, tuple(words), folder, after)


def results(runs: Mapping[Key, Any], section: Callable[[Any], str], root: Path) -> dict[Key, dict[str, Any]]:
    """Of those that are done."""
    found = {}
    for key, config in runs.items():
        path = run_folder(config, section(config), root) / "result.json"
        if path.exists():
            found[key] = read_result(path)
    return found


def machine(result: dict[str, Any]) -> str:
    """What a run was computed on."""
    known = result["environment"]
    return f"{known['device']}, torch {known['torch']}"
