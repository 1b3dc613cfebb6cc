"""Log-sums over all pairs of queries and keys, and their gradients, in O(tile) memory.

Each logit is computed once. ML-CPC has one scalar normaliser Z, so the products exp(s)·K and exp(s)ᵀ·Q can be summed
tile by tile and divided by Z at the end; so can each row's where keys are constants. Gradients are therefore made in
the forward pass and only scaled in the backward one. CPC's losses, whose weights need every row's normaliser, are in
`rowwise`.

Positives never enter the tiles: their entries are masked, and their scores are computed apart in float32 (`Pairs`).
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mlcpc import tiles
from mlcpc.pairs import LOG2E, Pairs, Watch

__all__ = ["Pairs", "Watch", "row_lse", "strips", "total_lse"]


def total_lse(q: Tensor, k: Tensor, pairs: Pairs, watch: Watch | None = None) -> Tensor:
    """log Σ_ij exp⟨q_i, k_j⟩ over all pairs, a scalar; differentiable in q and k."""
    with torch.autocast(q.device.type, enabled=False):
        return tiles.apply(_Total, q, k, pairs, watch)


def row_lse(q: Tensor, k: Tensor, pairs: Pairs, watch: Watch | None = None, indices: Tensor | None = None) -> Tensor:
    """log Σ_j exp⟨q_i, k_j⟩ for each query, (n,); differentiable in q, the keys are constants.

    With `indices` (n, c), query i sees the keys indices[i] only (repeats count as often as they stand there): the
    product with all keys and a gather of scalars, which is far cheaper than gathering vectors.
    """
    if k.requires_grad:
        raise ValueError("row_lse takes constant keys: write keys.detach(), or use total_lse or row_losses")
    with torch.autocast(q.device.type, enabled=False):
        if indices is not None:
            return tiles.apply(_Indexed, q, k, pairs, watch, indices)
        return tiles.apply(_Rows, q, k, pairs, watch)


def strips(term: Callable[[Tensor, Tensor, int], Tensor], q: Tensor, k: Tensor) -> Tensor:
    """Σ over strips of rows of term(q[i:], k, i), for any term in plain autograd, which is freed strip by strip."""
    with torch.autocast(q.device.type, enabled=False):
        return tiles.apply(_Strips, q, k, term)


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, pairs: Pairs, watch: Watch | None) -> Tensor:
        need_q, need_k = ctx.needs_input_grad[:2]
        pairs = tiles.bounded(q, k, pairs)
        fits, operands = tiles.fits(q, k, pairs), tiles.Prepared(q, k, pairs)
        dq, dk = (torch.zeros_like(x) if need else None for x, need in ((q, need_q), (k, need_k)))
        shift, total = (0.0 if fits else -math.inf), q.new_zeros(())
        height, width = tiles.tile_shape(len(q), len(k), pairs.dtype, q.device)
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
                e = tiles.exp2(s, None if shift in (0.0, -math.inf) else shift)
                total = total + e.sum(dtype=total.dtype)
                if dq is not None:
                    tiles.add_product(dq[i : i + height], e, operands.k_weights[j:end])
                if dk is not None:
                    tiles.add_product(dk[j:end], e.T, rows_weights)
        for grad in (dq, dk):
            if grad is not None:
                grad.div_(total.clamp_min(torch.finfo(total.dtype).tiny))
        ctx.save_for_backward(dq, dk)
        return total.log() + (shift if math.isfinite(shift) else 0.0) / LOG2E

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        tiles.only_once()
        dq, dk = ctx.saved_tensors
        return None if dq is None else dq * g, None if dk is None else dk * g, None, None


class _Rows(torch.autograd.Function):
    """Online over tiles of constant keys; the gradient of a row is that row's mean key, scaled in the backward pass."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, pairs: Pairs, watch: Watch | None) -> Tensor:
        pairs = tiles.bounded(q, k, pairs)
        fits, operands = tiles.fits(q, k, pairs), tiles.Prepared(q, k, pairs)
        mean = torch.zeros_like(q) if ctx.needs_input_grad[0] else None
        top = q.new_full((len(q), 1), 0.0 if fits else -math.inf)
        total = q.new_zeros(len(q), 1)
        height, width = tiles.tile_shape(len(q), len(k), pairs.dtype, q.device)
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
                    tiles.raise_top(s, top[block], total[block], None if mean is None else mean[block])
                e = tiles.exp2(s, None if fits else tiles.finite(top[block]))
                total[block] += e.sum(1, keepdim=True, dtype=total.dtype)
                if mean is not None:
                    tiles.add_product(mean[block], e, operands.k_weights[j:end])
        ctx.save_for_backward(None if mean is None else mean.div_(total.clamp_min(torch.finfo(total.dtype).tiny)))
        return (total.log() + tiles.finite(top) / LOG2E).squeeze(1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        tiles.only_once()
        (mean,) = ctx.saved_tensors
        return None if mean is None else mean * g[:, None], None, None, None


class _Indexed(torch.autograd.Function):
    """As _Rows, but each query sees the keys it names."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, pairs: Pairs, watch: Watch | None, indices: Tensor) -> Tensor:
        pairs = tiles.bounded(q, k, pairs)
        operands = tiles.Prepared(q, k, pairs)
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
            top = tiles.finite(chosen.amax(1, keepdim=True))
            e = chosen.sub_(top).exp2_()
            total = e.sum(1, keepdim=True)
            lse[block] = (total.log() + top / LOG2E).squeeze(1)
            if mean is not None:
                e.div_(total.clamp_min(torch.finfo(total.dtype).tiny))
                spread = s.zero_() if s.dtype == q.dtype else torch.zeros_like(s, dtype=q.dtype)
                spread.scatter_add_(1, indices[block], e)
                mean[block] = spread.to(operands.weights) @ operands.k_weights
        ctx.save_for_backward(mean)
        return lse

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        tiles.only_once()
        (mean,) = ctx.saved_tensors
        return None if mean is None else mean * g[:, None], None, None, None, None


class _Strips(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, term: Callable[[Tensor, Tensor, int], Tensor]) -> Tensor:
        total, dq = q.new_zeros(()), torch.zeros_like(q)
        keys = k.detach().requires_grad_()
        height = tiles.strip_rows(len(k), q.dtype, q.device)
        for i in range(0, len(q), height):
            part = q[i : i + height].detach().requires_grad_()
            with torch.enable_grad():
                value = term(part, keys, i)
            value.backward()  # type: ignore[no-untyped-call]
            total = total + value.detach()
            dq[i : i + height] = part.grad  # type: ignore[assignment]
        ctx.save_for_backward(dq, keys.grad)
        return total

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> Any:
        tiles.only_once()
        return *(x * up for x in ctx.saved_tensors), None
