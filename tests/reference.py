"""The slow, obvious twins: Eq. 4 to 6 as printed, in loops, by plain probabilities' logarithms in float64.

Eq. 2 and 5 are these at α = 1, and Theorems 1 and 2 (Eq. 3 and 7) say the same sums of a function r of one sample.
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
    """Eq. 4: mean over i of log( m g_ii / (α g_ii + β Σ_j g_ij) )."""
    n, m = len(pos), neg.shape[1] + 1
    beta = (m - alpha) / (m - 1)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(n):
        terms = [pos[i] + math.log(alpha)] + [neg[i, k] + math.log(beta) for k in range(m - 1)]
        total = total + math.log(m) + pos[i] - log_sum_exp(terms)
    return total / n


def j_alpha(pos: Tensor, neg: Tensor, alpha: float) -> Tensor:
    """Eq. 6: mean over i of log( n m g_ii / (α Σ_j g_jj + β Σ_j Σ_k g_jk) )."""
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


def pair_lists(pos: list[Tensor], neg: list[list[Tensor]], objective: str, alpha: float) -> Tensor:
    """ceiling − objective where every positive has a list of negatives of its own, of any length.

    L: the mean over positives of log(m_i/α) − Eq. 4 with m_i = 1 + the length of its list.
    J: Eq. 6 over all positives and all lists, with m = 1 + the mean length.
    """
    n = len(pos)
    if objective == "cpc":
        total = torch.zeros((), dtype=torch.float64)
        for p, row in zip(pos, neg, strict=True):
            m = len(row) + 1
            terms = [p + math.log(alpha)] + [x + math.log((m - alpha) / (m - 1)) for x in row]
            total = total + log_sum_exp(terms) - p - math.log(alpha)
        return total / n
    return joint_lists(pos, [x for row in neg for x in row], alpha)


def joint_lists(pos: list[Tensor], neg: list[Tensor], alpha: float) -> Tensor:
    """log(m/α) − J_α over a list of positives and one of negatives, m = 1 + len(neg)/len(pos)."""
    n = len(pos)
    m = 1 + len(neg) / n
    terms = [p + math.log(alpha) for p in pos] + [x + math.log((m - alpha) / (m - 1)) for x in neg]
    total = torch.zeros((), dtype=torch.float64)
    for p in pos:
        total = total + p
    return log_sum_exp(terms) - total / n - math.log(alpha) - math.log(n)


def unit(x: Tensor) -> Tensor:
    """Rows of length one."""
    return x / x.norm(dim=-1, keepdim=True)


def contrastive(
    queries: Tensor,
    keys: Tensor | None = None,
    negatives: Tensor | None = None,
    *,
    objective: str = "ml_cpc",
    alpha: float = 1.0,
    temperature: float | Tensor = 0.07,
    normalize: bool = True,
    layout: str = "one-way",
    in_batch: bool | None = None,
    labels: Tensor | None = None,
    ids: Tensor | None = None,
    negative_ids: Tensor | None = None,
    indices: Tensor | None = None,
) -> Tensor:
    """What `mlcpc.contrastive_loss` means, pair by pair."""
    single = keys is None
    q, k = queries, queries if keys is None else keys
    if normalize:
        q, k, negatives = unit(q), unit(k), None if negatives is None else unit(negatives)
    if layout == "two-view" and not single:
        return _two_view(q, k, objective, alpha, temperature, labels, ids)
    n = len(q)
    s = [[q[i] @ k[j] / temperature for j in range(n)] for i in range(n)]
    if labels is not None:
        value = _labelled(s, labels, single, objective, alpha)
        if layout == "symmetric":
            turned = [list(column) for column in zip(*s, strict=True)]
            value = (value + _labelled(turned, labels, single, objective, alpha)) / 2
        return value
    pos, rows = [s[i][i] for i in range(n)], []
    for i in range(n):
        row = []
        if negatives is None or in_batch:
            row += [s[i][j] for j in range(n) if j != i and (ids is None or ids[j] != ids[i])]
        if negatives is not None:
            if indices is not None:
                chosen = [
                    (negatives[c], None if negative_ids is None else negative_ids[c]) for c in indices[i].tolist()
                ]
            else:
                mine = negatives[i] if negatives.ndim == 3 else negatives
                its = None if negative_ids is None else negative_ids[i] if negatives.ndim == 3 else negative_ids
                chosen = [(mine[c], None if its is None else its[c]) for c in range(len(mine))]
            row += [q[i] @ x / temperature for x, own in chosen if own is None or ids is None or own != ids[i]]
        rows.append(row)
    if layout == "symmetric" and objective == "cpc":
        columns = [[s[j][i] for j in range(n) if j != i and (ids is None or ids[j] != ids[i])] for i in range(n)]
        return (pair_lists(pos, rows, "cpc", alpha) + pair_lists(pos, columns, "cpc", alpha)) / 2
    return pair_lists(pos, rows, objective, alpha)


def _two_view(q, k, objective, alpha, temperature, labels, ids) -> Tensor:  # type: ignore[no-untyped-def]
    z, n = torch.cat([q, k]), len(q)
    s = [[z[i] @ z[j] / temperature for j in range(2 * n)] for i in range(2 * n)]
    if labels is not None:
        return _labelled(s, torch.cat([labels, labels]), True, objective, alpha)
    both = None if ids is None else torch.cat([ids, ids])
    pos = [s[i][(i + n) % (2 * n)] for i in range(2 * n)]
    rows = [
        [s[i][j] for j in range(2 * n) if j not in (i, (i + n) % (2 * n)) and (both is None or both[i] != both[j])]
        for i in range(2 * n)
    ]
    return pair_lists(pos, rows, objective, alpha)


def _labelled(s, labels, single, objective, alpha) -> Tensor:  # type: ignore[no-untyped-def]
    n = len(labels)
    anchors = [
        (
            [s[i][j] for j in range(n) if labels[j] == labels[i] and not (single and i == j)],
            [s[i][j] for j in range(n) if labels[j] != labels[i]],
        )
        for i in range(n)
    ]
    if objective == "cpc":
        pairs = [(p, neg) for pos, neg in anchors for p in pos]
        return pair_lists([p for p, _ in pairs], [neg for _, neg in pairs], "cpc", alpha)
    return joint_lists([p for pos, _ in anchors for p in pos], [x for _, neg in anchors for x in neg], alpha)
