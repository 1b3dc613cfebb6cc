"""Colour jitter in a random order for each sample, grey, and blur; in place on float pictures in levels 0–255.

Brightness, contrast and saturation have one formula, x ← clip(f x + (1 − f) other), with other = 0, the mean of the
grey picture, or the grey picture. So three slots serve every order of the three, and samples are sorted by the slot
before which their hue turns: none is touched by what it does not need.

Levels are whole after each operation, as PIL's are, which drops fractions: left in, they made pictures lighter by 1.5
levels on average.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Jitter", "blur", "grey"]


@dataclass(frozen=True)
class Jitter:
    """What a batch draws, on the CPU: slot by slot, x ← clip(f x + g grey + m mean(grey)), and a turn of hue."""

    f: Tensor
    """(n, 3), as are g and m"""
    g: Tensor
    m: Tensor
    turn: Tensor
    """(n,) of hue, in 255ths of the circle, whole"""
    when: Tensor
    """(n,) hue turns before this slot; 3: after the last; 4: this sample's colours stay as they are"""
    order: Tensor
    """rows sorted by `when`"""

    @classmethod
    def draw(cls, u: Tensor, strengths: tuple[float, float, float, float], p: float) -> "Jitter":
        """From (n, 9) uniform numbers: four factors, four places in the order, and whether at all."""
        factors = 1 + torch.tensor(strengths[:3]) * (2 * u[:, :3] - 1)
        what = u[:, 4:7].argsort(1)  # 0 brightness, 1 contrast, 2 saturation
        f = factors.gather(1, what)
        turn = (255 * strengths[3] * (2 * u[:, 3] - 1)).trunc()
        when = torch.where(u[:, 8] < p, (u[:, 4:7] < u[:, 7:8]).sum(1), 4)
        return cls(f, (1 - f) * (what == 2), (1 - f) * (what == 1), turn, when, when.argsort(stable=True))

    def apply(self, x: Tensor, rows: Tensor) -> None:
        """To the pictures of `rows`, which are neighbours in `order`."""
        ends = torch.searchsorted(self.when[rows], torch.arange(5)).tolist()
        rows, x = rows[: ends[4]], x[: ends[4]]
        for slot in range(4):
            turning = slice(ends[slot], ends[slot + 1])
            if len(rows[turning]):
                _turn_hue(x[turning], self.turn[rows[turning]].to(x.device))
            if slot < 3 and len(rows):
                f, g, m = (part[rows, slot].to(x.device)[:, None, None] for part in (self.f, self.g, self.m))
                dull = _luminance(x)
                other = (m * dull.mean((1, 2), keepdim=True).round_() + 1e-3).add(g * dull)  # 1e-3: 99.9999 is 100
                x.mul_(f[:, None]).add_(other[:, None]).floor_().clamp_(0, 255)


def _luminance(x: Tensor) -> Tensor:
    red, green, blue = x.unbind(1)
    return (red * 0.299).add_(green, alpha=0.587).add_(blue, alpha=0.114).round_()


def _turn_hue(x: Tensor, turn: Tensor) -> None:
    """As PIL's HSV of 8 bits has it: hue in 255ths of a circle, though it wraps at 256; saturation in 255ths.

    In sixths from red, |hue| = (top − red + green + blue − 2 low) / chroma, towards green where green > blue.
    """
    red, green, blue = x.unbind(1)
    top = torch.maximum(red, green).maximum(blue)
    low = torch.minimum(red, green).minimum(blue)
    chroma = (top - low).clamp_(min=1e-3)
    hue = (top - red).add_(green).add_(blue).sub_(low, alpha=2).div_(chroma)
    hue.copysign_(green - blue).mul_(255 / 6).add_(1e-3).floor_()
    hue.sub_((hue / 255).floor_(), alpha=255).add_(turn[:, None, None])
    hue.sub_((hue / 256).floor_(), alpha=256).mul_(6 / 255)
    chroma.mul_(255).div_(top.clamp(min=1)).add_(1e-3).floor_().mul_(top).mul_(1 / 255)
    low = top.sub_(chroma)
    for channel, ramp in (
        (red, (hue - 3).abs_().sub_(1)),
        (green, (hue - 2).abs_().neg_().add_(2)),
        (blue, (hue - 4).abs_().neg_().add_(2)),
    ):
        torch.addcmul(low, chroma, ramp.clamp_(0, 1), out=channel)
    x.round_()


def grey(x: Tensor, chosen: Tensor) -> None:
    """Where `chosen`: every channel the luminance."""
    rows = chosen.nonzero()[:, 0].to(x.device)
    if len(rows):
        x.index_copy_(0, rows, _luminance(x.index_select(0, rows))[:, None].expand(-1, 3, -1, -1))


def blur(x: Tensor, sigma: Tensor) -> None:
    """PIL's GaussianBlur where sigma > 0: three box blurs whose width has a fraction, borders repeated outwards."""
    chosen = sigma.nonzero()[:, 0]
    if not len(chosen):
        return
    variance = sigma[chosen].double() ** 2 / 3
    whole = (((12 * variance + 1).sqrt() - 1) / 2).floor()
    part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance) / (6 * (variance - (whole + 1) ** 2))
    radius = (whole + part).float().to(x.device)[:, None, None]
    down, across = (_boxes(radius, int(whole.max()) + 1, size) for size in x.shape[2:])
    rows = chosen.to(x.device)
    x.index_copy_(0, rows, (down[:, None] @ (x.index_select(0, rows) @ across.mT[:, None])).round_())


def _boxes(radius: Tensor, reach: int, size: int) -> Tensor:
    """(n, size, size): three times the mean over `radius` pixels to both sides."""
    i = torch.arange(size, device=radius.device)
    j = torch.arange(-reach, size + reach, device=radius.device)
    wide = (radius + 1 - (i[:, None] - j).abs()).clamp_(0, 1) / (2 * radius + 1)
    once = wide[:, :, reach:-reach].clone()
    once[:, :, 0] += wide[:, :, :reach].sum(2)
    once[:, :, -1] += wide[:, :, -reach:].sum(2)
    return once @ once @ once
