"""Log-sums over all pairs of queries and keys, and their gradients, in O(tile) memory.

Each logit is computed once. ML-CPC has one scalar normaliser Z, so the products exp(s)·K and exp(s)ᵀ·Q can be summed
tile by tile and divided by Z at the end; CPC has one normaliser a row, known as soon as a strip of rows is done.
Gradients are therefore made in the forward pass and only scaled in the backward one.

Positives never enter the tiles: their entries are masked, and their scores are computed apart in float32 (`Pairs`).
Scores are kept in bits (log2 e is folded into the queries) because exp2 is several times cheaper than exp. Where a
bound on the scores leaves room (`_fits`), nothing is subtracted before exp2; otherwise a running maximum is.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from mlcpc.scores import widen

__all__ = ["Pairs", "Watch", "both_ways", "row_losses", "row_lse", "square_loss", "strips", "total_lse"]

_LOG2E = 1 / math.log(2)


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

    def mask_(self, s: Tensor, i: int, j: int, unit: float = _LOG2E) -> Tensor:
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
        bits = pos.detach() * _LOG2E
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
        bits, negatives = pos.detach() * _LOG2E, self.highest()
        first = bits > self.best
        if ranks is not None:
            bits, first = ranks.all_rows(bits), ranks.all_rows(first)
            padding = negatives.new_full((self.keep - len(negatives),), -math.inf)
            negatives = ranks.stack(torch.cat([negatives, padding])).flatten()
        negatives = negatives.sort().values
        above = len(negatives) - torch.searchsorted(negatives, bits.sort(descending=True).values, right=True)
        rank = above + torch.arange(len(bits), device=bits.device)
        return float(first.double().mean()), float((rank < len(bits)).double().mean())


def total_lse(q: Tensor, k: Tensor, pairs: Pairs, watch: Watch | None = None) -> Tensor:
    """log Σ_ij exp⟨q_i, k_j⟩ over all pairs, a scalar; differentiable in q and k."""
    with torch.autocast(q.device.type, enabled=False):
        return _apply(_Total, q, k, pairs, watch)


def row_lse(q: Tensor, k: Tensor, pairs: Pairs, watch: Watch | None = None, indices: Tensor | None = None) -> Tensor:
    """log Σ_j exp⟨q_i, k_j⟩ for each query, (n,); differentiable in q, the keys are constants.

    With `indices` (n, c), query i sees the keys indices[i] only (repeats count as often as they stand there): the
    product with all keys and a gather of scalars, which is far cheaper than gathering vectors.
    """
    if k.requires_grad:
        raise ValueError("row_lse takes constant keys: write keys.detach(), or use total_lse or row_losses")
    with torch.autocast(q.device.type, enabled=False):
        if indices is not None:
            return _apply(_Indexed, q, k, pairs, watch, indices)
        return _apply(_Rows, q, k, pairs, watch)


def row_losses(
    q: Tensor,
    k: Tensor,
    pos: Tensor,
    offset: Tensor,
    pairs: Pairs,
    watch: Watch | None = None,
    others: Tensor | None = None,
) -> Tensor:
    """Σ_i softplus(logaddexp(lse_i, others_i) + offset_i − pos_i): CPC's loss up to 1/n.

    Differentiable in q, k, pos and others; `others` (n,) are log-sums over negatives from elsewhere.
    """
    with torch.autocast(q.device.type, enabled=False):
        return _apply(_RowLosses, q, k, pos, offset, others, pairs, watch)


def both_ways(
    q: Tensor,
    k: Tensor,
    pos: Tensor,
    offsets: tuple[Tensor, Tensor],
    pairs: Pairs,
    watch: Watch | None = None,
    group: Any = None,
) -> Tensor:
    """The same sum over rows, plus the one over columns: CLIP's symmetric loss up to 1/2n.

    Two passes, because a column is only normalised once every row was seen. With a `distributed.Group`, q and pos are
    this rank's rows and k all keys; the value is this rank's share of the sum, the gradient that of the whole.
    """
    with torch.autocast(q.device.type, enabled=False):
        return _apply(_BothWays, q, k, pos, *offsets, pairs, watch, group)


def strips(term: Callable[[Tensor, Tensor, int], Tensor], q: Tensor, k: Tensor) -> Tensor:
    """Σ over strips of rows of term(q[i:], k, i), for any term in plain autograd, which is freed strip by strip."""
    with torch.autocast(q.device.type, enabled=False):
        return _apply(_Strips, q, k, term)


def square_loss(
    q: Tensor, k: Tensor, alpha: float, joint: bool, scale: float, normalize: bool, dtype: torch.dtype
) -> Tensor | None:
    """The whole loss of a square in-batch matrix as one tile, or None where exp2 would need a running maximum.

    For small batches, in which the number of kernels counts and not their work: positives stay in the matrix, so their
    gradients need no products of their own, and normalisation and its gradient are done here rather than by autograd.
    """
    with torch.autocast(q.device.type, enabled=False):
        pairs = Pairs(bound=scale) if normalize else _bounded(widen(q.detach()) * scale, widen(k.detach()), Pairs())
        if not _fits(q, k, pairs):
            return None
        return _apply(_Square, q, k, alpha, joint, scale, normalize, dtype)


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    result: Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]
    return result


def _only_once() -> None:
    """The tiles are gone by the backward pass, so there is nothing to differentiate a second time."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the tiled engine gives first derivatives only, and this is a double backward (create_graph=True): "
            'write engine="dense"'
        )


def _bounded(q: Tensor, k: Tensor, pairs: Pairs) -> Pairs:
    """With a bound on the scores; fp16 products that would overflow are made in float32."""
    if pairs.bound is None:
        pairs = replace(pairs, bound=float(q.norm(dim=1).max() * k.norm(dim=1).max()))  # Cauchy–Schwarz
    assert pairs.bound is not None
    if pairs.dtype == torch.float16 and pairs.bound * _LOG2E > 3e4:
        pairs = replace(pairs, dtype=torch.float32)
    return pairs


def _fits(q: Tensor, k: Tensor, pairs: Pairs) -> bool:
    """Whether exp2 of every score, and the sum of all, stays inside the format's range with room to spare."""
    assert pairs.bound is not None
    bits = pairs.bound * _LOG2E + math.log2(q.shape[0] * k.shape[0] + 1)
    if pairs.equal != -math.inf:
        bits += abs(pairs.equal) * _LOG2E
    return bits < (1000 if q.dtype == torch.float64 else 110)


def _tile_shape(n: int, keys: int, dtype: torch.dtype, device: torch.device) -> tuple[int, int]:
    """Rows and columns of a tile: 2 MiB stays in a CPU's cache; a GPU wants enough work to fill it."""
    entries = (2**21 if device.type == "cpu" else 2**27) // dtype.itemsize
    rows = min(n, 512 if dtype.itemsize >= 4 else 1024) if device.type == "cpu" else min(n, 8192)
    return rows, max(1, min(keys, entries // rows))


def _strip_rows(keys: int, dtype: torch.dtype, device: torch.device) -> int:
    """Rows of a strip over all keys: 4 MiB, but never so few that the products starve."""
    entries = (2**22 if device.type == "cpu" else 2**28) // dtype.itemsize
    return max(64, min(512, entries // keys)) if device.type == "cpu" else max(128, entries // keys)


def _weights_dtype(dtype: torch.dtype) -> torch.dtype:
    """fp16 has too little range for the weights of the gradient products; bf16 has enough."""
    return torch.bfloat16 if dtype == torch.float16 else dtype


def _exp2(s: Tensor, shift: Tensor | float | None) -> Tensor:
    """2^(s − shift), in place where the format has the range."""
    if s.dtype == torch.float16:
        s = s.float()
    if shift is not None:
        s = s.sub_(shift)
    return s.exp2_()


def _add_product(into: Tensor, a: Tensor, b: Tensor) -> None:
    """into += a @ b, accumulated in `into`'s format."""
    if into.dtype == a.dtype == b.dtype:
        into.addmm_(a, b)
    else:
        into += a.to(b.dtype) @ b


class _Prepared:
    """The operands of all products in their format: queries in bits, keys, and both as the gradients want them."""

    def __init__(self, q: Tensor, k: Tensor, pairs: Pairs) -> None:
        self.pairs, self.q = pairs, q
        self.k = k.to(pairs.dtype)
        weights = _weights_dtype(pairs.dtype)
        self.k_weights = self.k if weights == pairs.dtype else k.to(weights)
        self.weights = weights

    def rows(self, i: int, end: int) -> tuple[Tensor, Tensor]:
        """Queries i … end: for the logits, in bits; and for the keys' gradient."""
        block = self.q[i:end]
        return (block * _LOG2E).to(self.pairs.dtype), block.to(self.weights)

    def scores(self, rows: Tensor, i: int, j: int, end: int, buffer: Tensor) -> Tensor:
        """The masked tile of scores in bits."""
        s = buffer[: len(rows) * (end - j)].view(len(rows), end - j)
        torch.mm(rows, self.k[j:end].T, out=s)
        return self.pairs.mask_(s, i, j)


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, pairs: Pairs, watch: Watch | None) -> Tensor:
        need_q, need_k = ctx.needs_input_grad[:2]
        pairs = _bounded(q, k, pairs)
        fits, operands = _fits(q, k, pairs), _Prepared(q, k, pairs)
        dq, dk = (torch.zeros_like(x) if need else None for x, need in ((q, need_q), (k, need_k)))
        shift, total = (0.0 if fits else -math.inf), q.new_zeros(())
        height, width = _tile_shape(len(q), len(k), pairs.dtype, q.device)
        buffer = q.new_empty(height * width, dtype=pairs.dtype)
        for i in range(0, len(q), height):
            rows, rows_weights = operands.rows(i, i + height)
            for j in range(0, len(k), width):
                end = min(j + width, len(k))
                s = operands.scores(rows, i, j, end, buffer)
                if watch is not None:
                    watch.see(s, i)
                if not fits and (peak := float(s.max())) > shift:
                    factor = math.exp2(shift - peak)
                    shift, total = peak, total * factor
                    for grad in (dq, dk):
                        if grad is not None:
                            grad.mul_(factor)
                e = _exp2(s, None if shift in (0.0, -math.inf) else shift)
                total = total + e.sum(dtype=total.dtype)
                if dq is not None:
                    _add_product(dq[i : i + height], e, operands.k_weights[j:end])
                if dk is not None:
                    _add_product(dk[j:end], e.T, rows_weights)
        for grad in (dq, dk):
            if grad is not None:
                grad.div_(total.clamp_min(torch.finfo(total.dtype).tiny))
        ctx.grads = (dq, dk)
        return total.log() + (shift if math.isfinite(shift) else 0.0) / _LOG2E

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        _only_once()
        dq, dk = ctx.grads
        return None if dq is None else dq * g, None if dk is None else dk * g, None, None


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, alpha: float, joint: bool, scale: float, normalize: bool, dtype: torch.dtype
    ) -> Tensor:
        q, k = widen(q), widen(k)
        if normalize:
            lengths = [x.norm(dim=1, keepdim=True).clamp_min_(1e-12) for x in (q, k)]
            q, k = q / lengths[0], k / lengths[1]
        narrow = dtype != q.dtype
        a, b = (q.to(dtype), k.to(dtype)) if narrow else (q, k)
        s = a @ b.T
        if narrow:
            s = s.to(q.dtype)
            s.diagonal().copy_(torch.linalg.vecdot(q, k))
        loss, weights = _square_weights(s, alpha, joint, scale)
        if narrow:
            kind = _weights_dtype(dtype)
            weights, a, b = weights.to(kind), a.to(kind), b.to(kind)
        grads: list[Tensor | None] = [None, None]
        for side, (w, other, own) in enumerate(((weights, b, q), (weights.T, a, k))):
            if ctx.needs_input_grad[side]:
                grad = (w @ other).to(own.dtype)
                if normalize:
                    grad.addcmul_(own, torch.linalg.vecdot(grad, own)[:, None], value=-1).div_(lengths[side])
                grads[side] = grad
        ctx.grads = grads
        return loss

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> Any:
        _only_once()
        return *(None if grad is None else grad * up for grad in ctx.grads), None, None, None, None, None


def _square_weights(s: Tensor, alpha: float, joint: bool, scale: float) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient with respect to the unscaled scores s, which are overwritten."""
    n = len(s)
    log_odds = math.log((n - alpha) / (n - 1)) - math.log(alpha)
    pos = s.diagonal() * scale
    e = s.mul_(scale * _LOG2E).exp2_()
    diagonal = e.diagonal()
    if joint:
        diagonal.mul_(math.exp(-log_odds))
        total = e.sum()
        loss = (total.log() - pos.mean()).add_(log_odds - math.log(n)).clamp_min_(0)
        e.mul_(scale / total)
        diagonal.sub_(scale / n)
    else:
        diagonal.zero_()
        rows = e.sum(1)
        odds = rows.log().sub_(pos).add_(log_odds)
        loss = F.softplus(odds, threshold=50).mean()
        g = odds.sigmoid_().mul_(scale / n)
        e.mul_((g / rows)[:, None])
        diagonal.copy_(g.neg_())
    return loss, e


class _Rows(torch.autograd.Function):
    """Online over tiles of constant keys; the gradient of a row is that row's mean key, scaled in the backward pass."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, pairs: Pairs, watch: Watch | None) -> Tensor:
        pairs = _bounded(q, k, pairs)
        fits, operands = _fits(q, k, pairs), _Prepared(q, k, pairs)
        mean = torch.zeros_like(q) if ctx.needs_input_grad[0] else None
        top = q.new_full((len(q), 1), 0.0 if fits else -math.inf)
        total = q.new_zeros(len(q), 1)
        height, width = _tile_shape(len(q), len(k), pairs.dtype, q.device)
        buffer = q.new_empty(height * width, dtype=pairs.dtype)
        for i in range(0, len(q), height):
            rows, _ = operands.rows(i, i + height)
            block = slice(i, i + height)
            for j in range(0, len(k), width):
                end = min(j + width, len(k))
                s = operands.scores(rows, i, j, end, buffer)
                if watch is not None:
                    watch.see(s, i)
                if not fits:
                    _raise_top(s, top[block], total[block], None if mean is None else mean[block])
                e = _exp2(s, None if fits else _finite(top[block]))
                total[block] += e.sum(1, keepdim=True, dtype=total.dtype)
                if mean is not None:
                    _add_product(mean[block], e, operands.k_weights[j:end])
        ctx.mean = None if mean is None else mean.div_(total.clamp_min(torch.finfo(total.dtype).tiny))
        return (total.log() + _finite(top) / _LOG2E).squeeze(1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        _only_once()
        return None if ctx.mean is None else ctx.mean * g[:, None], None, None, None


class _Indexed(torch.autograd.Function):
    """As _Rows, but each query sees the keys it names."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, pairs: Pairs, watch: Watch | None, indices: Tensor) -> Tensor:
        pairs = _bounded(q, k, pairs)
        operands = _Prepared(q, k, pairs)
        mean = torch.empty_like(q) if ctx.needs_input_grad[0] else None
        lse = q.new_empty(len(q))
        height = min(len(q), max(1, 2**23 // pairs.dtype.itemsize // len(k)) if q.device.type == "cpu" else len(q))
        buffer = q.new_empty(height * len(k), dtype=pairs.dtype)
        for i in range(0, len(q), height):
            block = slice(i, i + height)
            rows, _ = operands.rows(i, i + height)
            s = buffer[: len(rows) * len(k)].view(len(rows), len(k))
            torch.mm(rows, operands.k.T, out=s)
            chosen = s.gather(1, indices[block]).to(q.dtype)
            if pairs.query_ids is not None and pairs.key_ids is not None:
                chosen.masked_fill_(pairs.key_ids[indices[block]] == pairs.query_ids[block, None], -math.inf)
            if watch is not None:
                watch.see(chosen, i)
            top = _finite(chosen.amax(1, keepdim=True))
            e = chosen.sub_(top).exp2_()
            total = e.sum(1, keepdim=True)
            lse[block] = (total.log() + top / _LOG2E).squeeze(1)
            if mean is not None:
                e.div_(total.clamp_min(torch.finfo(total.dtype).tiny))
                spread = s.zero_() if s.dtype == q.dtype else torch.zeros_like(s, dtype=q.dtype)
                spread.scatter_add_(1, indices[block], e)
                mean[block] = spread.to(operands.weights) @ operands.k_weights
        ctx.mean = mean
        return lse

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        _only_once()
        return None if ctx.mean is None else ctx.mean * g[:, None], None, None, None, None


class _RowLosses(torch.autograd.Function):
    """Strips of rows over all keys: a row's normaliser, and so its weight, is known when its strip is."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        pos: Tensor,
        offset: Tensor,
        others: Tensor | None,
        pairs: Pairs,
        watch: Watch | None,
    ) -> Tensor:
        need_q, need_k = ctx.needs_input_grad[:2]
        pairs = _bounded(q, k, pairs)
        fits, operands = _fits(q, k, pairs), _Prepared(q, k, pairs)
        dq, dk = (torch.zeros_like(x) if need else None for x, need in ((q, need_q), (k, need_k)))
        loss, g, g_others = q.new_zeros(()), torch.empty_like(pos), torch.zeros_like(pos)
        height = min(len(q), _strip_rows(len(k), pairs.dtype, q.device))
        buffer = q.new_empty(height * len(k), dtype=pairs.dtype)
        for i in range(0, len(q), height):
            block = slice(i, i + height)
            rows, _ = operands.rows(i, i + height)
            s = operands.scores(rows, i, 0, len(k), buffer)
            if watch is not None:
                watch.see(s, i)
            top = 0.0 if fits else _finite(s.amax(1).to(q.dtype))
            e = _exp2(s, None if fits else top[:, None])  # type: ignore[index]
            total = e.sum(1, dtype=q.dtype)
            lse = total.log() + top / _LOG2E
            together = lse if others is None else torch.logaddexp(lse, others[block])
            odds = together + offset[block] - pos[block]
            loss = loss + F.softplus(odds, threshold=50).sum()
            g[block] = odds.sigmoid()
            share = g[block]
            if others is not None:
                g_others[block] = share * torch.nan_to_num((others[block] - together).exp())
                share = share - g_others[block]
            weight = (share / total.clamp_min(torch.finfo(total.dtype).tiny))[:, None]
            if dq is not None:
                _add_product(dq[block], e, operands.k_weights)
                dq[block] *= weight
            if dk is not None:
                _add_product(dk, e.T, (q[block] * weight).to(operands.weights))
        ctx.grads = (dq, dk, g, None if others is None else g_others)
        return loss

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> Any:
        _only_once()
        dq, dk, g, g_others = ctx.grads
        scaled = [None if x is None else x * up for x in (dq, dk)]
        return *scaled, -g * up, None, None if g_others is None else g_others * up, None, None


class _BothWays(torch.autograd.Function):
    """First pass: the normalisers of rows and columns. Second pass: the gradients, whose weights they are."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, pos: Tensor, rows: Tensor, columns: Tensor, pairs: Pairs, watch: Any, group: Any
    ) -> Tensor:
        pairs = _bounded(q, k, pairs)
        fits, operands = _fits(q, k, pairs), _Prepared(q, k, pairs)
        by_row, by_column = _normalisers(operands, len(q), len(k), fits, watch)
        if group is not None:
            by_column = group.lse(by_column / _LOG2E) * _LOG2E
        own = slice(0, len(k)) if group is None else slice(group.offset, group.offset + len(q))
        row_odds = by_row / _LOG2E + rows - pos
        column_odds = by_column[own] / _LOG2E + columns - pos
        a, b = row_odds.sigmoid(), column_odds.sigmoid()
        ctx.grads = (*_two_way_gradients(ctx, operands, len(k), by_row, by_column, a, b, group, fits), -(a + b))
        return F.softplus(row_odds, threshold=50).sum() + F.softplus(column_odds, threshold=50).sum()

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> Any:
        _only_once()
        return *(None if x is None else x * up for x in ctx.grads), None, None, None, None, None


def _normalisers(operands: _Prepared, n: int, keys: int, fits: bool, watch: Watch | None) -> tuple[Tensor, Tensor]:
    """log2 of the sums over rows and over columns."""
    q, dtype = operands.q, operands.pairs.dtype
    sums = [q.new_zeros(n), q.new_zeros(keys)]
    tops = [q.new_full((length,), 0.0 if fits else -math.inf) for length in (n, keys)]
    height, width = _tile_shape(n, keys, dtype, q.device)
    buffer = q.new_empty(height * width, dtype=dtype)
    for i in range(0, n, height):
        rows, _ = operands.rows(i, i + height)
        for j in range(0, keys, width):
            end = min(j + width, keys)
            s = operands.scores(rows, i, j, end, buffer)
            if watch is not None:
                watch.see(s, i)
            parts = (slice(i, i + height), slice(j, end))
            if fits:
                e = _exp2(s, None)
                sums[0][parts[0]] += e.sum(1, dtype=q.dtype)
                sums[1][parts[1]] += e.sum(0, dtype=q.dtype)
            else:
                for side, t in ((0, s), (1, s.T)):
                    top, total = tops[side][parts[side], None], sums[side][parts[side], None]
                    _raise_top(t, top, total, None)
                    total += (t.to(q.dtype) - _finite(top)).exp2_().sum(1, keepdim=True)
    return sums[0].log2() + _finite(tops[0]), sums[1].log2() + _finite(tops[1])


def _two_way_gradients(
    ctx: Any,
    operands: _Prepared,
    keys: int,
    by_row: Tensor,
    by_column: Tensor,
    a: Tensor,
    b: Tensor,
    group: Any,
    fits: bool,
) -> tuple[Tensor | None, Tensor | None]:
    q, pairs = operands.q, operands.pairs
    dq = torch.zeros_like(q) if ctx.needs_input_grad[0] else None
    dk = q.new_zeros(keys, q.shape[1]) if ctx.needs_input_grad[1] else None
    if dq is None and dk is None:
        return None, None
    b = b if group is None else group.all_rows(b)
    # Log-weights in bits; a row or column without keys has sum 0 and no weight.
    row_weight, column_weight = (
        torch.where(lse == -math.inf, -math.inf, share.log2() - lse) for lse, share in ((by_row, a), (by_column, b))
    )
    height, width = _tile_shape(len(q), keys, pairs.dtype, q.device)
    buffer = q.new_empty(height * width, dtype=pairs.dtype)
    for i in range(0, len(q), height):
        rows, rows_weights = operands.rows(i, i + height)
        down = row_weight[i : i + height, None]
        for j in range(0, keys, width):
            end = min(j + width, keys)
            s = operands.scores(rows, i, j, end, buffer)
            across = column_weight[j:end]
            if fits:
                e = _exp2(s, None)
                e.mul_((down.exp2() + across.exp2()).to(e.dtype))
            else:
                e = (s.to(q.dtype) + down).exp2_() + (s.to(q.dtype) + across).exp2_()
            if dq is not None:
                _add_product(dq[i : i + height], e, operands.k_weights[j:end])
            if dk is not None:
                _add_product(dk[j:end], e.T, rows_weights)
    return dq, dk


class _Strips(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, term: Callable[[Tensor, Tensor, int], Tensor]) -> Tensor:
        total, dq = q.new_zeros(()), torch.zeros_like(q)
        keys = k.detach().requires_grad_()
        height = _strip_rows(len(k), q.dtype, q.device)
        for i in range(0, len(q), height):
            part = q[i : i + height].detach().requires_grad_()
            with torch.enable_grad():
                value = term(part, keys, i)
            value.backward()  # type: ignore[no-untyped-call]
            total = total + value.detach()
            dq[i : i + height] = part.grad  # type: ignore[assignment]
        ctx.grads = (dq, keys.grad)
        return total

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> Any:
        _only_once()
        return *(x * up for x in ctx.grads), None


def _raise_top(s: Tensor, top: Tensor, total: Tensor, mean: Tensor | None) -> None:
    """Move each row's running maximum, and what was summed under the old one; all in place."""
    new = torch.maximum(top, s.amax(1, keepdim=True).to(top))
    factor = torch.where(top == new, torch.ones_like(top), (top - new).exp2_())
    top.copy_(new)
    total.mul_(factor)
    if mean is not None:
        mean.mul_(factor)


def _finite(top: Tensor) -> Tensor:
    """A maximum to subtract: 0 for a row without any key."""
    return top.masked_fill(top == -math.inf, 0.0)
