"""Whole runs: pretraining an encoder, probing what it learnt, and its features of a data set."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlcpc import augment, data, models
from mlcpc.classify import (
    WEIGHTS,
    Trained,
    curve,
    data_of,
    limited,
    load_network,
    loaders,
    save_network,
    statistics,
    triple,
)
from mlcpc.config import InputError
from mlcpc.data import Images, Loader
from mlcpc.loop import Show, fit
from mlcpc.plan import Plan, cosine
from mlcpc.pretrain.encoder import extract
from mlcpc.pretrain.knn import knn, online
from mlcpc.pretrain.moco import MoCo, Settings
from mlcpc.pretrain.probe import Linear, Probe, linear_probe
from mlcpc.pretrain.probe import summary as probe_summary
from mlcpc.ranks import Ranks
from mlcpc.runs import Place, run_folder, run_once

__all__ = ["Pretraining", "Probing", "encoder_of", "features_of", "pretrain", "probe"]


@dataclass(frozen=True)
class Pretraining:
    """What to learn features with, and from what. Defaults are the published ones for CIFAR."""

    network: str = "cifar_resnet50"
    """one of mlcpc.models.MODELS"""
    data: str = "cifar10"
    """cifar10, cifar100, fashion-mnist, digits, imagenet, or folder: images in --data-dir, their labels unused"""
    epochs: int = 200
    """the rate follows half a cosine over them"""
    batch: int = 256
    """images a step, over all ranks together; the last, smaller batch is left out"""
    rate: float = 0.3
    """ImageNet: 0.03"""
    augmentation: str = "auto"
    """cifar: the published code's (no blur); moco-v2: with blur; auto: moco-v2 for photographs"""
    size: int = 0
    """side of the views; 0: that of the images, 224 for photographs"""
    knn_every: int = 5
    """epochs between looks at nearest neighbours' accuracy"""
    precision: str = "bfloat16"
    """of the networks' products; weights, losses and sums stay in float32. Or float32"""
    accumulate: int = 1
    """pieces that a batch is cut into where memory is short; ML-CPC's n is then a piece's"""
    limit: int = 0
    """use only so many training images; 0: all"""
    seed: int = 0
    """of the initialisation, the order and the augmentation"""
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", models.canonical(self.network))

    @property
    def name(self) -> str:
        """Leads the run's folder name."""
        s = self.settings
        how = f"{s.objective}-{s.alpha.replace(':', 'to')}" + ("" if s.divide_by_alpha else "-undivided")
        return f"{self.network}-{s.method}-{how}-{Path(self.data).name}-s{self.seed}"

    def plan(self, place: Place) -> Plan:
        """For `loop.fit`."""
        return Plan(
            self.epochs,
            self.batch,
            self.seed,
            self.precision,
            drop_last=True,
            accumulate=self.accumulate,
            evaluate_every=self.knn_every,
            tensorboard=place.tensorboard,
        )


@dataclass(frozen=True)
class Probing:
    """A linear classifier and nearest neighbours on the features of a finished run."""

    run: str = ""
    """the run's folder; empty: an encoder with random weights, to compare with"""
    network: str = ""
    """of random weights"""
    data: str = ""
    """cifar10, cifar100, fashion-mnist, digits, or folder: class folders in --data-dir; empty: the data of the run"""
    augmented: bool = True
    """crops and flips, as published, so that the encoder runs in each epoch; --no-augmented: features are made once"""
    precision: str = "bfloat16"
    """of the encoder's products. Or float32"""
    limit: int = 0
    """use only so many training images; 0: all"""
    linear: Linear = field(default_factory=Linear)

    def __post_init__(self) -> None:
        if self.run:
            object.__setattr__(self, "run", str(Path(self.run)))
        if self.network:
            object.__setattr__(self, "network", models.canonical(self.network))
        if not self.data:
            own = data_of(Path(self.run)) if self.run and Path(self.run, "config.json").exists() else "cifar10"
            object.__setattr__(self, "data", own)

    @property
    def name(self) -> str:
        """Leads the run's folder name."""
        return f"{Path(self.run).name or f'{self.network}-random'}-on-{Path(self.data).name}"


def pretrain(config: Pretraining, place: Place, show: Show | None = None, ranks: Ranks | None = None) -> dict[str, Any]:
    """To the end, from the newest checkpoint on; the encoder's weights lie in the run's folder."""
    ranks = ranks or Ranks(place.device)
    folder = run_folder(config, "pretrain", place.runs)

    def compute(config: Pretraining) -> dict[str, Any]:
        views, evaluation = _views(config, place, ranks.device)
        if len(views) < config.batch:
            raise InputError(
                f"{config.data} has {len(views)} images, fewer than a batch of {config.batch}: "
                f"write --batch {2 ** (len(views).bit_length() - 1)} or smaller"
            )
        torch.manual_seed(config.seed)
        classes = views.source.classes
        net = models.build(config.network, max(1, len(classes)))
        net = models.placed(net, ranks.device)
        example = torch.zeros(2, 3, *[_size(config, views.source)] * 2)
        learner = MoCo(net, example, config.settings, ranks, seed=config.seed, evaluation=evaluation)
        rows = fit(learner, views, config.plan(place), cosine(config.rate), folder, ranks, show)
        if ranks.rank == 0:
            save_network(folder / WEIGHTS, net, config.network, classes, _size(config, views.source))
        last = {name: rows[-1][name] for name in ("loss", "estimate", "ceiling", "alpha")}
        return {**last, "knn": rows[-1].get("knn_top1"), "seconds": rows[-1]["seconds"], "curve": curve(rows)}

    return run_once(config, "pretrain", compute, place.runs, ranks.rank == 0)


def probe(config: Probing, place: Place, show: Show | None = None, ranks: Ranks | None = None) -> dict[str, Any]:
    """Linear evaluation and k-NN of a run's encoder; the result, on disk too."""
    ranks = ranks or Ranks(place.device)
    folder = run_folder(config, "probe", place.runs)

    def compute(config: Probing) -> dict[str, Any]:
        encoder, _, _, size = encoder_of(config)
        encoder = models.placed(encoder, ranks.device)
        learn, test = _probe_loaders(config, place, size)
        still = Loader(learn.source, test.augment)
        with torch.autocast(ranks.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
            trained, tested = (extract(encoder, part.whole(ranks.device), ranks.device) for part in (still, test))
        neighbours = knn(*trained, *tested)
        if config.augmented:
            learner = Probe(encoder, len(learn.source.classes), *tested, config.linear)
            plan = Plan(config.linear.epochs, config.linear.batch, config.linear.seed, config.precision)
            rows = fit(learner, learn, plan, config.linear.schedule, folder, ranks, show)
            found = probe_summary(rows) | {"seconds": rows[-1]["seconds"]}
        else:
            found = linear_probe(*trained, *tested, config.linear)
        return found | {"knn_top1": neighbours["top1"], "knn_top5": neighbours["top5"]}

    return run_once(config, "probe", compute, place.runs, ranks.rank == 0)


def encoder_of(config: Probing) -> Trained:
    """From a finished run, or with random weights."""
    if not config.run:
        if not config.network:
            raise InputError("no run is given: write the folder of a finished one, or --network for random weights")
        torch.manual_seed(config.linear.seed)
        return Trained(models.build(config.network), config.network, (), 224 if "imagenet" in config.network else 32)
    folder = Path(config.run)
    if not (folder / "result.json").exists():
        known = "is not finished" if (folder / "config.json").exists() else "is no run"
        raise InputError(f"{folder} {known}: give the folder of a finished `mlcpc pretrain`, such as runs/pretrain/…")
    if not (folder / WEIGHTS).exists():
        raise InputError(
            f"{folder} holds no encoder ({WEIGHTS}): it is a run of another kind; give one of `mlcpc pretrain`, "
            "`train` or `distill`"
        )
    return load_network(folder / WEIGHTS)


def features_of(
    run: Path, source: Images | data.Files, device: torch.device, precision: str = "float32", size: int = 0
) -> tuple[Tensor, Tensor]:
    """(N, d) features by a run's encoder and (N,) labels, normalised as that run's images were."""
    encoder, _, _, trained_on = encoder_of(Probing(run=str(run)))
    encoder = models.placed(encoder, device)
    mean, std = map(triple, data.STATISTICS.get(data_of(run), data.STATISTICS["imagenet"]))
    if isinstance(source, Images):
        view = augment.plain(mean, std)
    else:
        size = size or trained_on
        view = augment.center(mean, std, round(size * 256 / 224), size)
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        return extract(encoder, Loader(source, view, broken="error").whole(device), device)


def _size(config: Pretraining, source: Images | data.Files) -> int:
    if config.size:
        return config.size
    return source.pixels.shape[-1] if isinstance(source, Images) else 224


def _views(config: Pretraining, place: Place, device: torch.device) -> tuple[Loader, Any]:
    """The loader of two views, and the accuracy of nearest neighbours where there is a labelled test part."""
    learn = data.load(config.data, place.data_dir, train=True)
    photographs = isinstance(learn, data.Files)
    kind = config.augmentation if config.augmentation != "auto" else "moco-v2" if photographs else "cifar"
    recipes = {"cifar": augment.moco_cifar, "moco-v2": augment.moco_v2}
    if kind not in recipes:
        raise InputError(f"augmentation is {kind!r}, which is not known: write one of auto, {', '.join(recipes)}")
    mean, std = map(triple, data.STATISTICS["imagenet"]) if isinstance(learn, data.Files) else statistics(learn)
    learn = limited(learn, config.limit)
    two = Loader(learn, recipes[kind](mean, std, _size(config, learn)), views=2)
    if photographs:
        return two, None
    test = data.load(config.data, place.data_dir, train=False)
    plain = augment.plain(mean, std)
    still, asked = Loader(learn, plain), Loader(test, plain)
    return two, online(lambda: still.whole(device), lambda: asked.whole(device), device)


def _probe_loaders(config: Probing, place: Place, size: int) -> tuple[Loader, Loader]:
    """Of 32×32 as classifiers have them; for encoders of photographs as ImageNet's linear evaluation has them."""
    if size <= 64:
        return loaders(config, place)
    mean, std = map(triple, data.STATISTICS["imagenet"])
    learn, test = (data.load(config.data, place.data_dir, train=part) for part in (True, False))
    still = augment.center(mean, std, round(size * 256 / 224), size)
    return Loader(limited(learn, config.limit), augment.random_resized(mean, std, size)), Loader(test, still)
