"""`estimate_kl(p, q)`: Theorem 2 is about any two distributions, not only a joint one and its margins."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (torch's own habit)

from mlcpc.bounds import alpha_min
from mlcpc.mi.estimate import Estimate
from mlcpc.mi.features import fit_columns
from mlcpc.mi.intake import FEWEST, intake
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
    sides = [intake(side, name) for side, name in ((p, "p"), (q, "q"))]
    for side, name in zip(sides, "pq", strict=True):
        if side.missing.any() or not side.values.isfinite().all():
            raise ValueError(f"{name} has values that are missing or infinite: clean them first")
        if len(side.values) < FEWEST:
            raise ValueError(f"{name} has {len(side.values)} rows, but an estimate needs {FEWEST} or more")
    p, q = (side.values for side in sides)
    if p.shape[1] != q.shape[1]:
        raise ValueError(f"p has {p.shape[1]} columns and q {q.shape[1]}: they must be samples of the same quantity")
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
    result = Estimate(bound, se, (bound + trained) / 2, alpha, math.log(m / alpha), len(p) + len(q), "ml_cpc")
    return result.bits if bits else result


def _split(n: int, folds: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Train, validation and test rows, (folds, ·) each."""
    order, size = torch.randperm(n, generator=generator), n // folds
    rest = torch.stack([torch.cat([order[: k * size], order[(k + 1) * size : folds * size]]) for k in range(folds)])
    cut = max(8, size // 3)
    return rest[:, cut:], rest[:, :cut], torch.stack([order[k * size : (k + 1) * size] for k in range(folds)])


def _features(z: Tensor) -> Tensor:
    return torch.cat([z, z.square() - 1, z.square().mean(1, keepdim=True) - 1], 1)


def _fit(
    z: list[Tensor], splits: list[tuple[Tensor, Tensor, Tensor]], steps: int, generator: torch.Generator
) -> tuple[list[tuple[Tensor, Tensor]], list[tuple[Tensor, Tensor]]]:
    """(scores of P, of Q) of each fold on held-out and on training rows; validation rows chose the critic."""
    folds = len(z[0])
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
                value = _read(trial[0][k], trial[1][k])[0]
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
        values = [_read(t * trial[0][k], t * trial[1][k])[0] for t in TEMPERATURES]
        t, cap = TEMPERATURES[values.index(max(values))], float(seen[0][k].max())
        for part, (own, other) in zip(found, (held, seen), strict=True):
            part.append((t * own[k].clamp(max=cap), t * other[k].clamp(max=cap)))
    return found[0], found[1]


def _read(own: Tensor, other: Tensor) -> tuple[float, float]:
    """J_α at α_{m,n} (its weight on the positives is 1 of n(m−1)+1) and the variance of its estimate."""
    own, other = own.double(), other.double()
    n, rest = len(own), len(other)
    share = math.log(1 / (rest + 1))
    log_z = torch.logaddexp(
        own.logsumexp(0) - math.log(n) + share, other.logsumexp(0) - math.log(rest) + math.log1p(-1 / (rest + 1))
    )
    variance = own.var() / n + (other - log_z).exp().var() / rest
    return float(own.mean() - log_z), float(variance)
