"""CPC and ML-CPC, re-weighted by α, from `Scores` (the paper's Eq. 3 and 7).

    L_α (cpc)     = mean_i [ pos_i − D_i ] + log m
    J_α (ml_cpc)  = mean_i pos_i − logsumexp_i D_i + log(n·m)
    D_i           = logaddexp(pos_i + log α, neg_lse_i + log β),   β = (m−α)/(m−1)

Both are estimates in nats with the ceiling log(m/α), and `loss` is the distance to it: for L a cross entropy, for J
the KL divergence of Appendix B from the n equal labels to the n·m predictions. Both are ≥ 0, and `ceiling − loss` is
the estimate.
"""

import math
from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (torch's own habit)

from mlcpc.bounds import check_alpha
from mlcpc.scores import Scores, logsumexp

__all__ = ["OBJECTIVES", "cpc", "label", "loss", "ml_cpc"]


def cpc(s: Scores, alpha: float = 1.0) -> Tensor:
    """L_α, the re-weighted InfoNCE estimate in nats (Eq. 3). A lower bound for α in [1, m/2] only.

    >>> import torch
    >>> s = Scores(torch.tensor([2.0, 2.0]), torch.tensor([0.0, 0.0]), m=2)
    >>> round(float(cpc(s)), 4)
    0.5662
    """
    return _reported(s, alpha, "cpc")


def ml_cpc(s: Scores, alpha: float = 1.0) -> Tensor:
    """J_α, the multi-label estimate in nats (Eq. 7). A lower bound for every α in [α_{m,n}, m/2].

    >>> import torch
    >>> s = Scores(torch.tensor([2.0, 2.0]), torch.tensor([0.0, 0.0]), m=2)
    >>> round(float(ml_cpc(s)), 4)
    0.5662
    """
    return _reported(s, alpha, "ml_cpc")


def loss(s: Scores, objective: str = "ml_cpc", alpha: float = 1.0) -> Tensor:
    """ceiling − objective ≥ 0: what to minimise. With objective="cpc" and α = 1 it is InfoNCE's cross entropy.

    >>> import torch
    >>> s = Scores(torch.tensor([2.0, 2.0]), torch.tensor([0.0, 0.0]), m=2)
    >>> bool(torch.isclose(loss(s, "cpc"), torch.nn.functional.cross_entropy(torch.eye(2) * 2, torch.arange(2))))
    True
    """
    name = normalise(objective)
    check_alpha(alpha, s.mean_m, s.n, name, stacklevel=2)
    return OBJECTIVES[name](s, alpha)


def label(objective: str, alpha: str) -> str:
    """The paper's name for a row of a table: J_0.05, L_1.0, or J_10.0→J_0.1 for a schedule.

    >>> label("ml_cpc", "10:0.1"), label("cpc", "1")
    ('J_10.0→J_0.1', 'L_1.0')
    """
    letter = {"ml_cpc": "J", "cpc": "L"}[normalise(objective)]
    return "→".join(f"{letter}_{float(a)}" for a in alpha.split(":"))


def _reported(s: Scores, alpha: float, name: str) -> Tensor:
    check_alpha(alpha, s.mean_m, s.n, name, stacklevel=3)
    return top(s, alpha, name) - OBJECTIVES[name](s, alpha)


def top(s: Scores, alpha: float, name: str) -> float:
    """The ceiling of these scores; L averages over rows, J has one m for the whole batch."""
    if name == "cpc" and isinstance(s.m, Tensor):
        return float(s.m.double().log().mean()) - math.log(alpha)
    return math.log(s.mean_m / alpha)


def _odds(s: Scores, alpha: float) -> Tensor:
    """log of (weighted negatives / weighted positive), row by row: neg_lse + log β − pos − log α."""
    if isinstance(s.m, Tensor):
        m = s.m.double()
        log_beta: Tensor | float = ((m - alpha) / (m - 1)).log().to(s.pos.dtype)
    else:
        log_beta = math.log((s.m - alpha) / (s.m - 1))
    return s.neg_lse + log_beta - s.pos - math.log(alpha)


def _cross_entropy(s: Scores, alpha: float) -> Tensor:
    return F.softplus(_odds(s, alpha), threshold=50).mean()


def _kl(s: Scores, alpha: float) -> Tensor:
    """log(Σ g / n) − mean log g  +  softplus(log of negatives over positives): two terms, each ≥ 0."""
    n = s.n
    spread = logsumexp(s.pos - s.pos.mean(), 0) - math.log(n)
    spread = spread + (spread.clamp_min(0) - spread).detach()  # rounding may leave −1e-8 where all positives agree
    m = s.mean_m
    weighted = math.log(m - alpha) - math.log(m - 1) - math.log(alpha)
    return spread + F.softplus(logsumexp(s.neg_lse, 0) + weighted - logsumexp(s.pos, 0), threshold=50)


#: name → its distance to the ceiling. A new objective is one row here and its range in `bounds`.
OBJECTIVES: dict[str, Callable[[Scores, float], Tensor]] = {"cpc": _cross_entropy, "ml_cpc": _kl}


def normalise(objective: str) -> str:
    """'ml-cpc' as on a command line, 'ml_cpc' as in code."""
    name = objective.replace("-", "_").lower()
    if name not in OBJECTIVES:
        raise ValueError(
            f"objective is {objective!r}, which is not known: write one of {', '.join(map(repr, OBJECTIVES))}"
        )
    return name
