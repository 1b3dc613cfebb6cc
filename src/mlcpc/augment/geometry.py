"""Where to cut a picture, and the cutting: rows and columns of PIL's triangle filter, as two matrix products a sample.

A flip is the columns read backwards; padding is rows of zeros. Windows that need no resizing are read, not multiplied.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from mlcpc.config import InputError

__all__ = ["TRIES", "centre", "cut", "mirrored", "padded", "resized"]

TRIES = 10
"""of a random resized crop, before it falls back to the centre; torchvision's number"""
#: (n, 4) each: left, top, width, height of every crop, and of the part of the picture that its pixels are made from.
Boxes = tuple[Tensor, Tensor]
Span = tuple[float, float]


def padded(u: Tensor, width: int, height: int, size: int, padding: int) -> Boxes:
    """A window anywhere in the picture with `padding` zeros around it."""
    room = torch.tensor([width, height]) + 2 * padding - size
    if room.min() < 0:
        raise InputError(f"a picture of {width}x{height}, padded by {padding}, is smaller than size={size}")
    corner = (u[:, :2] * (room + 1)).floor() - padding
    return torch.cat([corner, torch.full_like(corner, size)], 1), _whole(u, width, height)


def resized(u: Tensor, width: int, height: int, scale: Span, ratio: Span) -> Boxes:
    """torchvision's RandomResizedCrop: the first of ten tries that fits, else the largest allowed one at the centre."""
    low, high = ratio
    area = width * height * (scale[0] + (scale[1] - scale[0]) * u[:, :TRIES])
    aspect = (math.log(low) + math.log(high / low) * u[:, TRIES : 2 * TRIES]).exp()
    w, h = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = fits.int().argmax(1, keepdim=True)
    sides = torch.cat([w.gather(1, first), h.gather(1, first)], 1)
    corner = (u[:, -2:] * (torch.tensor([width, height]) - sides + 1)).floor()
    w_last, h_last = min(width, round(height * high)), min(height, round(width / low))
    last = torch.tensor([(width - w_last) // 2, (height - h_last) // 2, w_last, h_last], dtype=u.dtype)
    box = torch.where(fits.any(1, keepdim=True), torch.cat([corner, sides], 1), last)
    return box, box


def centre(u: Tensor, width: int, height: int, size: int, resize: int) -> Boxes:
    """What torchvision's Resize (of the shorter side) and CenterCrop leave, in the pixels of the picture."""
    sides = [int(resize * side / min(width, height)) for side in (width, height)]
    if resize < size:
        raise InputError(f"resize is {resize}, smaller than the crop of {size}: write resize={size} or more")
    pixel = [old / new for old, new in zip((width, height), sides, strict=True)]
    corner = [round((side - size) / 2) * step for side, step in zip(sides, pixel, strict=True)]
    box = torch.tensor([*corner, *(size * step for step in pixel)], dtype=u.dtype)
    return box.expand(len(u), 4), _whole(u, width, height)


def _whole(u: Tensor, width: int, height: int) -> Tensor:
    return torch.tensor([0, 0, width, height], dtype=u.dtype).expand(len(u), 4)


def cut(x: Tensor, boxes: Boxes, flip: Tensor, size: int) -> Tensor:
    """Crop, resize and mirror uint8 pictures: columns, then rows, and whole levels at the end, as PIL; float."""
    n, channels, height, width = x.shape
    (left, top, w, h), (seen_left, seen_top, seen_w, seen_h) = (box.T for box in boxes)
    if n and bool(((w == size) & (h == size) & (left == left.floor()) & (top == top.floor())).all()):
        return _read(x, left.long(), top.long(), flip, size).float()
    columns = _weights(left, w, seen_left, seen_w, size, width, flip, x.device)
    rows = _weights(top, h, seen_top, seen_h, size, height, torch.zeros_like(flip), x.device)
    across = torch.bmm(x.float().view(n, channels * height, width), columns.mT)
    # halves are frequent; PIL rounds them up, and no order of summation is to decide
    return (rows[:, None] @ across.view(n, channels, height, size)).add_(1e-3).round_()


def _read(x: Tensor, left: Tensor, top: Tensor, flip: Tensor, size: int) -> Tensor:
    """Windows of `size`, with zeros where they lie beside the picture."""
    n, channels, height, width = x.shape
    west, north = (max(0, -int(first.min())) for first in (left, top))
    east, south = (max(0, int(first.max()) + size - side) for first, side in ((left, width), (top, height)))
    x = pad(x, (west, east, north, south))
    i = torch.arange(size)
    columns = torch.where(flip[:, None], size - 1 - i, i) + left[:, None] + west
    rows = (i + top[:, None] + north) * x.shape[3]
    at = (rows.to(x.device)[:, :, None] + columns.to(x.device)[:, None]).view(n, 1, -1)
    return x.flatten(2).gather(2, at.expand(-1, channels, -1)).view(n, channels, size, size)


def _weights(
    first: Tensor, length: Tensor, low: Tensor, seen: Tensor, out: int, size: int, flip: Tensor, device: torch.device
) -> Tensor:
    """(n, out, size) of PIL's BILINEAR: a triangle, as wide as the step where that is more than a pixel."""
    step = length / out
    at = first[:, None] + (torch.arange(out) + 0.5) * step[:, None]
    at = torch.where(flip[:, None], at.flip(1), at).float().to(device)
    slope = (-1 / step.clamp(min=1)).float().to(device)[:, None, None]
    x = torch.arange(size, device=device) + 0.5
    inside = (x > low[:, None].float().to(device)) & (x < (low + seen)[:, None].float().to(device))
    w = (x - at[:, :, None]).abs_().mul_(slope).add_(1).clamp_(min=0).mul_(inside[:, None])
    return w.div_(w.sum(2, keepdim=True).clamp_(min=1e-6))


def mirrored(x: Tensor, flip: Tensor) -> Tensor:
    """Where `flip` says so, in place."""
    rows = flip.nonzero()[:, 0].to(x.device)
    return x.index_copy_(0, rows, x.index_select(0, rows).flip(3)) if len(rows) else x
