"""The whole loss of a small square in-batch matrix as one tile, in few kernels: there the number of kernels counts."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from mlcpc import tiles
from mlcpc.pairs import LOG2E, Pairs
from mlcpc.scores import widen

__all__ = ["square_loss"]


def square_loss(
    q: Tensor, k: Tensor, alpha: float, joint: bool, scale: float, normalize: bool, dtype: torch.dtype
) -> Tensor | None:
    """The whole loss of a square in-batch matrix as one tile, or None where exp2 would need a running maximum.

    For small batches, in which the number of kernels counts and not their work, so normalisation and its gradient are
    done here rather than by autograd. Not for use under autocast.
    """
    length = 1.0 if normalize else tiles.bounded(q.detach(), k.detach(), Pairs()).bound
    assert length is not None
    if not tiles.fits(q, k, Pairs(bound=length * scale)):
        return None
    loss: Tensor = _Square.apply(q, k, alpha, joint, scale, normalize, dtype)  # type: ignore[no-untyped-call]
    return loss


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, alpha: float, joint: bool, scale: float, normalize: bool, dtype: torch.dtype
    ) -> Tensor:
        q, k = widen(q), widen(k)
        if normalize:
            lengths = [x.norm(dim=1, keepdim=True).clamp_min_(1e-12) for x in (q, k)]
            q, k = q / lengths[0], k / lengths[1]
        loss, grads = (_wide if dtype == q.dtype else _narrow)(q, k, alpha, joint, scale, dtype)
        if normalize:
            for grad, own, length in zip(grads, (q, k), lengths, strict=True):
                grad.addcmul_(own, torch.linalg.vecdot(grad, own)[:, None], value=-1).div_(length)
        ctx.save_for_backward(*grads)
        return loss

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> Any:
        tiles.only_once()
        wanted = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        return *(grad * up if need else None for grad, need in wanted), None, None, None, None, None


def _wide(
    q: Tensor, k: Tensor, alpha: float, joint: bool, scale: float, dtype: torch.dtype
) -> tuple[Tensor, list[Tensor]]:
    """The loss and the gradients of q and k. Positives stay in the matrix, passed twice beside the products."""
    n, log_odds = len(q), _log_odds(len(q), alpha)
    e = (q * (scale * LOG2E)) @ k.T
    pos = e.diagonal() / LOG2E
    diagonal = e.exp2_().diagonal()
    if joint:
        diagonal.mul_(math.exp(-log_odds))
        total = e.sum()
        # The last step not in place: torch 2.11 compiles that to a gradient of zero.
        loss = (total.log() - pos.mean()).add_(log_odds - math.log(n)).clamp_min(0)
        diagonal.sub_(total / n)
        weight = scale / total
        return loss, [(e @ k).mul_(weight), (e.T @ q).mul_(weight)]
    diagonal.zero_()
    rows = e.sum(1)
    odds = rows.log().sub_(pos).add_(log_odds)
    loss = F.softplus(odds, threshold=50).mean()
    weight = odds.sigmoid_().mul_(scale / n).div_(rows)[:, None]
    diagonal.copy_(rows.neg_())
    return loss, [(e @ k).mul_(weight), e.T @ (q * weight)]


def _narrow(
    q: Tensor, k: Tensor, alpha: float, joint: bool, scale: float, dtype: torch.dtype
) -> tuple[Tensor, list[Tensor]]:
    """The loss and the gradients of q and k, with half-precision products; positives stand apart in full precision."""
    n, log_odds, kind = len(q), _log_odds(len(q), alpha), tiles.weights_dtype(dtype)
    pos = torch.linalg.vecdot(q, k).mul_(scale)
    s = (q * (scale * LOG2E)).to(dtype) @ k.to(dtype).T
    s.diagonal().fill_(-math.inf)
    e = tiles.exp2(s, None)
    rows = e.sum(1, dtype=q.dtype)
    e = e.to(kind)
    if joint:
        own = (pos - log_odds).exp_()
        total = own.sum() + rows.sum()
        loss = (total.log() - pos.mean()).add_(log_odds - math.log(n)).clamp_min(0)
        weight = scale / total
        g = own.mul_(weight).sub_(scale / n)[:, None]
    else:
        odds = rows.log().sub_(pos).add_(log_odds)
        loss = F.softplus(odds, threshold=50).mean()
        g = odds.sigmoid_().mul_(-scale / n)[:, None]
        weight = g.neg().div_(rows[:, None])
    by_keys = (e @ k.to(kind)).to(q.dtype).mul_(weight)
    by_queries = (e.T @ (q * weight).to(kind)).to(q.dtype)
    return loss, [by_keys.addcmul_(g, k), by_queries.addcmul_(g, q)]


def _log_odds(n: int, alpha: float) -> float:
    return math.log((n - alpha) / (n - 1)) - math.log(alpha)
