"""`mlcpc sweep`: all the runs behind a table, several at a time."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import tyro
from rich.console import Console
from rich.live import Live

from mlcpc.commands.shown import known
from mlcpc.config import InputError
from mlcpc.reproduce import TARGETS
from mlcpc.runs import Place
from mlcpc.sweep import Job, State, sweep, table

__all__ = ["Sweep", "run_jobs"]


@dataclass(frozen=True)
class Sweep:
    """Compute the runs of a table, teachers before students; finished ones are not repeated, interrupted ones go on."""

    target: tyro.conf.Positional[str]
    """table1, table2, table3, table4 or figure4"""
    scale: str = "quick"
    """smoke, quick or paper"""
    slots: int = 0
    """runs at a time; 0: as many as the machine's cores or GPUs suggest"""
    engine: str = "local"
    """local: processes on this machine; ray: a cluster (RAY_ADDRESS), with RUNS on a disk that all its nodes share"""
    retries: int = 2
    """of a run that fails"""
    dry: bool = False
    """only list the commands"""
    place: Place = field(default_factory=Place)

    def __call__(self) -> int:
        names = [name for name, target in TARGETS.items() if target.jobs is not None]
        target = TARGETS[known(self.target, names, "target")]
        scale = target.scales[known(self.scale, list(target.scales), f"scale of {self.target}")]
        assert target.jobs is not None
        jobs = target.jobs(scale.config, self.place)
        if self.dry:
            for job in jobs:
                print("mlcpc", *job.arguments)
            return 0
        return run_jobs(jobs, self.place.device, self.slots, self.engine, self.retries)


def run_jobs(jobs: list[Job], device: str = "auto", slots: int = 0, engine: str = "local", retries: int = 2) -> int:
    """All of them, with a live table; 0 when all are done, 1 when some failed."""
    devices = None if device == "auto" else [device]
    if engine not in ("local", "ray"):
        raise InputError(f"engine is {engine!r}, which is not known: write one of local, ray")
    with _live() as show:
        states = sweep(jobs, slots=slots or None, engine=engine, retries=retries, devices=devices, show=show)
    failed = [state for state in states if state.status != "done"]
    console = Console(stderr=True)
    for state in failed:
        console.print(
            f"{state.job.name}: {state.status}, {state.message}", markup=False, highlight=False, soft_wrap=True
        )
    return 1 if failed else 0


@contextlib.contextmanager
def _live() -> Iterator[Callable[[list[State]], None]]:
    with Live(console=Console(), refresh_per_second=2) as live:
        yield lambda states: live.update(table(states))
