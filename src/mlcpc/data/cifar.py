"""CIFAR-10 and CIFAR-100, in the binary form or in the Python form, archived or extracted."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from mlcpc.config import InputError
from mlcpc.data import archives
from mlcpc.data.download import cache_folder, download
from mlcpc.data.images import Images

__all__ = ["CIFAR10", "CIFAR100"]


@dataclass(frozen=True)
class _Layout:
    """One of the forms that CIFAR is published in."""

    archive: str
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    parse: Callable[[archives.Inside, list[str]], tuple[Tensor, Tensor]]

    def find(self, root: Path) -> archives.Inside | None:
        """Its files in an archive, an extracted folder, or a folder that has either in it."""
        if root.is_file():
            fits = ("python" in root.name) == ("python" in self.archive)
            return archives.Inside(root, self.folder) if fits else None
        for place in (root, root / self.folder):
            if (place / self.train[0]).is_file() and (place / self.test[0]).is_file():
                return archives.Inside(place, self.folder)
        return archives.Inside(root / self.archive, self.folder) if (root / self.archive).is_file() else None


@dataclass(frozen=True)
class _Cifar:
    name: str
    classes: tuple[str, ...]
    md5: str
    layouts: tuple[_Layout, ...]
    """the binary one first: it is what is downloaded"""

    def __call__(self, root: Path | None, train: bool) -> Images:
        binary = self.layouts[0]
        for layout in self.layouts:
            if read := layout.find(root or cache_folder()):
                break
        else:
            if root is not None:
                raise InputError(
                    f"{root} holds no {self.name}: write --data-dir with {binary.archive}, {binary.folder} or a folder "
                    "that holds one of them; or leave it away, to download"
                )
            path = download(_TORONTO + binary.archive, self.md5, cache_folder() / binary.archive)
            layout, read = binary, archives.Inside(path, binary.folder)
        pixels, labels = layout.parse(read, list(layout.train if train else layout.test))
        return Images(pixels, labels, self.classes, self.name)


_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_TEN = "airplane automobile bird cat deer dog frog horse ship truck"
_HUNDRED = """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy
porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel
streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm"""
CIFAR10 = _Cifar(
    "cifar10",
    tuple(_TEN.split()),
    "c32a1d4ab5d03f1284b67883e8d87530",
    (
        _Layout(
            "cifar-10-binary.tar.gz",
            "cifar-10-batches-bin",
            tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
            ("test_batch.bin",),
            lambda read, names: archives.records(read, names, 1),
        ),
        _Layout(
            "cifar-10-python.tar.gz",
            "cifar-10-batches-py",
            tuple(f"data_batch_{i}" for i in range(1, 6)),
            ("test_batch",),
            lambda read, names: archives.pickled(read, names, "labels"),
        ),
    ),
)
CIFAR100 = _Cifar(
    "cifar100",
    tuple(_HUNDRED.split()),
    "03b5dce01913d631647c71ecec9e9cb8",
    (
        _Layout(
            "cifar-100-binary.tar.gz",
            "cifar-100-binary",
            ("train.bin",),
            ("test.bin",),
            lambda read, names: archives.records(read, names, 2),
        ),
        _Layout(
            "cifar-100-python.tar.gz",
            "cifar-100-python",
            ("train",),
            ("test",),
            lambda read, names: archives.pickled(read, names, "fine_labels"),
        ),
    ),
)
