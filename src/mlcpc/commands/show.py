"""`mlcpc show …`: pictures to look at, of augmentation and of what an encoder has learnt."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import tyro

from mlcpc import augment, data, draws
from mlcpc.classify import WEIGHTS, data_of, in_memory, load_network, statistics
from mlcpc.commands.shown import known, refusals
from mlcpc.config import InputError
from mlcpc.pretrain.knn import neighbours
from mlcpc.pretrain.run import features_of
from mlcpc.ranks import Ranks
from mlcpc.runs import Place
from mlcpc.sheets import contact_sheet, sheet

__all__ = ["ShowAugment", "ShowMap", "ShowNeighbours"]

RECIPES = {"crop-flip": augment.crop_flip, "cifar": augment.moco_cifar, "moco-v2": augment.moco_v2}


@dataclass(frozen=True)
class ShowAugment:
    """A sheet of images, and beside each what augmentation makes of it."""

    data: str = "cifar10"
    """cifar10, cifar100, fashion-mnist, digits, or folder: images in --data-dir"""
    recipe: str = "cifar"
    """crop-flip: of classifiers; cifar: the published code's; moco-v2: with blur"""
    images: int = 8
    """rows of the sheet"""
    views: int = 9
    """of each"""
    size: int = 32
    """side that photographs are cut to"""
    seed: int = 0
    """another one shows other views"""
    out: Path = Path("augment.png")
    """where to"""
    place: Place = field(default_factory=Place)

    def __call__(self) -> int:
        known(self.recipe, list(RECIPES), "recipe")
        with refusals():
            source = in_memory(data.load(self.data, self.place.data_dir), self.size)
            mean, std = statistics(source)
            recipe: Any = RECIPES[self.recipe]
            some = source.pixels[draws.permutation(len(source), self.seed, "sheet")[: self.images]]
            view = recipe(mean, std, size=some.shape[-1])
            print(contact_sheet(some, view, self.views, mean, std, self.out, seed=self.seed))
        return 0


@dataclass(frozen=True)
class ShowNeighbours:
    """A sheet of test images, each with the training images that an encoder finds nearest."""

    run: tyro.conf.Positional[Path]
    """the folder of a finished run"""
    images: int = 12
    """rows of the sheet"""
    near: int = 5
    """neighbours of each"""
    seed: int = 0
    """another one takes other images"""
    out: Path = Path("neighbours.png")
    """where to"""
    place: Place = field(default_factory=Place)

    def __call__(self) -> int:
        with refusals():
            bank, asked = (_part(self.run, self.place, train) for train in (True, False))
            device = Ranks(self.place.device).device
            chosen = asked.take(draws.permutation(len(asked), self.seed, "sheet")[: self.images])
            stored, wanted = (features_of(self.run, some, device)[0] for some in (bank, chosen))
            _, rows = neighbours(wanted, stored, self.near)
            pictures = [[own, *bank.pixels[near.cpu()]] for own, near in zip(chosen.pixels, rows, strict=True)]
            print(sheet(pictures, self.out))
        return 0


@dataclass(frozen=True)
class ShowMap:
    """Test images as points in the plane, near where their features are, coloured by class."""

    run: tyro.conf.Positional[Path]
    """the folder of a finished run"""
    images: int = 2000
    """points"""
    seed: int = 0
    """of the choice of images, and of t-SNE"""
    out: Path = Path("map.png")
    """where to: .png, .svg or .pdf"""
    place: Place = field(default_factory=Place)

    def __call__(self) -> int:
        if self.out.suffix not in (".png", ".svg", ".pdf"):
            raise InputError(f"--out is {self.out}: give a name that ends in .png, .svg or .pdf")
        with refusals():
            asked = _part(self.run, self.place, False)
            some = asked.take(draws.permutation(len(asked), self.seed, "map")[: self.images])
            features, labels = features_of(self.run, some, Ranks(self.place.device).device)
        points, how = _plane(features.cpu(), self.seed)
        _scatter(points, labels.cpu(), some.classes, f"{how} of {len(some)} test images · {self.run.name}", self.out)
        print(self.out)
        return 0


def _part(run: Path, place: Place, train: bool) -> data.Images:
    """Of the data set that a run was made with."""
    name = data_of(run)
    size = load_network(run / WEIGHTS).size if (run / WEIGHTS).exists() else 32
    return in_memory(data.load(name, place.data_dir, train), size)


def _plane(features: torch.Tensor, seed: int) -> tuple[torch.Tensor, str]:
    """t-SNE of unit vectors where scikit-learn is installed, otherwise the first two principal components."""
    unit = torch.nn.functional.normalize(features, dim=1)
    try:
        from sklearn.manifold import TSNE
    except ModuleNotFoundError:
        centred = unit - unit.mean(0)
        return centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:2].T, "Principal components"
    found = TSNE(perplexity=min(30.0, (len(unit) - 1) / 3), init="pca", random_state=seed).fit_transform(unit.numpy())
    return torch.from_numpy(found), "t-SNE"


def _scatter(points: torch.Tensor, labels: torch.Tensor, classes: tuple[str, ...], title: str, path: Path) -> None:
    import matplotlib as mpl

    from mlcpc import plots

    with plots.style():
        figure = plots.figure(8, 6.4)
        panel = figure.subplots()
        colours = mpl.colormaps["tab10" if len(classes) <= 10 else "turbo"].resampled(max(10, len(classes)))
        for i, name in enumerate(classes):
            mine = points[labels == i]
            panel.scatter(mine[:, 0], mine[:, 1], s=7, lw=0, color=colours(i), label=name)
        panel.set_axis_off()
        panel.set_title(title, fontsize=9, parse_math=False)  # $ in a folder's name is no formula
        if len(classes) <= 20:
            legend = panel.legend(loc="center left", bbox_to_anchor=(1, 0.5), markerscale=2.5, fontsize=9)
            for text in legend.get_texts():
                text.set_parse_math(False)
        plots.write(figure, path, dpi=150)
