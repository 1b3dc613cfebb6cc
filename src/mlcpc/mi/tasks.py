"""Pairs (x, y) whose mutual information is known."""

import math

import torch
from torch import Tensor

__all__ = ["correlated_gaussian", "correlation"]


def correlation(mi: float, dim: int) -> float:
    """ρ at which `dim` independent coordinate pairs share `mi` nats: mi = −d/2 log(1 − ρ²).

    The paper's Appendix C.2 prints 1 − ρ/2; its own example in Section 2.2 needs this one:

    >>> round(-1000 / 2 * math.log(1 - 0.2**2), 2)
    20.41
    """
    if not mi >= 0:
        raise ValueError(f"mi is {mi} nats but mutual information is never negative")
    return math.sqrt(-math.expm1(-2 * mi / dim))


def correlated_gaussian(n: int, dim: int, rho: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """n rows of x ~ N(0, I) and y = ρ x + √(1−ρ²) noise."""
    x, noise = torch.randn(2, n, dim, generator=generator)
    return x, rho * x + math.sqrt(1 - rho**2) * noise
