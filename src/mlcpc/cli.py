"""The command line. Each command is a dataclass in `commands`: its fields are the flags, its docstring the help.

tyro rather than typer: the flags come from dataclasses, which the configs are anyway, so nothing is declared twice.
"""

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import tyro

import mlcpc
from mlcpc.commands.bounds import Bounds
from mlcpc.commands.embed import Embed
from mlcpc.commands.mi import Mi, MiMatrix
from mlcpc.commands.reproduce import Demo, Reproduce
from mlcpc.commands.show import ShowAugment, ShowMap, ShowNeighbours
from mlcpc.commands.sweep import Sweep
from mlcpc.commands.training import Distill, Pretrain, Probe, Train
from mlcpc.config import InputError
from mlcpc.loop import DivergenceError

__all__ = ["main"]

ABOUT = "Multi-label contrastive predictive coding: losses, bounds, mutual information, and the figures of the paper."
COMMANDS: Any = (
    Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Bounds, tyro.conf.subcommand("bounds")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Distill, tyro.conf.subcommand("distill")]
    | Annotated[Pretrain, tyro.conf.subcommand("pretrain")]
    | Annotated[Probe, tyro.conf.subcommand("probe")]
    | Annotated[Embed, tyro.conf.subcommand("embed")]
    | Annotated[Sweep, tyro.conf.subcommand("sweep")]
    | Annotated[ShowAugment, tyro.conf.subcommand("show-augment")]
    | Annotated[ShowNeighbours, tyro.conf.subcommand("show-neighbours")]
    | Annotated[ShowMap, tyro.conf.subcommand("show-map")]
    | Annotated[Mi, tyro.conf.subcommand("mi")]
    | Annotated[MiMatrix, tyro.conf.subcommand("mi-matrix")]
)


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Exit code 0: done; 1: a check failed; 2: bad input, said in one line; 130: interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):  # a terminal without α shows a ? rather than a traceback
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    for pair in (["mi", "matrix"], ["show", "augment"], ["show", "neighbours"], ["show", "map"]):
        if arguments[:2] == pair:
            arguments = ["-".join(pair), *arguments[2:]]
    if arguments[:1] == ["show"]:
        print("mlcpc: write mlcpc show augment, show neighbours or show map; each has --help", file=sys.stderr)
        return 2
    if arguments in (["--version"], ["-V"]):
        print(f"mlcpc {mlcpc.__version__}")
        return 0
    try:
        with _one_line_errors():
            command: Any = tyro.cli(
                COMMANDS, config=(tyro.conf.OmitArgPrefixes,), prog="mlcpc", description=ABOUT, args=arguments
            )
        code: int = command()
        return code
    except (InputError, OSError) as error:
        print(f"mlcpc: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except DivergenceError as error:
        print(f"mlcpc: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print(f"mlcpc: {stop if str(stop) else 'interrupted; finished runs are kept'}", file=sys.stderr)
        return 130


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    """tyro explains bad input in a box; keep its sentence, and the exit code 2."""
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            yield
    except SystemExit as stop:
        if stop.code == 2:
            lines = [line.strip("│ ") for line in box.getvalue().splitlines() if "╭" not in line and "╰" not in line]
            sentence = re.split(r"─{3,}", " ".join(lines))[0].strip().rstrip(".")
            print(f"mlcpc: {sentence}. See mlcpc --help", file=sys.stderr)
        raise
