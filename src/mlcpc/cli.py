"""The command line. Each command is a dataclass in `commands`: its fields are the flags, its docstring the help.

tyro rather than typer: the flags come from dataclasses, which the configs are anyway, so nothing is declared twice.
"""

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import tyro

import mlcpc
from mlcpc.commands.bounds import Bounds
from mlcpc.commands.completion import Completion
from mlcpc.commands.doctor import Doctor
from mlcpc.commands.embed import Embed
from mlcpc.commands.mi import Mi, MiMatrix
from mlcpc.commands.report import Report
from mlcpc.commands.reproduce import Demo, Reproduce
from mlcpc.commands.show import ShowAugment, ShowMap, ShowNeighbours
from mlcpc.commands.sweep import Sweep
from mlcpc.commands.training import Distill, Pretrain, Probe, Train
from mlcpc.commands.watch import Watch
from mlcpc.config import InputError
from mlcpc.loop import DivergenceError
from mlcpc.ranks import LostRankError

__all__ = ["main", "parse"]

ABOUT = (
    "Multi-label contrastive predictive coding: losses, bounds, mutual information, and the figures of the paper. "
    "--version tells which release this is."
)
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
    | Annotated[Watch, tyro.conf.subcommand("watch")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[ShowAugment, tyro.conf.subcommand("show-augment")]
    | Annotated[ShowNeighbours, tyro.conf.subcommand("show-neighbours")]
    | Annotated[ShowMap, tyro.conf.subcommand("show-map")]
    | Annotated[Mi, tyro.conf.subcommand("mi")]
    | Annotated[MiMatrix, tyro.conf.subcommand("mi-matrix")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[Completion, tyro.conf.subcommand("completion")]
)


def parse(arguments: list[str]) -> Any:
    """The command that these words make, ready to be called."""
    for pair in (["mi", "matrix"], ["show", "augment"], ["show", "neighbours"], ["show", "map"]):
        if arguments[:2] == pair:
            arguments = ["-".join(pair), *arguments[2:]]
    if arguments[:1] == ["show"]:
        raise InputError("write mlcpc show augment, show neighbours or show map; each has --help")
    with _one_line_errors():
        return tyro.cli(COMMANDS, config=(tyro.conf.OmitArgPrefixes,), prog="mlcpc", description=ABOUT, args=arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Exit code 0: done; 1: a check failed; 2: bad input, said in one line; 130: interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):  # a terminal without α shows a ? rather than a traceback
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if arguments in (["--version"], ["-V"]):
        print(f"mlcpc {mlcpc.__version__}")
        return 0
    try:
        command = parse(arguments)
        if isinstance(command, Completion):
            command = parse(["--tyro-print-completion", command.shell])
        code: int = command()
        return code
    except BrokenPipeError:  # of `mlcpc … | head`: whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (InputError, OSError) as error:
        print(f"mlcpc: {_one_line(str(error))}", file=sys.stderr)
        return 2
    except (DivergenceError, LostRankError) as error:
        print(f"mlcpc: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print(f"mlcpc: {stop if str(stop) else 'interrupted; finished runs are kept'}", file=sys.stderr)
        return 130


def _one_line(text: str) -> str:
    """Names from a file may hold line ends, and codes that a terminal obeys.

    >>> _one_line("no column\\n\\x1b[2J")
    'no column ?[2J'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    """tyro explains bad input in a box; keep its sentence, what to write instead, and the exit code 2."""
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            yield
    except SystemExit as stop:
        if stop.code == 2:
            print(f"mlcpc: {_sentence(box.getvalue())}", file=sys.stderr)
        raise


def _sentence(box: str) -> str:
    """Rules part a title from what is wrong, what may be meant instead, and which help to ask for."""
    text = " ".join(line.strip("│ ") for line in box.splitlines())
    _, wrong, *rest = (part.strip() for part in re.split(r"[─-]{8,}[╮╯]?", text))
    wrong = wrong.partition("Arguments are applied")[0].strip().rstrip(".")
    more = " ".join(rest)
    if meant := re.search(r"Perhaps you meant: (--[\w-]+)", more):
        return f"{wrong}: perhaps {meant[1]}? See {_help(more)}"
    if known := re.search(r"Available subcommands: ([\w, -]+?) For", more):
        return f"{wrong}: write one of {known[1]}"
    return f"{wrong}. See {_help(more)}"


def _help(text: str) -> str:
    commands: list[str] = re.findall(r"(mlcpc(?: [\w-]+)*? --help)", text)
    return (commands or ["mlcpc --help"])[-1]
