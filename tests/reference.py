"""The slow, obvious twins: Eq. 3 to 7 as printed, in loops, by plain probabilities' logarithms in float64.

Everything fast is tested against these, value and gradient. They take the explicit negatives of every row.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def log_sum_exp(terms: Sequence[Tensor]) -> Tensor:
    """log Σ exp, around the largest term; −inf terms count nothing."""
    top = max(term.item() for term in terms)
    if top == -math.inf:
        return torch.tensor(-math.inf, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for term in terms:
        if term.item() != -math.inf:
            total = total + torch.exp(term - top)
    return torch.log(total) + top


def l_alpha(pos: Tensor, neg: Tensor, alpha: float) -> Tensor:
    """Eq. 3: mean over i of log( m g_ii / (α g_ii + β Σ_j g_ij) )."""
    n, m = len(pos), neg.shape[1] + 1
    beta = (m - alpha) / (m - 1)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(n):
        terms = [pos[i] + math.log(alpha)] + [neg[i, k] + math.log(beta) for k in range(m - 1)]
        total = total + math.log(m) + pos[i] - log_sum_exp(terms)
    return total / n


def j_alpha(pos: Tensor, neg: Tensor, alpha: float) -> Tensor:
    """Eq. 7: mean over i of log( n m g_ii / (α Σ_j g_jj + β Σ_j Σ_k g_jk) )."""
    n, m = len(pos), neg.shape[1] + 1
    beta = (m - alpha) / (m - 1)
    terms = [pos[j] + math.log(alpha) for j in range(n)]
    terms += [neg[j, k] + math.log(beta) for j in range(n) for k in range(m - 1)]
    log_z = log_sum_exp(terms)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(n):
        total = total + math.log(n * m) + pos[i] - log_z
    return total / n


def appendix_b(pos: Tensor, neg: Tensor, alpha: float) -> Tensor:
    """Algorithm 1, with the reweighted logits' KL divergence from the labels 1/n to the predictions."""
    n, m = len(pos), neg.shape[1] + 1
    beta = (m - alpha) / (m - 1)
    logits = [pos[i] + math.log(alpha) for i in range(n)]
    logits += [neg[j, k] + math.log(beta) for j in range(n) for k in range(m - 1)]
    log_z = log_sum_exp(logits)
    kl = torch.zeros((), dtype=torch.float64)
    for i in range(n):
        kl = kl + (1 / n) * (math.log(1 / n) - (logits[i] - log_z))
    return kl


OBJECTIVES = {"cpc": l_alpha, "ml_cpc": j_alpha}
