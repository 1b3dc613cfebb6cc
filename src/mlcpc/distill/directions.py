"""One direction of the contrast: queries of one network against the other's bank.

`One` has one positive a query, its own row, and never holds more than scores: CPC and ML-CPC are those of the loss
layer. `Many` has every row of the query's class as a positive, each pair a row of the objective, and works on the
dense matrix of scores, which at n = 64 is small.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from mlcpc.distill.losses import noise_terms
from mlcpc.distributed import Group
from mlcpc.objectives import OBJECTIVES, non_negative, top
from mlcpc.scores import Scores, logsumexp
from mlcpc.streaming import Pairs, row_lse

__all__ = ["Many", "One"]


@dataclass(frozen=True, eq=False)
class One:
    """Queries (n, d), already divided by τ, of the samples `indices`; their positives are the bank's rows `indices`.

    rows    (n, k) rows of their negatives; None: all that `pairs` leaves in
    k       negatives of each: a number, or (n,) of them
    """

    q: Tensor
    bank: Tensor
    indices: Tensor
    rows: Tensor | None
    pairs: Pairs
    k: int | Tensor
    ranks: Group | None

    @cached_property
    def pos(self) -> Tensor:
        """Scores of the own rows, (n,), in full precision whatever the products use."""
        return (self.q * self.bank[self.indices]).sum(1)

    def negatives(self) -> Tensor:
        """Log-sums over the negatives, (n,)."""
        pairs = self.pairs if self.rows is None else Pairs(bound=self.pairs.bound, dtype=self.pairs.dtype)
        return row_lse(self.q, self.bank, pairs, indices=self.rows)

    def objective(self, name: str, alpha: float) -> Tensor:
        """ceiling − L_α or J_α, over all ranks."""
        return OBJECTIVES[name](Scores(self.pos, self.negatives(), self.k + 1), alpha, self.ranks)

    def noise_contrast(self, log_z: Tensor) -> Tensor:
        """CRD's loss, over all ranks."""
        b = self.threshold(log_z)
        return self.mean(
            F.softplus(b - self.pos, threshold=50) + noise_terms(self.q, self.bank, b, self.pairs, self.rows)
        )

    def threshold(self, log_z: Tensor) -> Tensor:
        """log(Z·k/N), (n,)."""
        return log_z.to(self.q) + self.k_().log() - math.log(len(self.bank))

    def ceiling(self, name: str, alpha: float) -> Tensor:
        """The most nats that ceiling − loss can be."""
        if name == "crd":
            return self.mean(self.k_().log())
        some = self.pos.detach()
        return some.new_full((), top(Scores(some, some, self.k + 1), alpha, name, self.ranks))

    def mean_score(self) -> Tensor:
        """The log of the mean of exp(score) over positives and negatives of all ranks."""
        total = logsumexp(torch.logaddexp(self.pos, self.negatives()), 0)
        count = (self.k_() + 1).sum()
        if self.ranks is not None:
            total, count = self.ranks.lse(total), self.ranks.sum(count)
        return total - count.log()

    def k_(self) -> Tensor:
        """k as (n,), in the scores' format."""
        return self.q.new_zeros(len(self.q)) + self.k

    def mean(self, terms: Tensor) -> Tensor:
        """Over the queries of all ranks."""
        return terms.mean() if self.ranks is None else self.ranks.sum(terms.sum()) / self.ranks.n


class Many(One):
    """As One, with every row of the query's class for a positive.

    The rows of the objective are then the positive pairs: CPC and CRD tell each from the query's negatives. ML-CPC
    takes every pair once, positive or negative, as `mlcpc.labels` does: its m − 1 is the negatives per positive.
    """

    @cached_property
    def scores(self) -> Tensor:
        """(n, N)."""
        return (self.q.to(self.pairs.dtype) @ self.bank.to(self.pairs.dtype).T).to(self.q.dtype)

    @cached_property
    def same(self) -> Tensor:
        """(n, N): which are positives."""
        own, every = self.pairs.query_ids, self.pairs.key_ids
        assert own is not None
        assert every is not None
        return own[:, None] == every[None, :]

    @cached_property
    def counts(self) -> Tensor:
        """Positives of each query, (n,)."""
        return self.same.sum(1).to(self.q)

    def chosen(self) -> Tensor:
        """Scores of the negatives, −inf where there is none."""
        return self.scores.masked_fill(self.same, -math.inf) if self.rows is None else self.scores.gather(1, self.rows)

    def objective(self, name: str, alpha: float) -> Tensor:
        others = logsumexp(self.chosen())
        if name == "cpc":
            odds = (others + ((1 + self.k_() - alpha) / self.k_()).log() - math.log(alpha))[:, None] - self.scores
            return self.over_pairs(F.softplus(odds, threshold=50))
        pos, neg = logsumexp(self.scores.masked_fill(~self.same, -math.inf).flatten(), 0), logsumexp(others, 0)
        if self.ranks is not None:
            pos, neg = self.ranks.lse(pos), self.ranks.lse(neg)
        m = self.m()
        spread = non_negative(pos - self.over_pairs(self.scores) - self.total(self.counts).log())
        return spread + F.softplus(neg + ((m - alpha) / (m - 1)).log() - math.log(alpha) - pos, threshold=50)

    def noise_contrast(self, log_z: Tensor) -> Tensor:
        b = self.threshold(log_z)
        others = F.softplus(self.chosen() - b[:, None], threshold=50).sum(1)
        return self.over_pairs(F.softplus(b[:, None] - self.scores, threshold=50) + others[:, None])

    def ceiling(self, name: str, alpha: float) -> Tensor:
        if name == "ml_cpc":
            return self.m().log() - math.log(alpha)
        k = self.k_() if name == "crd" else self.k_() + 1
        return self.total(k.log() * self.counts) / self.total(self.counts) - (math.log(alpha) if name == "cpc" else 0)

    def m(self) -> Tensor:
        """1 + negatives per positive pair."""
        return 1 + self.total(self.k_()) / self.total(self.counts)

    def over_pairs(self, terms: Tensor) -> Tensor:
        """The mean of (n, N) terms over positive pairs."""
        return self.total(terms.masked_fill(~self.same, 0).sum(1)) / self.total(self.counts)

    def total(self, terms: Tensor) -> Tensor:
        """Over the queries of all ranks."""
        return terms.sum() if self.ranks is None else self.ranks.sum(terms.sum())
