"""Several positives for each anchor: all keys that share its label. Keys with another label are its negatives.

Every positive pair is a row of the objective. ML-CPC is made for this: its one normaliser takes all positive pairs with
weight α and all negative ones with weight β, in the same single pass. CPC tells each positive pair from the anchor's
negatives (the anchor's other positives are left out).
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from mlcpc.batches import Engine, Layout, check_integers, embeddings
from mlcpc.objectives import log_odds, non_negative
from mlcpc.scores import logsumexp
from mlcpc.streaming import Pairs, strips, total_lse

__all__ = ["multi_positive"]


def multi_positive(
    queries: Tensor,
    keys: Tensor | None,
    labels: Tensor,
    name: str,
    alpha: float,
    temperature: float | Tensor,
    normalize: bool,
    layout: Layout,
    engine: Engine,
) -> tuple[Tensor, float, int]:
    """The loss; m, candidates per positive pair on average; and n, the number of anchors."""
    q, k, _, dtype = embeddings(queries, keys, None, normalize)
    check_integers("labels", labels, q.device)
    if labels.shape != (len(q),):
        raise ValueError(f"labels have shape {tuple(labels.shape)} but must be ({len(q)},): one for each row")
    single = keys is None
    if layout == "symmetric" and name == "cpc":
        raise ValueError('labels with layout="symmetric" are not supported for cpc: write "one-way" or "two-view"')
    if layout == "two-view" and not single:
        q, labels, single = torch.cat([q, k]), torch.cat([labels, labels]), True
        k = q
    diagonals = ((0, len(q), 0),) if single else ()
    positives, negatives = _counts(labels, single)
    pairs = Pairs(diagonals=diagonals, query_ids=labels, key_ids=labels, dtype=dtype)
    scale = 1 / temperature
    q = q * scale
    rows = int(positives.sum())
    if name == "ml_cpc":
        # Every negative pair once, every positive pair once: m − 1 negatives a positive.
        m = 1 + float(negatives.sum()) / rows
        value = _joint(q, k, labels, single, rows, m, alpha, pairs, engine)
    else:
        m = 1 + float((positives * negatives).sum()) / rows
        value = _separate(q, k, positives, negatives, rows, alpha, pairs, engine)
    return value, m, len(q)


def _counts(labels: Tensor, single: bool) -> tuple[Tensor, Tensor]:
    """Positives and negatives of each anchor."""
    _, inverse, count = torch.unique(labels, return_inverse=True, return_counts=True)
    same = count[inverse]
    positives, negatives = same - int(single), len(labels) - same
    for what, counts in (("positive", positives), ("negative", negatives)):
        if not counts.all():
            row = int((counts == 0).nonzero()[0])
            raise ValueError(
                f"anchor {row} (label {labels[row].item()}) has no {what}: "
                + ("give every label twice or more" if what == "positive" else "give two labels or more")
            )
    return positives, negatives


def _joint(
    q: Tensor, k: Tensor, labels: Tensor, single: bool, rows: int, m: float, alpha: float, pairs: Pairs, engine: Engine
) -> Tensor:
    """log Σ (α g of positives + β g of negatives) − mean log g of positives − log α − log rows."""
    log_beta_over_alpha = log_odds_of(m, alpha)
    weighted = Pairs(pairs.diagonals, labels, labels, -log_beta_over_alpha, None, pairs.dtype)
    if engine == "tiled":
        everything = total_lse(q, k, weighted)
    else:
        everything = logsumexp(weighted.mask_((q @ k.T).clone(), 0, 0, unit=1).flatten(), 0)
    _, inverse = torch.unique(labels, return_inverse=True)
    sums = k.new_zeros(int(inverse.max()) + 1, k.shape[1]).index_add(0, inverse, k)
    partners = sums[inverse] - k if single else sums[inverse]
    mean = (q * partners).sum() / rows
    return non_negative(everything + log_beta_over_alpha - mean - math.log(rows))


def log_odds_of(m: float, alpha: float) -> float:
    """log(β/α) for an m that is a mean."""
    if not 0 < alpha < m:
        raise ValueError(f"alpha is {alpha} but must lie strictly between 0 and m = {m:g}: 1 is the plain objective")
    return math.log((m - alpha) / (m - 1)) - math.log(alpha)


def _separate(
    q: Tensor,
    k: Tensor,
    positives: Tensor,
    negatives: Tensor,
    rows: int,
    alpha: float,
    pairs: Pairs,
    engine: Engine,
) -> Tensor:
    """Mean over positive pairs of softplus(log-sum of the anchor's negatives + log β/α − the pair's score)."""
    if not 0 < alpha < int(negatives.min()) + 1:
        raise ValueError(f"alpha is {alpha} but must lie strictly between 0 and m = {int(negatives.min()) + 1}")
    offset = log_odds(negatives + 1, alpha)
    assert isinstance(offset, Tensor)
    offset = offset.to(q)
    labels = pairs.query_ids
    assert labels is not None

    def strip(part: Tensor, everything: Tensor, i: int) -> Tensor:
        s = part @ everything.T
        block = slice(i, i + len(part))
        same = labels[block, None] == labels[None, :]
        odds = (logsumexp(s.masked_fill(same, -math.inf)) + offset[block])[:, None] - s
        if pairs.diagonals:
            same = same & (
                torch.arange(len(everything), device=s.device)
                != torch.arange(i, i + len(part), device=s.device)[:, None]
            )
        return F.softplus(odds, threshold=50)[same].sum()

    total = strips(strip, q, k) if engine == "tiled" else strip(q, k, 0)
    return total / rows
