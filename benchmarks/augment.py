"""Augmentation: images per second of one core, ours beside PIL's (as torchvision composes it) and kornia's.

    python -m benchmarks.augment            writes results/bench/augment.csv
    python -m benchmarks.augment --quick    a look, nothing written

kornia only where it is installed. All get the same uint8 pictures and give normalised float ones; theirs is in the form
that was fastest here: kornia's crops by one warp of the batch (`cropping_mode="resample"`, which does not antialias),
and its order of colour operations is one for a whole batch.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import medians, write
from mlcpc.augment import Augment, crop_flip, moco_cifar, moco_v2

sys.path.append(str(Path(__file__).parent.parent / "tests"))
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CASES = [
    ("crop_flip", crop_flip(MEAN, STD), 32, 256),
    ("moco_cifar", moco_cifar(MEAN, STD), 32, 256),
    ("moco_v2", moco_v2(MEAN, STD, 224), 256, 16),
]


def pil(a: Augment, pixels: Tensor) -> Callable[[], object]:
    """The tests' twin, then what ToTensor and Normalize do."""
    from pil_twin import Twin, to_pil

    law, mean, std = Twin(a), torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    return lambda: torch.stack([law(to_pil(x)).div(255).sub(mean).div(std) for x in pixels])


def kornia(a: Augment, pixels: Tensor) -> Callable[[], object] | None:
    """The same recipe of its own modules."""
    try:
        k: Any = importlib.import_module("kornia.augmentation")
    except ModuleNotFoundError:
        return None
    side = (a.size, a.size)
    if a.crop == "padded":
        steps = [k.RandomCrop(side, padding=a.padding, cropping_mode="resample")]
    else:
        steps = [k.RandomResizedCrop(side, a.scale, a.ratio, cropping_mode="resample")]
    if a.jitter_p:
        steps += [k.ColorJitter(*a.jitter, p=a.jitter_p), k.RandomGrayscale(p=a.grey)]
    if a.blur:
        steps += [k.RandomGaussianBlur((13, 13), a.sigma, p=a.blur)]
    steps += [k.RandomHorizontalFlip(p=a.flip), k.Normalize(torch.tensor(MEAN), torch.tensor(STD))]
    composed = torch.nn.Sequential(*steps)
    return lambda: composed(pixels.float().div(255))


def pictures(n: int, side: int) -> Tensor:
    """Soft ones, as photographs are: on noise PIL's conversions are slower."""
    coarse = torch.rand(n, 3, 6, 6, generator=torch.Generator().manual_seed(0)) * 255
    return torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear").to(torch.uint8)


def main(arguments: list[str]) -> None:
    """Measure, print, write."""
    torch.set_num_threads(1)
    torch.empty(31 * 2**18)  # freed at once: from here on malloc keeps memory, as it does after a network's first step
    rows: list[dict[str, object]] = []
    for name, augment, side, n in CASES:
        pixels, ids = pictures(n, side), torch.arange(n)
        ways = {"mlcpc": lambda a=augment, p=pixels, i=ids: a(p, i, 0), "PIL": pil(augment, pixels)}
        other = kornia(augment, pixels)
        times = medians({**ways, "kornia": other} if other else ways, seconds=2.0 if "--quick" in arguments else 10.0)
        for way, seconds in times.items():
            rate = {"images_per_second": round(n / seconds), "ours_over_this": round(seconds / times["mlcpc"], 2)}
            rows.append({"recipe": name, "side": augment.size, "batch": n, "way": way, **rate})
            print(rows[-1], flush=True)
    if "--quick" not in arguments:
        print(write("augment", rows))


if __name__ == "__main__":
    main(sys.argv[1:])
