"""CPC and ML-CPC, re-weighted by α, from `Scores` (the paper's Eq. 4 and 6).

    L_α (cpc)     = mean_i [ pos_i − D_i ] + log m
    J_α (ml_cpc)  = mean_i pos_i − logsumexp_i D_i + log(n·m)
    D_i           = logaddexp(pos_i + log α, neg_lse_i + log β),   β = (m−α)/(m−1)

Both are estimates in nats with the ceiling log(m/α), and `loss` is the distance to it: for L a cross entropy, for J
the KL divergence of Appendix B from the n equal labels to the n·m predictions. Both are ≥ 0, and `ceiling − loss` is
the estimate.
"""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (torch's own habit)

from mlcpc.bounds import check_alpha, normalise
from mlcpc.distributed import Group
from mlcpc.scores import Scores, logsumexp

__all__ = ["OBJECTIVES", "cpc", "label", "loss", "ml_cpc"]


def cpc(s: Scores, alpha: float = 1.0, *, group: Any = None) -> Tensor:
    """L_α, the re-weighted InfoNCE estimate in nats (Eq. 4). A lower bound for α in [1, m/2] only.

    >>> import torch
    >>> s = Scores(torch.tensor([2.0, 2.0]), torch.tensor([0.0, 0.0]), m=2)
    >>> round(float(cpc(s)), 4)
    0.5662
    """
    return _reported(s, alpha, "cpc", group)


def ml_cpc(s: Scores, alpha: float = 1.0, *, group: Any = None) -> Tensor:
    """J_α, the multi-label estimate in nats (Eq. 6). A lower bound for every α in [α_{m,n}, m/2].

    >>> import torch
    >>> s = Scores(torch.tensor([2.0, 2.0]), torch.tensor([0.0, 0.0]), m=2)
    >>> round(float(ml_cpc(s)), 4)
    0.5662
    """
    return _reported(s, alpha, "ml_cpc", group)


def loss(s: Scores, objective: str = "ml_cpc", alpha: float = 1.0, *, group: Any = None) -> Tensor:
    """ceiling − objective ≥ 0: what to minimise. With objective="cpc" and α = 1 it is InfoNCE's cross entropy.

    With `group` (a torch.distributed process group) the scores are this rank's rows of one global batch; see
    `mlcpc.distributed` for the value and the gradient that each rank gets.

    >>> import torch
    >>> s = Scores(torch.tensor([2.0, 2.0]), torch.tensor([0.0, 0.0]), m=2)
    >>> bool(torch.isclose(loss(s, "cpc"), torch.nn.functional.cross_entropy(torch.eye(2) * 2, torch.arange(2))))
    True
    """
    name, ranks = normalise(objective), as_group(group, check_scores(s).pos)
    check_alpha(alpha, s.mean_m, ranks.n if ranks else s.n, name, stacklevel=2)
    value = OBJECTIVES[name](s, alpha, ranks)
    return ranks.for_ddp(value) if ranks else value


def label(objective: str, alpha: str) -> str:
    """The paper's name for a row of a table: J_0.05, L_1.0, or J_10.0→J_0.1 for a schedule.

    >>> label("ml_cpc", "10:0.1"), label("cpc", "1")
    ('J_10.0→J_0.1', 'L_1.0')
    """
    letter = {"ml_cpc": "J", "cpc": "L"}[normalise(objective)]
    return "→".join(f"{letter}_{float(a)}" for a in alpha.split(":"))


def _reported(s: Scores, alpha: float, name: str, group: Any) -> Tensor:
    ranks = as_group(group, check_scores(s).pos)
    check_alpha(alpha, s.mean_m, ranks.n if ranks else s.n, name, stacklevel=3)
    value = OBJECTIVES[name](s, alpha, ranks)
    return top(s, alpha, name, ranks) - (ranks.for_ddp(value) if ranks else value)


def check_scores(s: Scores) -> Scores:
    """Scores, not a bare matrix."""
    if not isinstance(s, Scores):
        raise TypeError(
            f"the scores are a {type(s).__name__}: write mlcpc.in_batch(scores), from_logits or paired first"
        )
    return s


def as_group(group: Any, rows: Tensor) -> Group | None:
    """The ranks that share a batch of which `rows` are ours, or None for a single process."""
    return group if group is None or isinstance(group, Group) else Group(group, len(rows), rows.device)


def top(s: Scores, alpha: float, name: str, group: Group | None = None) -> float:
    """The ceiling of these scores; L averages over rows, J has one m for the whole batch."""
    if name == "cpc" and isinstance(s.m, Tensor):
        return float(_mean(s.m.double().log(), group)) - math.log(alpha)
    return math.log(_mean_m(s, group)) - math.log(alpha)


def log_odds(m: int | Tensor, alpha: float) -> float | Tensor:
    """log(β/α): what the negatives' log-sum gains on the positive's score."""
    if isinstance(m, Tensor):
        m = m.double()
        return ((m - alpha) / (m - 1)).log() - math.log(alpha)
    return math.log((m - alpha) / (m - 1)) - math.log(alpha)


def _mean(x: Tensor, group: Group | None) -> Tensor:
    return x.mean() if group is None else group.sum(x.sum()) / group.n


def _mean_m(s: Scores, group: Group | None) -> float:
    if isinstance(s.m, Tensor):
        return float(_mean(s.m.double(), group))
    return float(s.m)


def _lse(x: Tensor, group: Group | None) -> Tensor:
    total = logsumexp(x, 0)
    return total if group is None else group.lse(total)


def _cross_entropy(s: Scores, alpha: float, group: Group | None = None) -> Tensor:
    if isinstance(s.m, Tensor) and not alpha < (fewest := float(s.m.min())):
        raise ValueError(
            f"alpha is {alpha} but must lie strictly between 0 and m = {fewest:g}, the smallest of all rows"
        )
    offset = log_odds(s.m, alpha)
    offset = offset.to(s.pos.dtype) if isinstance(offset, Tensor) else offset
    return _mean(F.softplus(s.neg_lse + offset - s.pos, threshold=50), group)


def _kl(s: Scores, alpha: float, group: Group | None = None) -> Tensor:
    """log(Σ g / n) − mean log g  +  softplus(log of negatives over positives): two terms, each ≥ 0.

    Scores are taken relative to the best positive, so that their common level costs no digits.
    """
    level = s.pos.detach().amax()
    if group is not None:
        level = group.stack(level).amax()
    pos = s.pos - level
    positives, m = _lse(pos, group), _mean_m(s, group)
    spread = non_negative(positives - _mean(pos, group) - math.log(group.n if group else s.n))
    weighted = math.log((m - alpha) / (m - 1)) - math.log(alpha)
    return spread + F.softplus(_lse(s.neg_lse - level, group) + weighted - positives, threshold=50)


def non_negative(x: Tensor) -> Tensor:
    """x, known to be ≥ 0, without the −1e−8 that rounding may leave; the gradient stays that of x."""
    return x + (x.clamp_min(0) - x).detach()


#: name → its distance to the ceiling. A new objective is one row here and its range in `bounds`.
OBJECTIVES: dict[str, Callable[..., Tensor]] = {"cpc": _cross_entropy, "ml_cpc": _kl}
