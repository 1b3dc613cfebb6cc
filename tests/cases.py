"""One list of score matrices, the awkward ones included; every suite runs over it."""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Case(NamedTuple):
    """Positives (n,), negatives (n, m−1) and an α in (0, m)."""

    name: str
    pos: Tensor
    neg: Tensor
    alpha: float


def _case(name: str, n: int, m: int, alpha: float, scale: float = 1.0, shift: float = 0.0, seed: int = 0) -> Case:
    g = torch.Generator().manual_seed(seed)
    pos = torch.randn(n, generator=g, dtype=torch.float64) * scale + shift
    return Case(name, pos, torch.randn(n, m - 1, generator=g, dtype=torch.float64) * scale, alpha)


def _with_holes(rows: slice) -> Case:
    case = _case("", 4, 5, 0.7)
    case.neg[rows, 1:3] = -math.inf
    case.neg[1] = -math.inf
    return case._replace(name=f"-inf negatives {rows}")


CASES = [
    _case("plain", 4, 6, 1.0),
    _case("one row", 1, 7, 0.5),
    _case("one negative", 5, 2, 1.0),
    _case("n = 1, m = 2", 1, 2, 1.0),
    _case("small alpha", 6, 8, 1e-6),
    _case("alpha at alpha_min", 6, 8, 8 / 43),
    _case("large alpha", 6, 8, 4.0),
    _case("alpha near m", 3, 4, 4 - 1e-6),
    _case("scores of 1e4", 4, 5, 0.3, scale=1e4),
    _case("positives far above", 4, 5, 0.3, shift=1e4),
    _case("positives far below", 4, 5, 0.3, shift=-1e4),
    _case("all equal", 4, 5, 0.3, scale=0.0),
    _with_holes(slice(0, 1)),
    _with_holes(slice(2, 4)),
]
