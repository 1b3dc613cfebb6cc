"""CPC's losses over all pairs, one-way and symmetric, with their gradients, in O(tile) memory.

CPC has one normaliser a row, known as soon as a strip of rows is done: one pass. The symmetric form has one a column
too, known only when every row was seen: two passes.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from mlcpc import tiles
from mlcpc.pairs import LOG2E, Pairs, Watch

__all__ = ["both_ways", "row_losses"]


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
        return tiles.apply(_RowLosses, q, k, pos, offset, others, pairs, watch)


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
        return tiles.apply(_BothWays, q, k, pos, *offsets, pairs, watch, group)


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
        pairs = tiles.bounded(q, k, pairs)
        fits, operands = tiles.fits(q, k, pairs), tiles.Prepared(q, k, pairs)
        dq, dk = (torch.zeros_like(x) if need else None for x, need in ((q, need_q), (k, need_k)))
        loss, g, g_others = q.new_zeros(()), torch.empty_like(pos), torch.zeros_like(pos)
        height = min(len(q), tiles.strip_rows(len(k), pairs.dtype, q.device))
        buffer = q.new_empty(height * len(k), dtype=pairs.dtype)
        for i in range(0, len(q), height):
            block = slice(i, i + height)
            rows, _ = operands.rows(i, i + height)
            s = operands.scores(rows, i, 0, len(k), buffer)
            if watch is not None:
                watch.see(s, i)
            top = 0.0 if fits else tiles.finite(s.amax(1).to(q.dtype))
            e = tiles.exp2(s, None if fits else top[:, None])  # type: ignore[index]
            total = e.sum(1, dtype=q.dtype)
            lse = total.log() + top / LOG2E
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
                tiles.add_product(dq[block], e, operands.k_weights)
                dq[block] *= weight
            if dk is not None:
                tiles.add_product(dk, e.T, (q[block] * weight).to(operands.weights))
        ctx.save_for_backward(dq, dk, g, None if others is None else g_others)
        return loss

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> Any:
        tiles.only_once()
        dq, dk, g, g_others = ctx.saved_tensors
        scaled = [None if x is None else x * up for x in (dq, dk)]
        return *scaled, -g * up, None, None if g_others is None else g_others * up, None, None


class _BothWays(torch.autograd.Function):
    """First pass: the normalisers of rows and columns. Second pass: the gradients, whose weights they are."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, pos: Tensor, rows: Tensor, columns: Tensor, pairs: Pairs, watch: Any, group: Any
    ) -> Tensor:
        pairs = tiles.bounded(q, k, pairs)
        fits, operands = tiles.fits(q, k, pairs), tiles.Prepared(q, k, pairs)
        by_row, by_column = _normalisers(operands, len(q), len(k), fits, watch)
        if group is not None:
            by_column = group.lse(by_column / LOG2E) * LOG2E
        own = slice(0, len(k)) if group is None else slice(group.offset, group.offset + len(q))
        row_odds = by_row / LOG2E + rows - pos
        column_odds = by_column[own] / LOG2E + columns - pos
        a, b = row_odds.sigmoid(), column_odds.sigmoid()
        ctx.save_for_backward(
            *_two_way_gradients(ctx, operands, len(k), by_row, by_column, a, b, group, fits), -(a + b)
        )
        return F.softplus(row_odds, threshold=50).sum() + F.softplus(column_odds, threshold=50).sum()

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> Any:
        tiles.only_once()
        return *(None if x is None else x * up for x in ctx.saved_tensors), None, None, None, None, None


def _normalisers(operands: tiles.Prepared, n: int, keys: int, fits: bool, watch: Watch | None) -> tuple[Tensor, Tensor]:
    """log2 of the sums over rows and over columns."""
    q, dtype = operands.q, operands.pairs.dtype
    sums = [q.new_zeros(n), q.new_zeros(keys)]
    tops = [q.new_full((length,), 0.0 if fits else -math.inf) for length in (n, keys)]
    height, width = tiles.tile_shape(n, keys, dtype, q.device)
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
                e = tiles.exp2(s, None)
                sums[0][parts[0]] += e.sum(1, dtype=q.dtype)
                sums[1][parts[1]] += e.sum(0, dtype=q.dtype)
            else:
                for side, t in ((0, s), (1, s.T)):
                    top, total = tops[side][parts[side], None], sums[side][parts[side], None]
                    tiles.raise_top(t, top, total, None)
                    total += (t.to(q.dtype) - tiles.finite(top)).exp2_().sum(1, keepdim=True)
    return sums[0].log2() + tiles.finite(tops[0]), sums[1].log2() + tiles.finite(tops[1])


def _two_way_gradients(
    ctx: Any,
    operands: tiles.Prepared,
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
    height, width = tiles.tile_shape(len(q), keys, pairs.dtype, q.device)
    buffer = q.new_empty(height * width, dtype=pairs.dtype)
    for i in range(0, len(q), height):
        rows, rows_weights = operands.rows(i, i + height)
        down = row_weight[i : i + height, None]
        for j in range(0, keys, width):
            end = min(j + width, keys)
            s = operands.scores(rows, i, j, end, buffer)
            across = column_weight[j:end]
            if fits:
                e = tiles.exp2(s, None)
                e.mul_((down.exp2() + across.exp2()).to(e.dtype))
            else:
                e = (s.to(q.dtype) + down).exp2_() + (s.to(q.dtype) + across).exp2_()
            if dq is not None:
                tiles.add_product(dq[i : i + height], e, operands.k_weights[j:end])
            if dk is not None:
                tiles.add_product(dk[j:end], e.T, rows_weights)
    return dq, dk
