"""`estimate_kl(p, q)`: Theorem 2 is about any two distributions, not only a joint one and its margins."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (torch's own habit)

from mlcpc.bounds import alpha_min
from mlcpc.mi.columns import Column, count, intake, take
from mlcpc.mi.estimate import Estimate, doubts
from mlcpc.mi.features import fit_columns
from mlcpc.mi.intake import FEWEST, MAX_ROWS, refuse_infinite
from mlcpc.mi.networks import Mlp
from mlcpc.mi.prepare import TEMPERATURES

__all__ = ["estimate_kl"]


def estimate_kl(p: Any, q: Any, *, bits: bool = False, steps: int = 400, folds: int = 5, seed: int = 0) -> Estimate:
    """KL(P‖Q) from a sample of each: a cross-fitted critic log g(z), read by J_α at α = α_{m,n} on held-out rows.

    With n held-out rows of P and n' of Q, m − 1 = n'/n and J_α = mean_P log g − log( (α Σ_P g + β Σ_Q g) / (n m) ).

    >>> g = torch.Generator().manual_seed(0)
    >>> result = estimate_kl(torch.randn(1000, generator=g) + 1, torch.randn(1000, generator=g), steps=50)
    >>> 0.3 < result.lower_bound < 0.7  # the truth is 1/2
    True
    """
    for name, value, least in (("steps", steps, 1), ("folds", folds, 2)):
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name} is {value!r} but must be a whole number, {least} or more")
    p, q = _rows(p, q)
    if (few := min(len(p), len(q))) < 10 * folds:
        raise ValueError(
            f"folds is {folds}, which leaves {few // folds} of {few} rows in one: take at most {few // 10}"
        )
    generator = torch.Generator().manual_seed(seed)
    splits = [_split(len(side), folds, generator) for side in (p, q)]
    scales = [fit_columns(torch.cat([p[splits[0][0][k]], q[splits[1][0][k]]]), "standard") for k in range(folds)]
    z = [torch.stack([_features(scale(side)) for scale in scales]) for side in (p, q)]
    held, seen = _fit(z, splits, steps, generator)
    read = [_read(*pair) for pair in held]
    bound = sum(value for value, _ in read) / folds
    trained = sum(_read(*pair)[0] for pair in seen) / folds
    n, m = len(held[0][0]), 1 + len(held[0][1]) / len(held[0][0])
    alpha = alpha_min(m, n)
    se = math.sqrt(sum(variance for _, variance in read)) / folds
    result = Estimate(
        bound, se, (bound + trained) / 2, alpha, math.log(m / alpha), len(p) + len(q), "ml_cpc", what="divergence"
    )
    result = replace(result, warnings=tuple(doubts(result, trained, 0)))
    return result.bits if bits else result


def _rows(p: Any, q: Any) -> tuple[Tensor, Tensor]:
    """Both samples in the same columns; a word may be missing from either."""
    given = [_sample(p, "p"), _sample(q, "q")]
    sides = [intake(side, name) for side, name in zip(given, "pq", strict=True)]
    if len(sides[0].columns) != len(sides[1].columns):
        counts = [len(side.columns) for side in sides]
        raise ValueError(f"p has {counts[0]} columns and q {counts[1]}: they must be samples of the same quantity")
    if any(column.levels is not None for side in sides for column in side.columns):
        both = []
        for one, other in zip(sides[0].columns, sides[1].columns, strict=True):
            if (one.levels is None) != (other.levels is None):
                raise ValueError(f"column {one.key} of p and {other.key} of q: one has words, the other numbers")
            words = None if one.levels is None else tuple(sorted({*one.levels, *(other.levels or ())}))
            both.append(Column(one.key, words))
        sides = [intake(side, name, tuple(both)) for side, name in zip(given, "pq", strict=True)]
    for side, name in zip(sides, "pq", strict=True):
        if lost := int(side.missing.sum()):
            raise ValueError(
                f"{lost} of {len(side.missing)} rows of {name} have missing values (NaN): clean them first"
            )
        refuse_infinite(side, name)
        if len(side.values) < FEWEST:
            raise ValueError(f"{name} has {len(side.values)} rows, but an estimate needs {FEWEST} or more")
    return sides[0].values, sides[1].values


def _sample(side: Any, name: str) -> Any:
    """At most `MAX_ROWS` random rows, so memory does not grow with n."""
    n = count(side, name)
    return (
        side if n <= MAX_ROWS else take(side, torch.randperm(n, generator=torch.Generator().manual_seed(0))[:MAX_ROWS])
    )


def _split(n: int, folds: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Train, validation and test rows, (folds, ·) each."""
    order, size = torch.randperm(n, generator=generator), n // folds
    rest = torch.stack([torch.cat([order[: k * size], order[(k + 1) * size : folds * size]]) for k in range(folds)])
    cut = max(8, rest.shape[1] // 6)
    return rest[:, cut:], rest[:, :cut], torch.stack([order[k * size : (k + 1) * size] for k in range(folds)])


def _features(z: Tensor) -> Tensor:
    return torch.cat([z, z.square() - 1, z.square().mean(1, keepdim=True) - 1], 1)


def _fit(
    z: list[Tensor], splits: list[tuple[Tensor, Tensor, Tensor]], steps: int, generator: torch.Generator
) -> tuple[list[tuple[Tensor, Tensor]], list[tuple[Tensor, Tensor]]]:
    """(scores of P, of Q) of each fold on held-out and on training rows; validation rows chose the critic."""
    folds, total = len(z[0]), splits[1][2].shape[1]
    nets = Mlp(folds, [z[0].shape[2], 64, 64, 1], generator, 0.0, smooth=True)
    skip = torch.zeros(folds, z[0].shape[2], 1, requires_grad=True)  # logistic regression beside the network
    parameters = [*nets.parameters(), skip]
    optimizer = torch.optim.AdamW(parameters, lr=5e-3, weight_decay=0.05)

    def scores(rows: list[Tensor]) -> list[Tensor]:
        runs = torch.arange(folds)[:, None]
        found = (side[runs, r] for side, r in zip(z, rows, strict=True))
        return [(nets(side) + torch.bmm(side, skip))[..., 0] for side in found]

    best, kept = [-math.inf] * folds, [parameter.detach().clone() for parameter in parameters]
    for step in range(steps + 1):
        if step % 20 == 0:
            with torch.no_grad():
                trial = scores([split[1] for split in splits])
            for k in range(folds):
                value = max(value for value, *_ in _ways(trial[0][k], trial[1][k], total, (1.0,)))
                if value > best[k] + 1e-4:
                    best[k] = value
                    for copy, parameter in zip(kept, parameters, strict=True):
                        copy[k] = parameter.detach()[k]
        rows = [s[0].gather(1, torch.randint(s[0].shape[1], (folds, 256), generator=generator)) for s in splits]
        own, other = scores(rows)
        optimizer.param_groups[0]["lr"] = 2.5e-3 * (1 + math.cos(math.pi * step / (steps + 1)))
        loss = (F.softplus(-own).mean(1) + F.softplus(other).mean(1)).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        for parameter, copy in zip(parameters, kept, strict=True):
            parameter.copy_(copy)
        trial, held, seen = (scores([split[i] for split in splits]) for i in (1, 2, 0))
    found: list[list[tuple[Tensor, Tensor]]] = [[], []]
    for k in range(folds):
        _, t, cap = max(_ways(trial[0][k], trial[1][k], total, TEMPERATURES))
        for part, (own, other) in zip(found, (held, seen), strict=True):
            part.append(((t * own[k]).clamp(max=cap), (t * other[k]).clamp(max=cap)))
    return found[0], found[1]


def _ways(own: Tensor, other: Tensor, total: int, temperatures: Sequence[float]) -> list[tuple[float, float, float]]:
    """(value, temperature, cap): scores cut off at the best of P, or at the ceiling above Q's log mean, if lower.

    J_α at α_{m,n} wants that cut (`held_out.Bent`): beyond the ceiling a score of P only adds to its own denominator.
    """
    found = []
    for t in temperatures:
        p, q = t * own, t * other
        top = float(p.max())
        for cap in (top, min(top, float(q.logsumexp(0)) - math.log(len(q)) + math.log(total + 1))):
            found.append((_read(p.clamp(max=cap), q.clamp(max=cap), total)[0], t, cap))
    return found


def _read(own: Tensor, other: Tensor, total: int | None = None) -> tuple[float, float]:
    """J_α at α_{m,n}, whose weight on the positives is 1 of n(m−1)+1 = `total` + 1, and its variance."""
    own, other = own.double(), other.double()
    n, rest = len(own), len(other)
    share = 1 / ((total or rest) + 1)
    log_z = torch.logaddexp(
        own.logsumexp(0) - math.log(n) + math.log(share),
        other.logsumexp(0) - math.log(rest) + math.log1p(-share),
    )
    variance = own.var() / n + (other - log_z).exp().var() / rest
    return float(own.mean() - log_z), float(variance)
