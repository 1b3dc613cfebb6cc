"""Variational bounds read off positives and negatives, of R critics at once: what a critic may be fitted by.

ml_cpc  J_α = mean pos − log( (α Σ e^pos + β Σ e^neg) / (n m) ),  β = (m−α)/(m−1)
cpc     L   = mean_i pos_i − log( (e^pos_i + Σ_k e^neg_ik) / m )
dv      mean pos − log mean e^neg              (Donsker–Varadhan, MINE)
nwj     1 + mean pos − mean e^neg
smile   dv with negatives held within ±5; its critic is fitted by js. Not a lower bound.
js      the critic of the Jensen–Shannon bound, read by nwj
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (torch's own habit)

__all__ = ["METHODS", "SMILE_CLIP", "ceiling_of", "method_named", "objective", "read"]

METHODS = ("ml_cpc", "cpc", "dv", "nwj", "smile", "js")
SMILE_CLIP = 5.0
_ALSO = {"mine": "dv", "infonce": "cpc", "mlcpc": "ml_cpc"}


def method_named(name: str) -> str:
    """'ML-CPC', 'MINE' and 'InfoNCE' as they are called elsewhere.

    >>> method_named("MINE")
    'dv'
    """
    plain = name.replace("-", "_").lower() if isinstance(name, str) else ""
    plain = _ALSO.get(plain.replace("_", ""), plain)
    if plain not in METHODS:
        raise ValueError(f"method is {name!r}, which is not known: write one of {', '.join(METHODS)}")
    return plain


def objective(method: str, pos: Tensor, neg: Tensor) -> Tensor:
    """What training raises: pos (R, n) and neg (R, m−1, n) → (R,).

    >>> objective("dv", torch.zeros(1, 4), torch.zeros(1, 3, 4))
    tensor([0.])
    """
    if method in ("js", "smile"):
        return -F.softplus(-pos).mean(1) - F.softplus(neg).mean((1, 2))
    n, m = pos.shape[1], neg.shape[1] + 1
    return read(method, pos, neg.logsumexp(1), m, m / (n * (m - 1) + 1))


def read(method: str, pos: Tensor, neg_lse: Tensor, m: int, alpha: float) -> Tensor:
    """The estimate in nats from pos (…, n) and the log-sum over each row's m−1 negatives (…, n)."""
    n = pos.shape[-1]
    mean = pos.mean(-1)
    beta = (m - alpha) / (m - 1)
    if method == "ml_cpc":
        rows = torch.logaddexp(pos + math.log(alpha), neg_lse + math.log(beta))
        return mean - rows.logsumexp(-1) + math.log(n * m)
    if method == "cpc":
        return (pos - torch.logaddexp(pos, neg_lse)).mean(-1) + math.log(m)
    log_mean = neg_lse.logsumexp(-1) - math.log(n * (m - 1))
    if method in ("dv", "smile"):
        return mean - log_mean
    if method in ("nwj", "js"):
        return 1 + mean - log_mean.exp()
    raise ValueError(f"method is {method!r}, which is not known: write one of {', '.join(map(repr, METHODS))}")


def ceiling_of(method: str, m: int, alpha: float) -> float:
    """The most that a method can report: log(m/α), log m, or no limit."""
    return {"ml_cpc": math.log(m / alpha), "cpc": math.log(m)}.get(method, math.inf)
