"""Numbers of several seeds side by side: mean, spread, and whether a difference is more than chance."""

import math
import random
from collections.abc import Sequence
from itertools import product
from statistics import fmean, stdev
from typing import NamedTuple

__all__ = ["Cell", "Gain", "gain", "mean_and_spread", "sign_flip_p", "sign_tail", "t_tail"]


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation; the latter is NaN for a single value.

    >>> mean_and_spread([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    return fmean(values), stdev(values) if len(values) > 1 else math.nan


def sign_flip_p(differences: Sequence[float]) -> float:
    """How often paired differences of either sign would have a mean as far from 0 as these, were both methods alike.

    Exact, over all 2^n choices of sign, up to 16 differences; over 50,000 random choices above. Two-sided. With n
    pairs it cannot fall below 2 / 2^n: five pairs or fewer never reach 0.05.

    >>> sign_flip_p([0.2, 0.3, 0.1]), sign_flip_p([0.2, -0.2])
    (0.25, 1.0)
    """
    if not differences:
        return math.nan
    seen = abs(fmean(differences)) - 1e-12
    if len(differences) <= 16:
        signs: list[tuple[int, ...]] = list(product((1, -1), repeat=len(differences)))
    else:
        chance = random.Random(0)
        signs = [tuple(chance.choices((1, -1), k=len(differences))) for _ in range(50_000)]
    far = sum(abs(fmean(s * d for s, d in zip(each, differences, strict=True))) >= seen for each in signs)
    return far / len(signs)


def sign_tail(agree: int, total: int) -> float:
    """The probability that at least so many of `total` fair coins agree.

    >>> sign_tail(5, 5), sign_tail(0, 3)
    (0.03125, 1.0)
    """
    return sum(math.comb(total, k) for k in range(agree, total + 1)) / (1 << total)


def t_tail(t: float, df: int) -> float:
    """The probability that Student's t with a whole number of degrees of freedom is above `t` (Abramowitz, 26.7.3-4).

    >>> round(t_tail(2.92, 2), 3), t_tail(0.0, 7)
    (0.05, 0.5)
    """
    angle = math.atan2(t, math.sqrt(df))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(1 + odd, df, 2):
        total += term
        term *= cosine**2 * k / (k + 1)
    within = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return (1 - within) / 2


class Cell(NamedTuple):
    """A number of a table."""

    mean: float
    sd: float
    runs: int


class Gain(NamedTuple):
    """By how much one method is above another."""

    mean: float
    error: float
    """standard error of the mean; NaN where nothing tells a spread"""
    p: float
    """one-sided, of a gain as large as this by chance; NaN likewise"""
    basis: str
    """what the spread was taken over"""


def gain(pairs: Sequence[tuple[Cell, Cell]]) -> Gain:
    """The mean of first minus second over pairs of cells, by Student's t.

    The pairs (of networks, of data sets) are the ones that were asked about, so the spread is that of seeds. Where
    each cell is a single run, the pairs have to serve: their gains are taken as a sample.
    """
    gains = [first.mean - second.mean for first, second in pairs]
    cells = [cell for pair in pairs for cell in pair]
    if all(cell.runs > 1 for cell in cells):
        error = math.sqrt(sum(cell.sd**2 / cell.runs for cell in cells)) / len(pairs)
        df, basis = sum(cell.runs - 1 for cell in cells), f"spread of {cells[0].runs} seeds"
    elif len(pairs) > 1:
        error, df, basis = stdev(gains) / math.sqrt(len(pairs)), len(pairs) - 1, f"spread of {len(pairs)} single runs"
    else:
        return Gain(gains[0], math.nan, math.nan, "one run each")
    mean = fmean(gains)
    t = mean / error if error else math.copysign(math.inf, mean)
    return Gain(mean, error, t_tail(t, df), basis)
