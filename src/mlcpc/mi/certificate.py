"""A lower confidence bound on the mutual information that needs no asymptotics."""

import math

import torch
from torch import Tensor

__all__ = ["certified_low"]

_CLIPS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)


def certified_low(
    units: list[tuple[Tensor, Tensor]], trials: list[tuple[Tensor, Tensor]], confidence: float = 0.95
) -> float:
    """The largest I₀ for which "I(X; Y) < I₀" is refuted at this confidence (0 if none is).

    Two rows (a, a'), (b, b') give one unit,

        V = 1 + ½ [f(a,a') + f(b,b')] − ½ [exp f(a,b') + exp f(b,a')],   f held within ±c,

    and E[V] ≤ I whatever f and c (the bound of Nguyen, Wainwright and Jordan; the negatives are draws of P_X P_Y). V is
    never below 1 − c − e^c, so for every I₀ > E[V] the wealth of a gambler who stakes on V > I₀,
    Π (1 + λ_t (V_t − I₀)), has expectation at most 1; its mean over folds too, however folds depend on each other. By
    Markov's inequality it passes 1/(1 − confidence) with probability at most 1 − confidence.

    Assumes: the rows are independent and identically distributed, and the critic of a fold (with its scale, clip and
    offset, which come from `trials`, its validation rows) has seen none of the fold's rows. Nothing about tails or
    smoothness, and no large n. It pays for that: it is lower than `ci_low`, and can never be much above log n.

    >>> quiet = torch.zeros(500, 2)
    >>> certified_low([(quiet, quiet)] * 2, [(quiet, quiet)] * 2)
    0.0
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence} but must lie strictly between 0 and 1")
    games = []
    for unit, trial in zip(units, trials, strict=True):
        clip = max(_CLIPS, key=lambda c: _promise(_values(*trial, c), c, len(unit[0]), confidence))
        games.append((_values(*unit, clip), 1 - clip - math.exp(clip)))
    low, high = min(floor for _, floor in games), max(float(v.max()) for v, _ in games)
    for _ in range(40):  # the wealth falls as I₀ rises
        middle = (low + high) / 2
        wealth = torch.stack([_log_wealth(v, floor, middle, confidence) for v, floor in games])
        if float(wealth.logsumexp(0)) - math.log(len(games)) > -math.log(1 - confidence):
            low = middle
        else:
            high = middle
    return max(0.0, low)


def _values(own: Tensor, swapped: Tensor, clip: float) -> Tensor:
    return 1 + own.clamp(-clip, clip).double().mean(1) - swapped.clamp(-clip, clip).double().exp().mean(1)


def _promise(v: Tensor, clip: float, n: int, confidence: float) -> float:
    """What a clip may be expected to certify on n units, by Bernstein's inequality."""
    size = -math.log(1 - confidence) / n
    return float(v.mean() - (2 * v.var() * size).sqrt() - (clip + math.exp(clip)) * size)


def _log_wealth(v: Tensor, floor: float, null: float, confidence: float) -> Tensor:
    """Σ log(1 + λ_t (V_t − I₀)); λ_t looks at earlier units only and at most halves the wealth."""
    if null <= floor:
        return torch.tensor(math.inf, dtype=v.dtype)
    n, count = len(v), torch.arange(1, len(v) + 1, dtype=v.dtype)
    mean = v.cumsum(0) / (count + 1)
    variance = ((v - mean).square().cumsum(0) + 0.25) / (count + 1)
    earlier = torch.cat([torch.tensor([0.25], dtype=v.dtype), variance[:-1]])
    stake = (-2 * math.log(1 - confidence) / (n * earlier)).sqrt().clamp(max=0.5 / (null - floor))
    return (stake * (v - null)).log1p().sum()
