"""Everything in mlcpc that reads what somebody else may have written, each with seeds."""

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import torch

from mlcpc import checkpoints, data, models
from mlcpc.classify import Training, load_network
from mlcpc.distill.run import Distillation
from mlcpc.metrics import Metrics
from mlcpc.mi.columns import intake
from mlcpc.mi.files import read_columns
from mlcpc.mi.staircase import climb
from mlcpc.report import report
from mlcpc.runs import run_folder, run_once
from mlcpc.sweep import Job, State
from mlcpc.sweep.jobs import look
from mlcpc.sweep.seen import Glance
from reliability import seeds

__all__ = ["PARSERS", "Parser"]


@dataclass(frozen=True)
class Parser:
    """One reader: what it is given, and what it may be given."""

    file: str
    """the name that the content gets"""
    read: Callable[[Path], object]
    """returns, or raises InputError or OSError; everything else is a defect"""
    seeds: Callable[[], list[bytes]]
    unpack: str = ""
    """how `mutate` gets inside"""


def columns(path: Path) -> object:
    """As `mlcpc mi` reads them: what cannot be numbers is refused in memory by ValueError or TypeError."""
    found, rows = read_columns(path, list, 1000)
    try:
        intake(found, "x")
    except (ValueError, TypeError) as error:
        if "\n" in str(error):
            raise RuntimeError("a refusal of several lines") from error
    return rows


def pickled(path: Path) -> object:
    """One extracted batch."""
    (path.parent / "test").write_bytes(seeds.batches()[1])
    return data.load("cifar100", path.parent)


def teacher(path: Path) -> object:
    """Its state; what misfits is told by building every network, which takes too long here."""
    return models.published._state(models.published._read(path), path)


def photograph(path: Path) -> object:
    """As a folder of class folders that it is the only picture of."""
    files = data.Files([str(path)], torch.zeros(1, dtype=torch.int64), ("a",), "own")
    return files.in_memory(8)


def result(path: Path) -> object:
    """A finished run's."""
    config = Training("resnet8", "digits", 1)
    folder = run_folder(config, "train", path.parent / "runs")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_bytes(path.read_bytes())
    return run_once(config, "train", lambda config: {}, path.parent / "runs")


def progress(path: Path) -> object:
    """A run that goes on, seen by a sweep, and by itself when it is resumed."""
    (path.parent / "config.json").write_bytes(path.read_bytes().partition(b"\n")[0])
    (path.parent / "result.json").write_bytes(path.read_bytes())
    for status in ("running", "done"):
        look(State(Job("a", (), path.parent), status=status))
    Glance(path.parent.parent)()
    (path.parent / "result.json").unlink()
    Glance(path.parent.parent)()
    metrics = Metrics(path.parent, False, True)
    metrics.forget_after(3)
    return metrics.epochs()


def stairs(path: Path) -> object:
    """A staircase's checkpoint."""
    return climb(seeds.STAIRS, folder=path.parent)


def page(path: Path) -> object:
    """The report on a run and on a figure whose files these are: no tag or handler in it is theirs."""
    parts = (path.read_bytes().split(b"\n====\n") + [b""] * 5)[:5]
    run, figure = path.parent / "runs" / "train" / "a", path.parent / "results" / "figure1" / "paper"
    for folder, names in (
        (run, ("result.json", "config.json", "metrics.jsonl")),
        (figure, ("checks.json", "figure1.csv")),
    ):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_bytes(parts.pop(0))
    written = report([path.parent / "runs", path.parent / "results"], path.parent / "out")
    for made in (path.parent / "out").rglob("*.html"):
        tags = Tags()
        tags.feed(made.read_text(encoding="utf-8"))
        if tags.odd:
            raise RuntimeError(f"a file's text became {tags.odd[0]}")
    return written


class Tags(HTMLParser):
    """What could do something."""

    def __init__(self) -> None:
        super().__init__()
        self.odd: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        if tag in ("iframe", "object", "embed", "img", "form", "base", "link") or self.scripts > 1:
            self.odd.append(f"<{tag}>")
        for name, value in attrs:
            if name.startswith("on") or (
                name in ("href", "src") and (value or "").strip().lower().startswith("javascript")
            ):
                self.odd.append(f"{name}={value!r}")


def words(path: Path) -> object:
    """α strings, and the names of runs that they lead to: one folder, inside its root."""
    text = path.read_bytes().decode("utf8", "replace").replace("\0", "")  # which no command line can hold
    alpha, _, name = text.partition("|")
    root = path.parent / "runs"
    for config in (Distillation(alpha=alpha, data=name or "digits"), Training(data=name or "digits")):
        folder = run_folder(config, "x", root)
        assert folder.resolve().parent == (root / "x").resolve(), f"a run's folder would be {folder}"
    return alpha


PARSERS: dict[str, Parser] = {
    "csv": Parser("table.csv", columns, seeds.tables),
    "tsv": Parser("table.tsv", columns, seeds.tables),
    "parquet": Parser("table.parquet", columns, seeds.parquets),
    "npy": Parser("table.npy", columns, seeds.npys),
    "npz": Parser("table.npz", columns, seeds.npzs, "zip"),
    "idx": Parser("labels", data.archives.read_idx, lambda: [seeds.idx(seeds.IMAGES), seeds.idx(seeds.IMAGES[0, :7])]),
    "idx-gz": Parser(
        "labels.gz", data.archives.read_idx, lambda: [gzip.compress(seeds.idx(seeds.IMAGES), mtime=0)], "gzip"
    ),
    "cifar-binary": Parser("cifar-100-binary.tar.gz", lambda path: data.load("cifar100", path), seeds.binary, "tar.gz"),
    "cifar-python": Parser(
        "cifar-100-python.tar.gz", lambda p: data.load("cifar100", p), seeds.python_archive, "tar.gz"
    ),
    "cifar-pickle": Parser("train", pickled, seeds.batches),
    "image": Parser("picture.png", photograph, seeds.images),
    "checkpoint": Parser("checkpoint-000000001.safetensors", checkpoints.load, seeds.trees, "safetensors"),
    "network": Parser("network.safetensors", load_network, seeds.networks, "safetensors"),
    "published": Parser("teacher.pth", teacher, seeds.published, "zip"),
    "staircase": Parser("separable.pt", stairs, seeds.staircases, "zip"),
    "result": Parser("result.json.in", result, lambda: [b'{"config": {}, "seconds": 1, "environment": {"a": [1]}}']),
    "metrics": Parser("metrics.jsonl", progress, seeds.rows),
    "report": Parser("parts", page, seeds.pages),
    "words": Parser("words", words, lambda: [b"0.05", b"10:0.1|digits", b" 1e-3 |/data/my photos", b"0.5|.."]),
}
