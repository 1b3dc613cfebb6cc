"""A plain classifier, trained with the recipe of the distillation study: the teachers, and the students' baseline.

SGD with momentum 0.9 and weight decay 5e-4, batches of 64, random crops and flips, 240 epochs, a tenth of the rate
after epochs 150, 180 and 210 (at other lengths: after the same shares).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mlcpc import augment, checkpoints, data, draws, models
from mlcpc.config import InputError
from mlcpc.data import Loader
from mlcpc.loop import Show, fit
from mlcpc.plan import Plan, Progress, milestones
from mlcpc.ranks import Ranks
from mlcpc.replay import Replay
from mlcpc.runs import Place, read_json, run_folder, run_once

__all__ = [
    "WEIGHTS",
    "Classifier",
    "Trained",
    "Training",
    "accuracy",
    "curve",
    "data_of",
    "load_network",
    "loaders",
    "places",
    "sgd",
    "study_rate",
    "train",
]

WEIGHTS = "network.safetensors"
Triple = tuple[float, float, float]
SMALL_RATE = ("MobileNetV2", "ShuffleV1", "ShuffleV2")
"""networks that diverge at 0.05; the study trains them at 0.01"""


@dataclass(frozen=True)
class Training:
    """What to train on what, and how."""

    network: str = "resnet56"
    """one of mlcpc.models.MODELS"""
    data: str = "cifar100"
    """cifar10, cifar100, fashion-mnist, digits, or folder: class folders of images in --data-dir"""
    epochs: int = 240
    """the rate falls at 5/8, 3/4 and 7/8 of them"""
    batch: int = 64
    """samples a step, over all ranks together"""
    rate: float = 0.0
    """0: the study's, 0.01 for MobileNetV2 and both ShuffleNets and 0.05 for the others"""
    weight_decay: float = 5e-4
    """of SGD, with momentum 0.9"""
    precision: str = "bfloat16"
    """of the networks' products; weights and sums stay in float32. Or float32"""
    accumulate: int = 1
    """pieces that a batch is cut into where memory is short; batch normalisation then sees pieces"""
    limit: int = 0
    """use only so many training images; 0: all"""
    seed: int = 0
    """of the initialisation, the order and the augmentation"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", models.canonical(self.network))

    @property
    def name(self) -> str:
        """Leads the run's folder name."""
        return f"{self.network}-{Path(self.data).name}-s{self.seed}"

    def plan(self, place: Place) -> Plan:
        """For `loop.fit`."""
        return Plan(
            self.epochs,
            self.batch,
            self.seed,
            self.precision,
            accumulate=self.accumulate,
            tensorboard=place.tensorboard,
        )


class Classifier:
    """A learner for `loop.fit`: cross entropy, and top-1 and top-5 on held-out images."""

    def __init__(self, net: nn.Module, optimizer: torch.optim.Optimizer, test: Loader, ranks: Ranks) -> None:
        self.parts, self.optimizer, self.test, self.ranks = net, optimizer, test, ranks
        self.learning = Replay(net, lambda images: (net(images),))

    def loss(self, batch: data.Batch, at: Progress) -> tuple[Tensor, dict[str, Tensor]]:
        self.parts.train()
        (logits,) = self.learning(batch.images.contiguous(memory_format=torch.channels_last))
        hit = (logits.detach().argmax(1) == batch.labels).float().mean()
        return F.cross_entropy(logits.float(), batch.labels) * at.weight, {"train_top1": hit}

    def after_step(self, batch: data.Batch, at: Progress) -> None:
        """Nothing but gradients."""

    def evaluate(self, at: Progress) -> dict[str, float]:
        return accuracy(self.parts, self.test, self.ranks.device)


def train(config: Training, place: Place, show: Show | None = None, ranks: Ranks | None = None) -> dict[str, Any]:
    """Train to the end, from the newest checkpoint on; the result, with the weights beside it in the run's folder."""
    ranks = ranks or Ranks(place.device)
    folder = run_folder(config, "train", place.runs)

    def compute(config: Training) -> dict[str, Any]:
        learn, test = loaders(config, place)
        torch.manual_seed(config.seed)
        net = models.placed(models.build(config.network, len(learn.source.classes)), ranks.device)
        learner = Classifier(net, sgd([net], config), test, ranks)
        rows = fit(learner, learn, config.plan(place), milestones(study_rate(config)), folder, ranks, show)
        if ranks.rank == 0:
            save_network(folder / WEIGHTS, net, config.network, learn.source.classes)
        parameters, products = models.counts(net, in_memory(learn.source).pixels.shape[-1])
        return summary(rows) | {"parameters": parameters, "multiply_accumulates": products}

    return run_once(config, "train", compute, place.runs, ranks.rank == 0)


def loaders(config: Any, place: Place) -> tuple[Loader, Loader]:
    """Of training images, cropped and flipped, and of test images as they are."""
    if config.data == "imagenet":
        raise InputError(
            "these networks see images of 32×32, which ImageNet is not: write --data PATH for class folders"
        )
    part, rest = (data.load(config.data, place.data_dir, train=part) for part in (True, False))
    learn, test = in_memory(limited(part, config.limit)), in_memory(rest)
    mean, std = statistics(learn)
    size = learn.pixels.shape[-1]
    return Loader(learn, augment.crop_flip(mean, std, size, size // 8)), Loader(test, augment.plain(mean, std))


def limited(source: data.Images | data.Files, limit: int) -> Any:
    """The first images, or of class folders, which lie one class behind the other, some of all."""
    if not limit or limit >= len(source):
        return source
    return source.take(limit if isinstance(source, data.Images) else draws.permutation(len(source), "limit")[:limit])


def in_memory(source: data.Images | data.Files, size: int = 32) -> data.Images:
    """The study's networks see small images; a folder of photographs is shrunk to their size once."""
    return source if isinstance(source, data.Images) else source.in_memory(size)


def statistics(source: data.Images) -> tuple[Triple, Triple]:
    """Mean and standard deviation of each channel: the published ones, or else these images' own."""
    if source.name in data.STATISTICS:
        mean, std = data.STATISTICS[source.name]
        return triple(mean), triple(std)
    level = source.pixels[:10_000].double() / 255
    return triple(level.mean((0, 2, 3)).tolist()), triple(level.std((0, 2, 3)).clamp_min(1e-3).tolist())


def triple(channels: Iterable[float]) -> Triple:
    """Of red, green and blue."""
    red, green, blue = channels
    return red, green, blue


def study_rate(config: Any, network: str = "") -> float:
    """The config's own rate, or the study's for this network."""
    return config.rate or (0.01 if (network or config.network) in SMALL_RATE else 0.05)


def sgd(modules: Iterable[nn.Module], config: Any) -> torch.optim.Optimizer:
    """Over every parameter that learns."""
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    return torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=config.weight_decay, fused=True)


@torch.no_grad()
def accuracy(net: Callable[[Tensor], Tensor], test: Loader, device: torch.device, batch: int = 500) -> dict[str, float]:
    """Top-1 and top-5 of all of `test`, as shares. Ties count against the network, and so does NaN."""
    if isinstance(net, nn.Module):
        net.eval()
    found = torch.zeros(2, device=device)
    for some in test.whole(device, batch):
        logits = net(some.images.contiguous(memory_format=torch.channels_last)).float()
        place = places(logits, some.labels)
        found += torch.stack([(place <= 1).sum(), (place <= 5).sum()])
    top1, top5 = (found / len(test)).tolist()
    return {"top1": top1, "top5": top5}


def places(scores: Tensor, labels: Tensor) -> Tensor:
    """(n,) where each label stands among its row's scores (n, classes), from 1.

    A tie counts against the label, and a score that is no number, or −inf, is behind any place.

    >>> places(torch.tensor([[3.0, 1.0, 2.0], [5.0, 5.0, 0.0]]), torch.tensor([2, 0])).tolist()
    [2, 2]
    """
    own = scores.gather(1, labels[:, None])
    place = (~(scores < own)).sum(1)
    return place.masked_fill_(~own.squeeze(1).isfinite(), torch.iinfo(place.dtype).max)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The last and the best epoch of a run, and its curve."""
    scored = [row for row in rows if "top1" in row]
    best = max(scored, key=lambda row: row["top1"])
    last = {name: scored[-1][name] for name in ("top1", "top5")}
    best_of = {"best_top1": best["top1"], "best_epoch": best["epoch"] + 1}
    return {**last, **best_of, "seconds": rows[-1]["seconds"], "curve": curve(rows)}


def curve(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a result keeps of `loop.fit`'s rows."""
    return [{name: value for name, value in row.items() if name not in ("kind", "rate")} for row in rows]


class Trained(NamedTuple):
    """A network and what is to be known of it."""

    net: models.Network
    network: str
    """its name in mlcpc.models"""
    classes: tuple[str, ...]
    size: int
    """side of the images that it was trained on"""


def save_network(path: Path, net: nn.Module, network: str, classes: tuple[str, ...], size: int = 32) -> None:
    """Weights with the name that builds what they fit into."""
    known = {"network": network, "classes": list(classes), "size": size, "state": net.state_dict()}
    checkpoints.save(path, known)


def data_of(run: Path) -> str:
    """The data set that a run was made with."""
    stored = read_json(run / "config.json")
    name = stored.get("data") if isinstance(stored, dict) else None
    if not name or not isinstance(name, str):
        raise InputError(f"{run} is no run that was trained on images: give a folder below runs/pretrain or runs/train")
    return name


def load_network(path: Path) -> Trained:
    """What `save_network` wrote."""
    stored = checkpoints.load(path)
    if not isinstance(stored, dict) or not {"network", "classes", "state"} <= stored.keys():
        raise InputError(f"{path} holds no trained network: give the {WEIGHTS} of a finished `mlcpc train` run")
    try:
        net = models.build(stored["network"], len(stored["classes"]))
        net.load_state_dict(stored["state"])
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        said = " ".join(str(error).split())
        raise InputError(f"{path} holds weights that do not fit the network they name: {said}") from error
    return Trained(net, stored["network"], tuple(stored["classes"]), stored.get("size", 32))
