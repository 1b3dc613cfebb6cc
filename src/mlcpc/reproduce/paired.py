"""Numbers of several seeds side by side: mean, spread, and whether a difference is more than chance."""

import math
import random
from collections.abc import Sequence
from itertools import product
from statistics import fmean, stdev

__all__ = ["mean_and_spread", "sign_flip_p"]


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
