"""Several positives for each anchor: all keys that share its label. Keys with another label are its negatives.

Every positive pair is a row of the objective. ML-CPC is made for this: its one normaliser takes all positive pairs with
weight α and all negative ones with weight β, in the same single pass. CPC tells each positive pair from the anchor's
negatives (the anchor's other positives are left out).
"""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from mlcpc.batches import Engine, Layout, check_integers, embeddings
from mlcpc.distributed import Group
from mlcpc.objectives import log_odds, non_negative
from mlcpc.pairs import Pairs
from mlcpc.scores import logsumexp
from mlcpc.streaming import strips, total_lse

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
    group: Any = None,
) -> tuple[Tensor, float, int]:
    """The loss; m, candidates per positive pair on average; and n, the number of anchors; both of all ranks."""
    q, k, _, _ = embeddings(queries, keys, None, normalize)
    check_integers("labels", labels, q.device)
    if labels.shape != (len(q),):
        raise ValueError(f"labels have shape {tuple(labels.shape)} but must be ({len(q)},): one for each row")
    single = keys is None
    if layout == "two-view" and not single:
        q, labels, single = torch.cat([q, k]), torch.cat([labels, labels]), True
        k = q
    q = q * (1 / temperature)
    ranks = None if group is None else Group(group, len(q), q.device)
    all_labels = labels if ranks is None else ranks.all_rows(labels)
    start = 0 if ranks is None else ranks.offset
    diagonals = ((0, len(q), start),) if single else ()
    # Positives are inside these tiles, and half-precision scores of theirs would spoil the gradient of easy batches.
    pairs = Pairs(diagonals=diagonals, query_ids=labels, key_ids=all_labels, dtype=q.dtype)
    positives, negatives = _counts(all_labels, single)
    rows = int(positives.sum())
    with torch.autocast(q.device.type, enabled=False):
        if name == "ml_cpc":
            # Every negative pair once, every positive pair once: m − 1 negatives a positive.
            m = 1 + float(negatives.sum()) / rows
            value = _joint(q, k, rows, m, alpha, pairs, engine, ranks)
        else:
            m = 1 + float((positives * negatives).sum()) / rows
            ways = [(q, k), (k, q)] if layout == "symmetric" else [(q, k)]
            totals = [_separate(*way, negatives, alpha, pairs, engine, ranks) for way in ways]
            value = sum(totals, q.new_zeros(())) / (len(ways) * rows)
    return value if ranks is None else ranks.for_ddp(value), m, len(all_labels)


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
    q: Tensor, k: Tensor, rows: int, m: float, alpha: float, pairs: Pairs, engine: Engine, ranks: Group | None
) -> Tensor:
    """log Σ (α g of positives + β g of negatives) − mean log g of positives − log α − log rows."""
    log_beta_over_alpha = log_odds_of(m, alpha)
    everyone = k if ranks is None else ranks.gather(k)
    weighted = replace(pairs, equal=-log_beta_over_alpha)
    if engine == "tiled":
        everything = total_lse(q, everyone, weighted)
    else:
        everything = logsumexp(weighted.mask_((q @ everyone.T).clone(), 0, 0, unit=1).flatten(), 0)
    assert pairs.key_ids is not None
    kinds, inverse = torch.unique(pairs.key_ids, return_inverse=True)
    sums = k.new_zeros(len(kinds), k.shape[1]).index_add(0, inverse, everyone)
    start = 0 if ranks is None else ranks.offset
    partners = sums[inverse[start : start + len(q)]]
    positives = (q * (partners - k if pairs.diagonals else partners)).sum()
    if ranks is not None:
        everything, positives = ranks.lse(everything), ranks.sum(positives)
    return non_negative(everything + log_beta_over_alpha - positives / rows - math.log(rows))


def log_odds_of(m: float, alpha: float) -> float:
    """log(β/α) for an m that is a mean."""
    if not 0 < alpha < m:
        raise ValueError(f"alpha is {alpha} but must lie strictly between 0 and m = {m:g}: 1 is the plain objective")
    return math.log((m - alpha) / (m - 1)) - math.log(alpha)


def _separate(
    q: Tensor, k: Tensor, negatives: Tensor, alpha: float, pairs: Pairs, engine: Engine, ranks: Group | None
) -> Tensor:
    """Σ over positive pairs of softplus(log-sum of the anchor's negatives + log β/α − the pair's score)."""
    if not 0 < alpha < int(negatives.min()) + 1:
        raise ValueError(f"alpha is {alpha} but must lie strictly between 0 and m = {int(negatives.min()) + 1}")
    start, everyone = (0, k) if ranks is None else (ranks.offset, ranks.gather(k))
    offset = log_odds(negatives[start : start + len(q)] + 1, alpha)
    assert isinstance(offset, Tensor)
    offset = offset.to(q)
    labels, key_labels = pairs.query_ids, pairs.key_ids
    assert labels is not None
    assert key_labels is not None

    def strip(part: Tensor, everything: Tensor, i: int) -> Tensor:
        s = part @ everything.T
        block = slice(i, i + len(part))
        same = labels[block, None] == key_labels[None, :]
        odds = (logsumexp(s.masked_fill(same, -math.inf)) + offset[block])[:, None] - s
        partners = same.clone()
        for own in pairs.diagonal_parts(partners, i, 0):
            own.fill_(False)
        return F.softplus(odds, threshold=50)[partners].sum()

    total = strips(strip, q, everyone) if engine == "tiled" else strip(q, everyone, 0)
    return total if ranks is None else ranks.sum(total)
