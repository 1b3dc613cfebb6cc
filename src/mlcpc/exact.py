"""L_α and J_α in closed form for binary X = Y (Appendix C.1): no sampling, no critic to train.

Pr(X = Y = 1) = p, a batch of n pairs whose negatives are the other pairs (m = n), and the critic g(x, y) = [x = y].
A batch is then described by t, its number of (1, 1) pairs, which is Binomial(n, p): a sum over t is the expectation.
"""

import math
from numbers import Integral, Real
from typing import NamedTuple

import torch
from torch import Tensor

from mlcpc.bounds import normalise

__all__ = ["Moments", "binary_moments", "entropy"]


class Moments(NamedTuple):
    """Of the estimate of one batch, in nats (and nats²)."""

    mean: float
    variance: float


def entropy(p: float) -> float:
    """I(X; Y) = H(X) for X = Y ~ Bernoulli(p), in nats.

    >>> entropy(0.5) == math.log(2)
    True
    """
    _check_p(p)
    return -p * math.log(p) - (1 - p) * math.log1p(-p)


def binary_moments(n: int, alpha: float = 1.0, objective: str = "ml_cpc", p: float = 0.5) -> Moments:
    """Mean and variance of the estimate over batches of n = m pairs, in O(n).

    The paper's Example 1, where L_0.5 exceeds log 2 = 0.693:

    >>> round(binary_moments(3, alpha=0.5, objective="cpc").mean, 4)
    0.7174
    """
    _check_p(p)
    if not isinstance(n, Integral) or n < 2:
        raise ValueError(f"n is {n!r}: in-batch negatives need two pairs or more, a whole number of them")
    if not isinstance(alpha, Real) or not 0 < alpha < n:
        raise ValueError(f"alpha is {alpha!r} but must lie strictly between 0 and m = n = {n}")
    t = torch.arange(n + 1, dtype=torch.float64)
    value = _ROWS[normalise(objective)](t, n, alpha)
    weight = _binomial(t, n, p)
    mean = (weight * value).sum()
    return Moments(float(mean), float((weight * (value - mean) ** 2).sum()))


def _cpc(t: Tensor, n: int, alpha: float) -> Tensor:
    """A pair that agrees with c pairs (itself among them) scores log n / (α + β(c − 1))."""
    beta = (n - alpha) / (n - 1)

    def rows(c: Tensor) -> Tensor:
        return c * torch.log(n / (alpha + beta * (c.clamp_min(1) - 1)))

    return (rows(t) + rows(n - t)) / n


def _ml_cpc(t: Tensor, n: int, alpha: float) -> Tensor:
    """All n positives score 1, and so do t(t−1) + (n−t)(n−t−1) negatives."""
    beta = (n - alpha) / (n - 1)
    return torch.log(n * n / (alpha * n + beta * (t * (t - 1) + (n - t) * (n - t - 1))))


_ROWS = {"cpc": _cpc, "ml_cpc": _ml_cpc}


def _binomial(t: Tensor, n: int, p: float) -> Tensor:
    log_choose = math.lgamma(n + 1) - torch.lgamma(t + 1) - torch.lgamma(n - t + 1)
    return torch.softmax(log_choose + t * math.log(p) + (n - t) * math.log1p(-p), 0)


def _check_p(p: float) -> None:
    if not isinstance(p, Real) or not 0 < p < 1:
        raise ValueError(
            f"p is {p!r} but must lie strictly between 0 and 1: at the ends X is constant and tells nothing"
        )
