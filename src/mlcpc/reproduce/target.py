"""What a figure or table of the paper is: its runs per scale, its drawing, and what must hold of it."""

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mlcpc.config import to_dict
from mlcpc.runs import Place, environment, run_folder, run_once, write_json, write_text
from mlcpc.sweep import Job

__all__ = ["Check", "Drawing", "Scale", "Target", "reproduce"]

Tick = Callable[[float], None]
Result = dict[str, Any]


class Check(NamedTuple):
    """A claim about a figure, and whether the numbers behind it bear it out."""

    claim: str
    holds: bool
    measured: str


class Scale(NamedTuple):
    """The configs of one scale, and what they cost."""

    config: Any
    cost: str


@dataclass(frozen=True)
class Drawing:
    """How to show numbers: where, under which scale's name, and in which unit."""

    folder: Path
    name: str
    scale: str
    bits: bool = False

    @property
    def unit(self) -> str:
        return "bits" if self.bits else "nats"

    def __call__(self, nats: float) -> float:
        """A number in the reader's unit."""
        return nats / math.log(2) if self.bits else nats

    def write_csv(self, rows: list[dict[str, Any]]) -> None:
        """The numbers behind the picture, always in nats, with the scale on every row."""
        text = io.StringIO()
        writer = csv.DictWriter(text, ["scale", *rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows({"scale": self.scale, **row} for row in rows)
        write_text(self.folder / f"{self.name}.csv", text.getvalue())


@dataclass(frozen=True)
class Target:
    """One figure or table: `compute` fills a run's result, `draw` only reads it.

    compute is given the config, a function to tell its progress, and the run's folder, where it may keep checkpoints.
    A table has `jobs` too: the runs, each a command of its own, that must be done before; its `compute` reads them.
    One that `reads` the results of the others is given their folder, OUT; neither of these is kept as a run.
    """

    name: str
    title: str
    section: str
    scales: dict[str, Scale]
    compute: Callable[[Any, Tick, Path], Result]
    draw: Callable[[Result, Drawing], list[Check]]
    sample: Callable[[Any], str]
    """n, in words: of what a config's numbers are means"""
    jobs: Callable[[Any, Place], list[Job]] | None = None
    begun: Callable[[Any, Path], float | None] = lambda config, folder: None
    """the share that an interrupted run has done, in [0, 1], from its folder; None: not known"""
    reads: bool = False

    def command(self, scale: str, bits: bool = False) -> str:
        """What a person types to get it."""
        return f"mlcpc reproduce {self.name} --scale {scale}" + (" --bits" if bits else "")


def reproduce(target: Target, scale: str, out: Path, runs: Path, bits: bool, tick: Tick) -> tuple[Path, list[Check]]:
    """Run what is missing, draw it into out/<target>/<scale>, and return that folder and the checks.

    A table's jobs have been run before (`mlcpc.sweep`); it is put together anew each time, from those that are done.
    """
    config = target.scales[scale].config
    folder = run_folder(config, target.section, runs)
    if target.jobs is None and not target.reads:
        result = run_once(config, target.section, lambda config: target.compute(config, tick, folder), runs)
    else:
        found = target.compute(config, tick, out if target.reads else folder)
        result = {"config": to_dict(config), "environment": environment(), **found}
    drawing = Drawing(out / target.name / scale, target.name, scale, bits)
    checks = target.draw(result, drawing)
    kept = ("config", "seconds", "environment", "computed_on", "claims")
    write_json(
        drawing.folder / "checks.json",
        {
            "target": target.name,
            "scale": scale,
            "command": target.command(scale, bits),
            "n": target.sample(config),
            "checks": [check._asdict() for check in checks],
            **{key: result[key] for key in kept if key in result},
        },
    )
    return drawing.folder, checks
