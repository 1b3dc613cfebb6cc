"""The data sets by name: where their files may lie, where to get them, what they become."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from mlcpc import draws
from mlcpc.config import InputError
from mlcpc.data import archives
from mlcpc.data.cifar import CIFAR10, CIFAR100
from mlcpc.data.download import cache_folder, download
from mlcpc.data.images import Images
from mlcpc.data.photos import Files, scan

__all__ = ["DATASETS", "load"]


def load(name: str, data_dir: str | Path | None = None, train: bool = True, size: int | None = None) -> Images | Files:
    """A data set's training or test part.

    name      cifar10, cifar100, fashion-mnist, digits (offline, for a first look), imagenet, folder; or the path of a
              folder of images
    data_dir  where its files are: the archive, the extracted folder, or the folder these are in; a folder of one's own
              images; without it, the cache, filled from the network where that is possible
    size      read image files into memory, cut to squares this wide, instead of streaming them
    """
    if name not in DATASETS and Path(name).expanduser().is_dir():
        name, data_dir = "folder", name
    if name not in DATASETS:
        raise InputError(f"there is no data set or folder {name!r}: write one of {', '.join(DATASETS)}, or a path")
    root = None if data_dir is None else Path(data_dir).expanduser()
    if root is not None and not root.exists():
        raise InputError(f"{root} does not exist: write --data-dir with the folder or archive of {name}")
    data = DATASETS[name](root, train)
    if size is None or (isinstance(data, Images) and data.pixels.shape[2:] == (size, size)):
        return data
    if isinstance(data, Files):
        return data.in_memory(size)
    raise InputError(f"{name} has images of 32x32, not {size}x{size}: leave the size away")


_ZALANDO = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_FASHION = {
    "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
}
"""md5 of the .gz"""


def _fashion(root: Path | None, train: bool) -> Images:
    """28×28 grey, with a border of 2 black pixels: 32×32 in three equal channels."""
    images, labels = (_idx(root, name) for name in _FASHION if name.startswith("train") == train)
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise InputError(
            f"fashion-mnist has images {tuple(images.shape)} and labels {tuple(labels.shape)}: the files do not belong "
            "together; get them again"
        )
    pixels = pad(images, (2, 2, 2, 2))[:, None].repeat(1, 3, 1, 1)
    classes = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
    return Images(pixels, labels.long(), classes, "fashion-mnist")


def _idx(root: Path | None, name: str) -> Tensor:
    base = root or cache_folder()
    for folder in (base, base / "fashion-mnist", base / "FashionMNIST" / "raw", base / "raw"):
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file() and (root or folder != base):  # MNIST's files are called the same
                return archives.read_idx(path)
    if root is not None:
        raise InputError(f"{root} holds no {name}.gz: write --data-dir with the folder of Fashion-MNIST's four files")
    path = cache_folder() / "fashion-mnist" / f"{name}.gz"
    return archives.read_idx(download(f"{_ZALANDO}{name}.gz", _FASHION[name], path))


def _digits(root: Path | None, train: bool) -> Images:
    """scikit-learn's 1797 digits, enlarged from 8×8: 1437 to train on, 360 to test."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as missing:
        raise InputError("digits come with scikit-learn: pip install scikit-learn") from missing
    if root is not None:
        raise InputError(f"digits come with scikit-learn, not from {root}: leave --data-dir away")
    found: Any = load_digits()
    grey = torch.from_numpy(found.images).float()[:, None] * (255 / 16)
    pixels = interpolate(grey, scale_factor=4, mode="bilinear").round().clamp(0, 255).to(torch.uint8)
    order = draws.permutation(len(pixels), "digits")
    rows = order[:1437] if train else order[1437:]
    labels = torch.from_numpy(found.target).long()[rows]
    return Images(pixels[rows].repeat(1, 3, 1, 1), labels, tuple("0123456789"), "digits")


def _imagenet(root: Path | None, train: bool) -> Files:
    base = root or cache_folder()
    for place in (base, base / "imagenet", base / "ILSVRC2012", base / "ILSVRC" / "Data" / "CLS-LOC"):
        if (place / "train").is_dir() and (place / "val").is_dir():
            return _part(place, "val", train, "imagenet")
    raise InputError(
        f"{base} holds no ImageNet: get it from image-net.org (it needs an account) and write --data-dir with the "
        "folder that has train/ and val/, each with a folder for every class"
    )


def _folder(root: Path | None, train: bool) -> Files:
    if root is None:
        raise InputError("which folder? write --data-dir with a folder of images, or of class folders with images")
    if root.is_file():
        raise InputError(f"{root} is a file: write --data-dir with a folder of images, or of class folders with images")
    test = next((name for name in ("val", "test", "valid") if (root / name).is_dir()), None)
    if (root / "train").is_dir() and test is not None:
        return _part(root, test, train, "folder")
    if not train:
        raise InputError(f"{root} has no part to test on: put the images into {root}/train and {root}/val")
    return scan(root, "folder")


def _part(root: Path, test: str, train: bool, name: str) -> Files:
    """The training or test folder; both must have the same classes."""
    both = [{entry.name for entry in (root / part).iterdir() if entry.is_dir()} for part in ("train", test)]
    odd = sorted(folder for folder in both[0] ^ both[1] if not folder.startswith("."))
    if odd:
        raise InputError(
            f"{root}/train and {root}/{test} differ in {len(odd)} class folders, first {odd[0]}: each class needs a "
            "folder of the same name in both"
        )
    return scan(root / ("train" if train else test), name)


DATASETS: dict[str, Callable[[Path | None, bool], Images | Files]] = {
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "fashion-mnist": _fashion,
    "digits": _digits,
    "imagenet": _imagenet,
    "folder": _folder,
}
"""name → its training (True) or test part, from a folder or the cache"""
