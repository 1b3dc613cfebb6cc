"""Invertible maps: they bend x or y and leave the mutual information alone."""

import math

import torch
from torch import Tensor

__all__ = ["bimodal", "half_cube", "normal_cdf", "spiral", "swiss_roll", "wiggly_x", "wiggly_y"]


def normal_cdf(x: Tensor) -> Tensor:
    """Φ(x), column by column: Gaussians become uniform."""
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def half_cube(x: Tensor) -> Tensor:
    """sign(x) |x|^1.5: heavier tails.

    >>> half_cube(torch.tensor([-4.0, 1.0]))
    tensor([-8.,  1.])
    """
    return x.sign() * x.abs().pow(1.5)


def wiggly_x(x: Tensor) -> Tensor:
    """x + 0.4 sin x + 0.2 sin(1.7 x + 1) + 0.03 sin(3.3 x − 2.5); its slope is never below 0.16."""
    return x + 0.4 * x.sin() + 0.2 * (1.7 * x + 1).sin() + 0.03 * (3.3 * x - 2.5).sin()


def wiggly_y(y: Tensor) -> Tensor:
    """y − 0.4 sin 0.4y + 0.17 sin(1.3 y + 3.5) + 0.02 sin(4.3 y − 2.5)."""
    return y - 0.4 * (0.4 * y).sin() + 0.17 * (1.3 * y + 3.5).sin() + 0.02 * (4.3 * y - 2.5).sin()


def bimodal(x: Tensor) -> Tensor:
    """A Gaussian column becomes the mixture 0.3 N(0, 1) + 0.7 N(5, 0.3²), by inverting its distribution function."""
    grid = torch.linspace(-6, 7, 4001, dtype=torch.float64)
    cdf = 0.3 * torch.special.ndtr(grid) + 0.7 * torch.special.ndtr((grid - 5) / 0.3)
    level = torch.special.ndtr(x.double()).clamp(cdf[0], cdf[-1])
    right = torch.searchsorted(cdf, level).clamp(1, len(grid) - 1)
    share = (level - cdf[right - 1]) / (cdf[right] - cdf[right - 1])
    found: Tensor = grid[right - 1] + share * (grid[right] - grid[right - 1])
    return found.to(x.dtype)


def spiral(x: Tensor, plane: tuple[int, int] = (0, 1), speed: float | None = None) -> Tensor:
    """Turn the plane of two coordinates by the angle v |x|², v = 1/d unless given.

    >>> spiral(torch.tensor([[1.0, 0.0, 0.0]]), speed=math.pi / 2).round(decimals=4) + 0
    tensor([[0., 1., 0.]])
    """
    i, j = plane
    angle = x.square().sum(1) * (1 / x.shape[1] if speed is None else speed)
    turned = x.clone()
    turned[:, i] = angle.cos() * x[:, i] - angle.sin() * x[:, j]
    turned[:, j] = angle.sin() * x[:, i] + angle.cos() * x[:, j]
    return turned


def swiss_roll(u: Tensor) -> Tensor:
    """Roll up the unit interval: t = 3π(1 + 2u)/2, (t cos t, t sin t) / 21."""
    t = 1.5 * math.pi * (1 + 2 * u)
    return torch.cat([t * t.cos(), t * t.sin()], 1) / 21
