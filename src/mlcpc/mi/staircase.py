"""The staircase of Section 5.1: correlated Gaussians whose mutual information rises while critics keep training."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import torch

from mlcpc.bounds import ceiling, is_lower_bound
from mlcpc.mi.critics import Separable
from mlcpc.mi.tasks import correlated_gaussian, correlation
from mlcpc.objectives import OBJECTIVES
from mlcpc.scores import in_batch

__all__ = ["Staircase", "climb"]


@dataclass(frozen=True)
class Staircase:
    """The defaults are the paper's (Appendix C.2)."""

    methods: tuple[tuple[str, float], ...] = tuple(
        (objective, alpha) for objective in ("cpc", "ml_cpc") for alpha in (1.0, 0.1, 0.01, 0.001, 0.0001)
    )
    """(objective, alpha) of each critic; all of them train side by side on the same batches"""
    levels: tuple[float, ...] = (2, 4, 6, 8, 10)
    """nats of each stair"""
    steps: int = 4000
    """updates on each stair"""
    batch: int = 128
    """n = m: the other pairs of a batch are the negatives"""
    dim: int = 20
    hidden: int = 256
    embedding: int = 32
    learning_rate: float = 1e-3
    seed: int = 0


def climb(config: Staircase, tick: Callable[[float], None] = lambda done: None) -> dict[str, Any]:
    """Train every method up the stairs; the estimates at every step, and each stair's plateau (its last quarter).

    `tick` is told the share that is done.
    """
    generator = torch.Generator().manual_seed(config.seed)
    n, runs = config.batch, len(config.methods)
    critic = Separable(runs, config.dim, config.hidden, config.embedding, generator)
    optimizer = torch.optim.Adam(critic.parameters(), lr=config.learning_rate)
    tops = [ceiling(n, alpha) for _, alpha in config.methods]
    curves: list[list[float]] = [[] for _ in range(runs)]
    total = config.steps * len(config.levels)
    for step in range(total):
        rho = correlation(config.levels[step // config.steps], config.dim)
        scores = critic(*correlated_gaussian(n, config.dim, rho, generator))
        losses = torch.stack(
            [OBJECTIVES[name](in_batch(s), alpha) for s, (name, alpha) in zip(scores, config.methods, strict=True)]
        )
        optimizer.zero_grad()
        losses.sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        for curve, top, loss in zip(curves, tops, losses.tolist(), strict=True):
            curve.append(round(top - loss, 4))
        tick((step + 1) / total)
    return {"methods": [_summary(config, *method, curve) for method, curve in zip(config.methods, curves, strict=True)]}


def _summary(config: Staircase, objective: str, alpha: float, curve: list[float]) -> dict[str, Any]:
    tail = max(2, config.steps // 4)
    stairs = [curve[i : i + config.steps][-tail:] for i in range(0, len(curve), config.steps)]
    return {
        "objective": objective,
        "alpha": alpha,
        "ceiling": ceiling(config.batch, alpha),
        "lower_bound": is_lower_bound(alpha, config.batch, config.batch, objective),
        "plateau_mean": [round(fmean(stair), 4) for stair in stairs],
        "plateau_std": [round(stdev(stair), 4) for stair in stairs],
        "curve": curve,
    }
