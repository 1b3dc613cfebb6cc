"""What several commands show or refuse in the same way."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mlcpc.config import InputError
from mlcpc.runs import Place

__all__ = ["Tick", "known", "named", "progress", "quiet", "refusals", "training_bar"]

Tick = Callable[[float], None]
Config = TypeVar("Config", bound=Any)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """What these commands' functions refuse came from the command line or the file it names."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from error


def known(value: str, choices: list[str], what: str) -> str:
    if value not in choices:
        raise InputError(f"{what} is {value!r}, which is not known: write one of {', '.join(choices)}")
    return value


@contextlib.contextmanager
def progress(title: str) -> Iterator[Tick]:
    columns = (TextColumn("{task.description:<18}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda done: bar.update(task, completed=done)
        bar.update(task, completed=1.0)


@contextlib.contextmanager
def quiet(title: str) -> Iterator[Tick]:
    yield lambda done: None


def named(config: Config, place: Place) -> Config:
    """The config with the folder's path for its data: two folders are two runs."""
    if config.data != "folder":
        return config
    if place.data_dir is None:
        raise InputError("--data folder needs --data-dir: write --data PATH with the folder of images itself")
    found: Config = replace(config, data=str(place.data_dir))
    return found


@contextlib.contextmanager
def training_bar(title: str, shown: bool = True) -> Iterator[Callable[[Any, dict[str, float]], None]]:
    """A bar over all steps of `loop.fit`, with the numbers that matter; silent on ranks other than the first."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    numbers = TextColumn("{task.fields[numbers]}")
    with Progress(
        *columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), numbers, disable=not shown
    ) as bar:
        task = bar.add_task(title, total=1.0, numbers="")
        latest: dict[str, float] = {}

        def show(at: Any, row: dict[str, float]) -> None:
            if row["step"] < latest.get("step", 0):  # another run: the student's, after its teacher's
                latest.clear()
            latest["step"] = row["step"]
            latest.update({name: row[name] for name in _SHOWN if name in row})
            text = "  ".join(f"{name} {latest[name]:.4g}" for name in _SHOWN if name in latest)
            done = row["step"] / (at.epochs * at.steps_per_epoch)
            bar.update(task, completed=done, numbers=f"epoch {at.epoch + 1}/{at.epochs}  {text}")

        yield show


_SHOWN = ("loss", "estimate", "ceiling", "alpha", "train_top1", "top1", "knn_top1")
