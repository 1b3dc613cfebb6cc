"""Which pairs of queries and keys count, and what the accuracies need of them as they pass.

Scores in tiles are in bits (log2 e is folded into the queries), because exp2 is several times cheaper than exp.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

__all__ = ["LOG2E", "Pairs", "Watch"]

LOG2E = 1 / math.log(2)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Which (query, key) pairs are summed, and how.

    diagonals   (row, row_end, column): query row + t does not see key column + t
    query_ids   pairs with equal ids are left out too,
    key_ids         or, with `equal`, have that log-weight: the positives of multi-positive ML-CPC
    bound       the largest |score| in nats, where the caller knows it; saves a look at the data
    dtype       of the matrix products; sums are float32, or float64 for float64
    """

    diagonals: tuple[tuple[int, int, int], ...] = ()
    query_ids: Tensor | None = None
    key_ids: Tensor | None = None
    equal: float = -math.inf
    bound: float | None = None
    dtype: torch.dtype = torch.float32

    def mask_(self, s: Tensor, i: int, j: int, unit: float = LOG2E) -> Tensor:
        """Write −inf, or the weight, over the tile of scores (in bits; unit=1: nats) whose corner is (i, j)."""
        if self.query_ids is not None and self.key_ids is not None:
            rows, columns = s.shape
            same = self.query_ids[i : i + rows, None] == self.key_ids[None, j : j + columns]
            if self.equal == -math.inf:
                s.masked_fill_(same, -math.inf)
            else:
                s.add_(same, alpha=self.equal * unit)
        for part in self.diagonal_parts(s, i, j):
            part.fill_(-math.inf)
        return s

    def diagonal_parts(self, s: Tensor, i: int, j: int) -> Iterator[Tensor]:
        """Views of the masked diagonals inside the tile."""
        rows, columns = s.shape
        for start, end, column in self.diagonals:
            first = max(start, i, start + j - column)
            last = min(end, i + rows, start + j + columns - column)
            if first < last:
                corner = column + first - start - j
                yield s[first - i : last - i, corner : corner + last - first].diagonal()

    def left_out(self, n: int, keys: int) -> Tensor:
        """How many keys each of the n queries does not see, (n,)."""
        device = None if self.query_ids is None else self.query_ids.device
        count = torch.zeros(n, dtype=torch.long, device=device)
        if self.query_ids is not None and self.key_ids is not None:
            ordered = self.key_ids.sort().values
            count += torch.searchsorted(ordered, self.query_ids, right=True)
            count -= torch.searchsorted(ordered, self.query_ids)
        for start, end, column in self.diagonals:
            if self.query_ids is None or self.key_ids is None:
                count[start:end] += 1
            else:
                own = self.key_ids[column : column + end - start]
                count[start:end] += own != self.query_ids[start:end]
        return count


@dataclass
class Watch:
    """What the accuracies need, collected while the tiles pass: each row's best negative, and the n best of all.

    Anything below the worst positive can neither displace a positive nor matter, so few scores are ever kept.
    """

    floor: Tensor
    keep: int
    best: Tensor
    pool: list[Tensor] = field(default_factory=list)
    waiting: int = 0

    @classmethod
    def over(cls, pos: Tensor, ranks: Any = None) -> "Watch":
        """A watch for these positives (in nats), or for those of all ranks."""
        bits = pos.detach() * LOG2E
        everywhere = bits if ranks is None else ranks.all_rows(bits)
        return cls(everywhere.min(), len(everywhere), torch.full_like(bits, -math.inf))

    def see(self, s: Tensor, i: int) -> None:
        """Take a tile of masked scores in bits whose first row is row i."""
        best = self.best[i : i + len(s)]
        torch.maximum(best, s.amax(1).to(best), out=best)
        found = s[s > self.floor].to(self.best)
        self.pool.append(found)
        self.waiting += len(found)
        if self.waiting > 4 * self.keep:
            self.highest()

    def highest(self) -> Tensor:
        """The (at most n) best negatives so far, best first."""
        found = torch.cat(self.pool) if self.pool else self.best.new_zeros(0)
        found = found.topk(min(self.keep, len(found))).values
        if len(found) == self.keep:
            self.floor = torch.maximum(self.floor, found[-1])
        self.pool, self.waiting = [found], 0
        return found

    def accuracies(self, pos: Tensor, ranks: Any = None) -> tuple[float, float]:
        """Shares of positives above every negative of their row, and among the n best of all pairs."""
        bits, negatives = pos.detach() * LOG2E, self.highest()
        first = bits > self.best
        if ranks is not None:
            bits, first = ranks.all_rows(bits), ranks.all_rows(first)
            padding = negatives.new_full((self.keep - len(negatives),), -math.inf)
            negatives = ranks.stack(torch.cat([negatives, padding])).flatten()
        negatives = negatives.sort().values
        above = len(negatives) - torch.searchsorted(negatives, bits.sort(descending=True).values, right=True)
        rank = above + torch.arange(len(bits), device=bits.device)
        return float(first.double().mean()), float((rank < len(bits)).double().mean())
