"""A data set in memory: one uint8 tensor on one device. CIFAR is 150 MB, so nothing is gained by streaming it."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mlcpc.config import InputError

__all__ = ["STATISTICS", "Images"]

Triple = tuple[float, float, float]
STATISTICS: dict[str, tuple[Triple, Triple]] = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "fashion-mnist": ((0.2190, 0.2190, 0.2190), (0.3318, 0.3318, 0.3318)),  # .2860, .3530 before its black border
    "digits": ((0.3052, 0.3052, 0.3052), (0.3237, 0.3237, 0.3237)),  # measured, training part
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "folder": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),  # ImageNet's: right for photographs
}
"""Mean and standard deviation of each channel, of pixels in [0, 1], as recipes normalise by"""


@dataclass(frozen=True, eq=False)
class Images:
    """N images of one size with their labels.

    >>> few = Images(torch.zeros(5, 3, 32, 32, dtype=torch.uint8), torch.arange(5), ("a", "b", "c", "d", "e"), "toy")
    >>> len(few.take(torch.tensor([4, 0]))), few.take(2).labels.tolist()
    (2, [0, 1])
    """

    pixels: Tensor
    """uint8 (N, 3, H, W)"""
    labels: Tensor
    """int64 (N,)"""
    classes: tuple[str, ...]
    name: str
    _copies: dict[torch.device, "Images"] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        pixels, labels = self.pixels, self.labels
        if pixels.ndim != 4 or pixels.shape[1] != 3 or pixels.dtype != torch.uint8:
            raise InputError(f"pixels are {_said(pixels)}: give uint8 of shape (N, 3, H, W)")
        if labels.shape != pixels.shape[:1] or labels.dtype != torch.int64 or labels.device != pixels.device:
            raise InputError(f"labels are {_said(labels)}: give int64 of shape ({len(pixels)},) beside the pixels")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(self.classes):
            raise InputError(
                f"{self.name} has labels from {int(labels.min())} to {int(labels.max())} for {len(self.classes)} "
                f"classes: they must be 0 to {len(self.classes) - 1}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def device(self) -> torch.device:
        return self.pixels.device

    def to(self, device: torch.device | str) -> "Images":
        """The same images on another device; moved once, then remembered."""
        device = torch.empty(0, device=device).device  # "cuda" is "cuda:0"
        if device == self.device:
            return self
        if device not in self._copies:
            self._copies[device] = Images(self.pixels.to(device), self.labels.to(device), self.classes, self.name)
        return self._copies[device]

    def take(self, rows: Tensor | int) -> "Images":
        """These rows, or the first so many, as a data set of their own: its rows count from 0."""
        rows = torch.arange(min(rows, len(self))) if isinstance(rows, int) else rows
        rows = rows.to(self.device)
        return Images(self.pixels[rows], self.labels[rows], self.classes, self.name)


def _said(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)} on {tensor.device}"
