"""A data set of image files in class folders, decoded as it streams: ImageNet, or a person's own pictures."""

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlcpc.config import InputError
from mlcpc.data.images import Images

__all__ = ["SUFFIXES", "BrokenImageError", "Files", "Window", "cut", "left_out", "middle", "scan"]

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm")

Window = tuple[tuple[float, float, float, float], int]
"""(left, top, width, height) in the source's pixels, and the side of the square it becomes"""


class BrokenImageError(Exception):
    """A file that does not decode."""


class Names(Sequence[str]):
    """Many short strings in one block: a million `str` would be copied page by page into every forked worker."""

    def __init__(self, names: Sequence[str]) -> None:
        encoded = [os.fsencode(name) for name in names]
        self._block = b"".join(encoded)
        self._ends = torch.tensor([0, *map(len, encoded)]).cumsum(0)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        row = range(len(self))[row]
        return os.fsdecode(self._block[int(self._ends[row]) : int(self._ends[row + 1])])


@dataclass(frozen=True, eq=False)
class Files:
    """N image files with their labels."""

    paths: Sequence[str]
    labels: Tensor
    """int64 (N,)"""
    classes: tuple[str, ...]
    name: str

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Tensor | int) -> "Files":
        """These rows, or the first so many, as a data set of their own: its rows count from 0."""
        rows = torch.arange(min(rows, len(self))) if isinstance(rows, int) else rows
        return Files(Names([self.paths[row] for row in rows.tolist()]), self.labels[rows], self.classes, self.name)

    def in_memory(self, size: int, broken: str = "skip") -> Images:
        """The middle square of each, `size` pixels wide; for as many files as fit in memory."""
        pixels = torch.empty(len(self), 3, size, size, dtype=torch.uint8)
        problems: dict[int, str] = {}

        def read(row: int) -> None:
            try:
                pixels[row] = cut(self.paths[row], lambda width, height: [middle(width, height, size)])[0]
            except BrokenImageError as problem:
                problems[row] = str(problem)

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # Pillow decodes outside Python's lock
            list(pool.map(read, range(len(self))))
        left_out(problems, len(self), broken)
        if problems:
            kept = torch.tensor([row for row in range(len(self)) if row not in problems])
            return Images(pixels[kept], self.labels[kept], self.classes, self.name)
        return Images(pixels, self.labels, self.classes, self.name)


def middle(width: int, height: int, size: int) -> Window:
    """The largest square in the middle."""
    side = min(width, height)
    return ((width - side) / 2, (height - side) / 2, side, side), size


def cut(path: str, windows: Callable[[int, int], Sequence[Window]]) -> Tensor:
    """uint8 (windows, 3, size, size): the squares of the file that `windows(width, height)` asks for.

    A JPEG is decoded at the smallest of its scales 1, 1/2, 1/4, 1/8 that has the pixels a window needs, by the
    window alone: the other windows change nothing.
    """
    from PIL import Image

    scales: dict[int, Any] = {}
    squares = []
    try:
        with Image.open(path) as image:
            width, height = image.size
    except Exception as error:  # Pillow's readers raise whatever a damaged file makes them stumble over
        raise BrokenImageError(_one_line(path, error)) from error
    for (left, top, w, h), size in windows(width, height):
        scale = max(s for s in (1, 2, 4, 8) if s <= max(1.0, min(w, h) / size))
        try:
            if scale not in scales:
                scales[scale] = _decoded(path, scale)
            image = scales[scale]
            x, y = image.width / width, image.height / height
            box = (left * x, top * y, min(image.width, (left + w) * x), min(image.height, (top + h) * y))
            square = image.resize((size, size), Image.Resampling.BILINEAR, box, reducing_gap=2.0)
            flat = torch.frombuffer(bytearray(square.tobytes()), dtype=torch.uint8)
        except Exception as error:
            raise BrokenImageError(_one_line(path, error)) from error
        squares.append(flat.view(size, size, 3).permute(2, 0, 1))
    return torch.stack(squares)


def _decoded(path: str, scale: int) -> Any:
    """RGB, a JPEG at 1/scale."""
    from PIL import Image

    with Image.open(path) as image:
        image.draft("RGB", (math.ceil(image.width / scale), math.ceil(image.height / scale)))
        if image.mode.startswith(("I", "F")):
            raise ValueError(f"its pixels are of mode {image.mode}: convert it to 8 bits a channel")
        if "transparency" in image.info:
            return image.convert("RGBA").convert("RGB")
        return image.convert("RGB")


def _one_line(path: str, error: Exception) -> str:
    said = str(error).strip().splitlines()
    reason = said[0] if said else type(error).__name__
    return reason if path in reason else f"{path}: {reason}"


def left_out(problems: dict[int, str], among: int, broken: str) -> None:
    """Warn of files that did not decode, or stop there."""
    if not problems:
        return
    first = problems[min(problems)]
    if broken == "error" or len(problems) == among:
        raise InputError(f"{len(problems)} of {among} images cannot be read, first {first}: repair or delete them")
    warnings.warn(f"{len(problems)} of {among} images cannot be read and are left out, first {first}", stacklevel=3)


def scan(root: Path, name: str) -> Files:
    """The images under `root`: a class for each subfolder, or one class where there are only images."""
    folders = sorted(entry.name for entry in _entries(root) if entry.is_dir())
    loose = sorted(_images(root, deep=False))
    if folders and loose:
        raise InputError(
            f"{root} holds both images ({Path(loose[0]).name}, …) and folders ({folders[0]}, …): put every image into "
            "a folder of its class, or all into one folder without subfolders"
        )
    if not folders:
        if not loose:
            raise InputError(f"{root} holds no images ({', '.join(SUFFIXES)}) and no class folders")
        return Files(Names(loose), torch.zeros(len(loose), dtype=torch.int64), (root.name or "all",), name)
    paths: list[str] = []
    counts = []
    for folder in folders:
        found = sorted(_images(root / folder, deep=True))
        if not found:
            raise InputError(f"the class folder {root / folder} holds no images ({', '.join(SUFFIXES)}): delete it")
        paths += found
        counts.append(len(found))
    labels = torch.arange(len(folders)).repeat_interleave(torch.tensor(counts))
    return Files(Names(paths), labels, tuple(folders), name)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is not hidden."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise InputError(f"{folder} cannot be read ({error.strerror}): write a folder of images") from error


def _images(folder: Path, deep: bool) -> Iterator[str]:
    for entry in _entries(folder):
        if deep and entry.is_dir():
            yield from _images(Path(entry.path), deep)
        elif entry.name.lower().endswith(SUFFIXES):
            yield entry.path
