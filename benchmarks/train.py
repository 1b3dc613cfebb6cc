"""The training step: how much of the machine's matrix products it reaches, what the loader takes, whether memory grows.

    python -m benchmarks.train      writes results/bench/train.csv

The rate of bf16 products is the best of three square ones (1024, 2048, 4096) in the same run. One thread.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional as F  # noqa: N812

from benchmarks.measure import medians, peak, write
from mlcpc import augment, models
from mlcpc.classify import Classifier, Training, sgd
from mlcpc.data import Images, Loader
from mlcpc.loop import fit
from mlcpc.plan import Plan, cosine
from mlcpc.ranks import Ranks

NETWORKS = {"cifar_resnet18": 64, "cifar_resnet50": 64, "resnet20": 64, "resnet56": 64}
MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def step(network: str, batch: int) -> Callable[[], object]:
    """Forward, backward and update."""
    net = models.placed(models.build(network, 10), device()).train()
    images = torch.randn(batch, 3, 32, 32, device=device()).contiguous(memory_format=torch.channels_last)
    labels = torch.arange(batch, device=device()) % 10
    optimizer = sgd([net], Training())

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device().type, torch.bfloat16):
            loss = F.cross_entropy(net(images).float(), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return run


def products() -> dict[str, Callable[[], object]]:
    """bf16 matrix products; which is fastest depends on caches."""
    found: dict[str, Callable[[], object]] = {}
    for size in (1024, 2048, 4096):
        a, b = (torch.randn(size, size, device=device()).bfloat16() for _ in range(2))
        found[f"product {size}"] = lambda a=a, b=b: a @ b  # type: ignore[misc]
    return found


def rates() -> list[dict[str, object]]:
    """Operations a second over those of the products."""
    ways = {name: step(name, batch) for name, batch in NETWORKS.items()}
    times = medians({**products(), **ways}, seconds=60.0)
    best = max(2 * size**3 / times[f"product {size}"] for size in (1024, 2048, 4096))
    rows = []
    for name, batch in NETWORKS.items():
        done = 3 * 2 * models.counts(models.build(name, 10))[1] * batch  # forward, and two products backward
        share = done / times[name] / best
        rows.append(
            {"what": f"step of {name}, bf16, n {batch}", "value": round(share, 3), "of": "the rate of bf16 products"}
        )
        print(rows[-1], f"{batch / times[name]:.0f} images/s, products {best / 1e9:.0f} GFLOP/s", flush=True)
    return rows  # type: ignore[return-value]


def images(n: int) -> Images:
    pixels = torch.randint(256, (n, 3, 32, 32), dtype=torch.uint8)
    return Images(pixels, torch.arange(n) % 10, tuple("abcdefghij"), "noise")


def loader() -> list[dict[str, object]]:
    """Share of training steps that is waiting for the loader: classifiers, and two views for MoCo.

    The loader makes about 1024 images at a time, so whole groups of steps are timed, after one that is not.
    """
    rows: list[dict[str, object]] = []
    recipes = (("crop and flip", augment.crop_flip, 1, 64), ("MoCo, two views", augment.moco_cifar, 2, 256))
    for name, recipe, views, batch in recipes:
        group = 1024 // batch
        feed = Loader(images(2 * 1024), recipe(MEAN, STD, 32), views)
        net = models.placed(models.build("cifar_resnet18", 10), device())
        batches = feed.batches(list(torch.arange(len(feed)).split(batch)), device(), (0, 0))
        waited = worked = 0.0
        for i in range(2 * group):
            started = time.thread_time()
            given = next(batches)
            between = time.thread_time()
            with torch.autocast(device().type, torch.bfloat16):
                for view in given.images.unbind(1) if views > 1 else [given.images]:
                    net(view.contiguous(memory_format=torch.channels_last)).sum().backward()
            if i >= group:  # the first call takes memory and chooses kernels
                waited += between - started
                worked += time.thread_time() - between
        share = waited / (waited + worked)
        what = f"loader, {name}, cifar_resnet18, n {batch}"
        rows.append({"what": what, "value": round(share, 4), "of": f"time of {group} steps"})
        print(rows[-1], flush=True)
    return rows


def memory() -> list[dict[str, object]]:
    """Peak memory after 2 and after 20 epochs."""
    seen: list[float] = []

    class Watching(Classifier):
        def evaluate(self, at: object) -> dict[str, float]:
            seen.append(peak())
            return {}

    feed = Loader(images(256), augment.crop_flip(MEAN, STD))
    net = models.placed(models.build("resnet8", 10), device())
    with tempfile.TemporaryDirectory() as folder:
        learner = Watching(net, sgd([net], Training()), feed, Ranks())
        fit(learner, feed, Plan(20, 64, precision="bfloat16", checkpoint_seconds=0.0), cosine(0.05), Path(folder))
    rows: list[dict[str, object]] = [
        {"what": "peak memory, 20 epochs", "value": round(seen[-1] / seen[1], 4), "of": "that of 2 epochs"}
    ]
    print(rows[-1], flush=True)
    return rows


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    print(write("train", memory() + loader() + rates()))


if __name__ == "__main__":
    main(sys.argv[1:])
