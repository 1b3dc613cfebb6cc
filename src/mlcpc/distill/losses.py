"""The losses of distillation that are no objective of the paper: Hinton's KD, and the noise contrast of CRD.

CRD asks of each pair whether it is the positive or one of k draws from noise of density 1/N, with the likelihood
P = exp(score)/Z. Everything stays in log space: with b = log(Z·k/N),

    −log D_pos = −log(P / (P + k/N)) = softplus(b − score)        −log(1 − D_neg) = softplus(score − b)

The published code adds 1e-7 to both denominators, which raises its value by at most 1e-7·N·(k+1)/k.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from mlcpc.config import InputError
from mlcpc.scores import widen
from mlcpc.streaming import Pairs

__all__ = ["kd_loss", "noise_terms"]


def kd_loss(student: Tensor, teacher: Tensor, temperature: float = 4.0) -> Tensor:
    """Hinton's KD: T²·KL(teacher ‖ student) of the logits over T, mean over the batch. The teacher gets no gradient.

    >>> kd_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])).item()
    0.0
    """
    if student.shape != teacher.shape:
        raise InputError(
            f"the student has logits {tuple(student.shape)} and the teacher {tuple(teacher.shape)}: KD needs one set "
            "of classes"
        )
    if not temperature > 0:
        raise InputError(f"temperature is {temperature} but must be positive: write, say, 4")
    ours, theirs = (F.log_softmax(widen(x) / temperature, 1) for x in (student, teacher.detach()))
    return F.kl_div(ours, theirs, reduction="batchmean", log_target=True) * temperature**2


def noise_terms(q: Tensor, bank: Tensor, b: Tensor, pairs: Pairs, indices: Tensor | None = None) -> Tensor:
    """Σ_j softplus(⟨q_i, bank_j⟩ − b_i) for each query, (n,); differentiable in q, the bank and b (n,) are constants.

    Over the rows indices[i], (n, k), or without indices over all rows that `pairs` leaves in: the product with the
    whole bank and a gather of scalars. The gradient is made in the forward pass, while the scores are there.
    """
    with torch.autocast(q.device.type, enabled=False):
        terms: Tensor = _NoiseTerms.apply(q, bank, b, pairs, indices)  # type: ignore[no-untyped-call]
        return terms


class _NoiseTerms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, bank: Tensor, b: Tensor, pairs: Pairs, indices: Tensor | None) -> Tensor:
        keys = bank.to(pairs.dtype)
        mean_dtype = torch.bfloat16 if pairs.dtype == torch.float16 else pairs.dtype  # fp16 would lose small weights
        weighted = keys.to(mean_dtype)
        total = q.new_empty(len(q))
        grad = torch.empty_like(q) if ctx.needs_input_grad[0] else None
        height = max(1, 2**23 // pairs.dtype.itemsize // len(bank)) if q.device.type == "cpu" else len(q)
        for i in range(0, len(q), height):
            block = slice(i, i + height)
            s = q[block].to(pairs.dtype) @ keys.T
            if indices is None:
                odds = pairs.mask_(s.to(q.dtype), i, 0, unit=1).sub_(b[block, None])
            else:
                odds = s.gather(1, indices[block]).to(q.dtype).sub_(b[block, None])
            total[block] = F.softplus(odds, threshold=50).sum(1)
            if grad is None:
                continue
            share = odds.sigmoid_()
            if indices is not None:
                spread = s.zero_() if s.dtype == q.dtype else torch.zeros_like(s, dtype=q.dtype)
                share = spread.scatter_add_(1, indices[block], share)
            grad[block] = share.to(mean_dtype) @ weighted
        ctx.grad = grad
        return total

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("the noise contrast gives first derivatives only, and this is a double backward")
        return None if ctx.grad is None else ctx.grad * up[:, None], None, None, None, None
