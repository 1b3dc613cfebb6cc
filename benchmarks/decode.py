"""How fast image files are decoded and cut: `python -m benchmarks.decode` writes results/bench/decode.csv.

Images a second of one core (thread time), JPEG's own scaling (`scaled`) beside decoding everything (`full_decode`), and
how many of 255 levels the two are apart. The photographs are made on the spot: noise at every scale, quality 90; at
500x375 they weigh what ImageNet's do. `--wall` adds the whole loader's images a second by the clock, for 1 to 16
workers, which means something on a machine with nothing else to do.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from benchmarks.measure import medians, write
from mlcpc import augment, draws
from mlcpc.data import STATISTICS, Loader, load
from mlcpc.data import photos as reading
from mlcpc.data.photos import Files

DIFFERENT = 24


def photograph(width: int, height: int, seed: int) -> Image.Image:
    """Noise at every scale, fine noise the weakest, as in nature."""
    generator = torch.Generator().manual_seed(seed)
    total = torch.zeros(1, 3, height, width)
    for octave in range(8):
        size = (max(2, height >> octave), max(2, width >> octave))
        grain = torch.rand(1, 3, *size, generator=generator) - 0.5
        total += torch.nn.functional.interpolate(grain, (height, width), mode="bilinear") * 1.15**octave
    levels = (total / total.std() * 55 + 120).clamp(0, 255).to(torch.uint8)
    return Image.fromarray(levels[0].permute(1, 2, 0).numpy())


def folder(root: Path, width: int, height: int, count: int) -> Files:
    (root / "a").mkdir()
    for i in range(count):
        path = root / "a" / f"{i:04d}.jpg"
        if i < DIFFERENT:
            photograph(width, height, i).save(path, quality=90)
        else:
            path.symlink_to(root / "a" / f"{i % DIFFERENT:04d}.jpg")
    found = load("folder", root)
    assert isinstance(found, Files)
    return found


@contextmanager
def full_decode() -> Iterator[None]:
    """What everybody does: all of the picture, then the window."""
    scaled = reading._decoded
    reading._decoded = lambda path, scale: scaled(path, 1)  # type: ignore[assignment]
    try:
        yield
    finally:
        reading._decoded = scaled


def rate(source: Files, recipe: augment.Augment, views: int) -> float:
    """Images a second of one core that decodes and cuts: what a worker does."""

    def windows(row: int, width: int, height: int) -> list[reading.Window]:
        return [recipe.window(width, height, row, 0, 0, view) for view in range(views)]

    def work() -> None:
        for row in range(DIFFERENT):
            reading.cut(source.paths[row], partial(windows, row))

    return DIFFERENT / medians({"work": work}, seconds=3.0)["work"]


def wall_rate(loader: Loader) -> float:
    """Images a second of everything together, the start of the workers included: for a machine with nothing else on."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    order = list(torch.split(draws.permutation(len(loader), 0), 256))
    begin = time.perf_counter()
    for _ in loader.batches(order, device, (0, 0)):
        pass
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return len(loader) / (time.perf_counter() - begin)


def squares(source: Files, recipe: augment.Augment) -> Tensor:
    return torch.cat(
        [reading.cut(source.paths[i], lambda w, h, i=i: [recipe.window(w, h, i, 0, 0, 0)]) for i in range(DIFFERENT)]
    ).float()


def main(wall: bool) -> None:
    mean, std = STATISTICS["imagenet"]
    recipes = {
        "center 224": (augment.center(mean, std), 1),
        "random_resized 224": (augment.random_resized(mean, std), 1),
        "moco_v2 224": (augment.moco_v2(mean, std), 2),
        "moco_v2 64": (augment.moco_v2(mean, std, 64), 2),
    }
    rows: list[dict[str, object]] = []
    for width, height in ((500, 375), (1600, 1200)):
        with tempfile.TemporaryDirectory() as made:
            source = folder(Path(made), width, height, 4096 if wall else DIFFERENT)
            kilobytes = sum(Path(source.paths[i]).stat().st_size for i in range(DIFFERENT)) / DIFFERENT / 1000
            for name, (recipe, views) in recipes.items():
                row: dict[str, Any] = {"pixels": f"{width}x{height}", "kB": round(kilobytes)}
                row |= {"recipe": name, "views": views, "scaled": round(rate(source, recipe, views), 1)}
                scaled = squares(source, recipe)
                with full_decode():
                    row["full_decode"] = round(rate(source, recipe, views), 1)
                    row["levels_apart"] = round(float((squares(source, recipe) - scaled).abs().mean()), 2)
                for workers in (1, 2, 4, 8, 16) if wall else ():
                    row[f"wall_{workers}_workers"] = round(wall_rate(Loader(source, recipe, views, workers)), 1)
                print(row, flush=True)
                rows.append(row)
    write("decode", rows)


if __name__ == "__main__":
    main("--wall" in sys.argv)
