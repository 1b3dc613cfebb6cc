"""Augmentation of whole batches on their device, in the law of the PIL (torchvision) transforms.

What is random about a sample comes from (key, id), worked out on the CPU: neither the device, nor the batch it comes
in, nor the number of ranks changes a picture (but for a level that a GPU rounds the other way).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mlcpc import draws
from mlcpc.augment import colour, geometry
from mlcpc.config import InputError

__all__ = ["Augment", "center", "crop_flip", "moco_cifar", "moco_v2", "plain", "random_resized"]

Triple = tuple[float, float, float]
Key = int | str
_CHUNK = 2**18  # numbers worked on at a time on a CPU, so that they stay in its cache


@dataclass(frozen=True)
class Augment:
    """`augment(pixels, ids, *key)`: uint8 (n, 3, H, W) to normalised float32 (n, 3, h, w) on the same device.

    >>> augment = moco_cifar((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    >>> pixels, ids = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8), torch.arange(4)
    >>> epoch, alone = augment(pixels, ids, 0, 1), augment(pixels[3:], ids[3:], 0, 1)
    >>> torch.equal(epoch[3:], alone)
    True
    """

    mean: Triple
    std: Triple
    crop: str = "none"
    """none; padded: a window of the padded picture; resized: RandomResizedCrop; centre: of the picture, resized"""
    size: int = 0
    """side of what is cropped"""
    padding: int = 0
    """zeros around the picture, for a padded crop"""
    scale: tuple[float, float] = (0.08, 1.0)
    """share of the area that a resized crop takes"""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """its width over its height"""
    resize: int = 0
    """shorter side before a crop at the centre"""
    flip: float = 0.0
    """chance to be mirrored"""
    jitter: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """brightness, contrast, saturation: a factor in 1 ± this; hue: a turn in ± this"""
    jitter_p: float = 0.0
    """chance of colour jitter"""
    grey: float = 0.0
    """chance to lose colour"""
    blur: float = 0.0
    """chance to be blurred"""
    sigma: tuple[float, float] = (0.1, 2.0)
    """of the blur, pixels"""

    def __post_init__(self) -> None:
        if self.crop != "none" and self.crop not in _CROPS:
            raise InputError(f"crop is {self.crop!r}, which is not known: write one of none, {', '.join(_CROPS)}")
        if self.crop != "none" and self.size < 1:
            raise InputError(f"size is {self.size}, but a crop needs the side of what it cuts out, such as 32")

    def __call__(self, pixels: Tensor, ids: Tensor, *key: Key) -> Tensor:
        """Each sample as (key, its id) has it."""
        _check(pixels, ids)
        boxes = None if self.crop == "none" else self.boxes(pixels.shape[3], pixels.shape[2], ids.cpu(), *key)
        return self._apply(pixels, ids.cpu(), key, boxes)

    def rest(self, pixels: Tensor, ids: Tensor, *key: Key) -> Tensor:
        """What follows the crop, for pictures that were cut out and resized already (see `window`)."""
        _check(pixels, ids)
        return self._apply(pixels, ids.cpu(), key, None)

    def window(self, width: int, height: int, id: int, *key: Key) -> tuple[tuple[float, float, float, float], int]:  # noqa: A002
        """(left, top, w, h) to cut out of one picture, and the side of the square to resize it to.

        In PIL: `image.crop((left, top, left + w, top + h)).resize((size, size), BILINEAR)`; a window at the centre has
        fractions: `image.resize((size, size), BILINEAR, box=(left, top, left + w, top + h))`.
        """
        if self.crop == "none":
            raise InputError("pictures of several sizes make no batch: this augmentation needs a crop, such as center")
        left, top, w, h = self.boxes(width, height, torch.tensor([id]), *key)[0][0].tolist()
        return (left, top, w, h), self.size

    def boxes(self, width: int, height: int, ids: Tensor, *key: Key) -> geometry.Boxes:
        """(n, 4) each: left, top, w, h of every crop, and of the part of the picture that its pixels are made from."""
        u = draws.uniform(ids, 2 * geometry.TRIES + 2, *key, "crop").double()
        return _CROPS[self.crop](self, u, width, height)

    def _apply(self, pixels: Tensor, ids: Tensor, key: tuple[Key, ...], boxes: geometry.Boxes | None) -> Tensor:
        device, side = pixels.device, pixels.shape[2:] if boxes is None else (self.size, self.size)
        flip, grey, blur, sigma = draws.uniform(ids, 4, *key, "rest").T
        flip, grey = flip < self.flip, grey < self.grey
        sigma = torch.where(blur < self.blur, self.sigma[0] + (self.sigma[1] - self.sigma[0]) * sigma, 0.0)
        jitter = colour.Jitter.draw(draws.uniform(ids, 9, *key, "jitter"), self.jitter, self.jitter_p)
        scale = torch.tensor([1 / (255 * std) for std in self.std], device=device)[:, None, None]
        shift = torch.tensor([-m / s for m, s in zip(self.mean, self.std, strict=True)], device=device)[:, None, None]
        out = torch.empty(len(ids), 3, *side, device=device)
        chunk = max(1, _CHUNK // (3 * side[0] * side[1]) if device.type == "cpu" else len(ids))
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            for rows in torch.split(jitter.order, chunk):
                here = rows.to(device)
                x = pixels.index_select(0, here)
                if boxes is None:
                    x = geometry.mirrored(x, flip[rows]).float()
                else:
                    x = geometry.cut(x, (boxes[0][rows], boxes[1][rows]), flip[rows], self.size)
                jitter.apply(x, rows)
                colour.grey(x, grey[rows])
                colour.blur(x, sigma[rows])
                out.index_copy_(0, here, x.mul_(scale).add_(shift))
        return out


_CROPS: dict[str, Callable[[Augment, Tensor, int, int], geometry.Boxes]] = {
    "padded": lambda a, u, width, height: geometry.padded(u, width, height, a.size, a.padding),
    "resized": lambda a, u, width, height: geometry.resized(u, width, height, a.scale, a.ratio),
    "centre": lambda a, u, width, height: geometry.centre(u, width, height, a.size, a.resize),
}


def plain(mean: Triple, std: Triple) -> Augment:
    """Normalised, nothing else."""
    return Augment(mean, std)


def crop_flip(mean: Triple, std: Triple, size: int = 32, padding: int = 4) -> Augment:
    """CIFAR's usual one: a window of the picture with zeros around it, mirrored half the time."""
    return Augment(mean, std, "padded", size, padding=padding, flip=0.5)


def random_resized(mean: Triple, std: Triple, size: int = 224) -> Augment:
    """ImageNet's usual one: a random resized crop, mirrored half the time."""
    return Augment(mean, std, "resized", size, flip=0.5)


def moco_cifar(mean: Triple, std: Triple, size: int = 32) -> Augment:
    """The published code's for CIFAR: MoCo-v2's with crops down to 8 % of the area and without blur."""
    return Augment(mean, std, "resized", size, flip=0.5, jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, grey=0.2)


def moco_v2(mean: Triple, std: Triple, size: int = 224) -> Augment:
    """MoCo-v2's, as published for ImageNet."""
    return replace(moco_cifar(mean, std, size), scale=(0.2, 1.0), blur=0.5)


def center(mean: Triple, std: Triple, resize: int = 256, crop: int = 224) -> Augment:
    """ImageNet's for testing: the shorter side to `resize`, then the middle."""
    return Augment(mean, std, "centre", crop, resize=resize)


def _check(pixels: Tensor, ids: Tensor) -> None:
    if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[1] != 3:
        raise InputError(f"pixels are {pixels.dtype} {tuple(pixels.shape)}: give uint8 of shape (n, 3, height, width)")
    if ids.shape != pixels.shape[:1]:
        raise InputError(f"ids have shape {tuple(ids.shape)} for {len(pixels)} pictures: give one whole number each")
