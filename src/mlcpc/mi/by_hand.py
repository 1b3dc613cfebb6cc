"""The staircase's updates without autograd where it costs: estimates with their gradients, and the joint critic's pass.

Nearly all of the time goes into the joint critic's second layer, a product of n² rows with a square matrix, once
forward and twice backward. Three things make it cheap, and each can be turned off:

- `dtype` bfloat16: the three products in bfloat16, everything else (weights, their updates, scores) in float32.
- `neglect`: pairs whose softmax weights *together* are at most this share of the gradient's total weight are left
  out of the backward pass. Where the information is large nearly all negatives are: of 16384 pairs a few hundred
  carry the gradient. With 0, all pairs stay in.
- The output layer is folded into the neighbouring products: with M the ReLU's mask and s the gradient on the scores,
  G = h1ᵀ (s ⊙ M) gives the gradients of weight2 and weight3, and (s ⊙ M) (weight3 ⊙ weight2)ᵀ goes on to the first.
"""

import math

import torch
from torch import Tensor

from mlcpc.mi.critics import Joint
from mlcpc.pairs import LOG2E

__all__ = ["JointPass", "estimates_and_gradients"]

_TILE = 1024
"""rows of the n² that go through the forward pass together: a tile stays in a core's cache"""
_ROUND = 512
"""the backward pass has a multiple of this many rows: matrix products prepare themselves anew for every new shape"""


def estimates_and_gradients(scores: Tensor, alpha: Tensor, is_cpc: Tensor) -> tuple[Tensor, Tensor]:
    """L_α or J_α of R in-batch score matrices (R, n, n), in nats, and the gradients of the R *losses*.

    alpha   (R,)  each run's α
    is_cpc  (R,)  True: L_α, whose softmax is over each row; False: J_α, whose softmax is over the whole matrix

    The gradient is softmax − label in both: weights that sum to 1, minus 1/n on each positive.
    """
    n = scores.shape[1]
    beta = (n - alpha) / (n - 1)
    logits = scores + beta.log()[:, None, None]
    logits.diagonal(dim1=1, dim2=2).add_((alpha / beta).log()[:, None])
    tops = logits.amax(2, keepdim=True)
    share = logits.sub_(tops).mul_(LOG2E).exp2_()
    rows = share.sum(2).log_().add_(tops[:, :, 0])
    total = rows.logsumexp(1, keepdim=True)
    positive = scores.diagonal(dim1=1, dim2=2).mean(1)
    estimate = positive - torch.where(is_cpc, rows.mean(1), total[:, 0] - math.log(n)) + math.log(n)
    softmax = torch.where(is_cpc[:, None], rows + math.log(n), total)  # n of them in L, one in J
    share.mul_((tops - softmax[:, :, None]).exp_())
    share.diagonal(dim1=1, dim2=2).sub_(1 / n)
    return estimate, share


class JointPass:
    """Forward and backward of a `Joint` critic, one run after the other in buffers that stay in the shared cache."""

    def __init__(self, critic: Joint, n: int, dtype: torch.dtype, neglect: float) -> None:
        self.critic, self.n, self.neglect = critic, n, neglect
        hidden = critic.weight2.shape[1]
        self.h1, self.z2 = torch.empty(2, n * n, hidden, dtype=dtype, device=critic.weight2.device)
        for parameter in critic.parameters():
            parameter.grad = torch.zeros_like(parameter)

    @torch.no_grad()
    def __call__(self, x: Tensor, y: Tensor, alpha: Tensor, is_cpc: Tensor) -> Tensor:
        """The R estimates on this batch; the gradients of their losses go to `.grad`."""
        n = self.n
        inputs = torch.cat([x[:, None].expand(-1, n, -1), y.expand(n, -1, -1), x.new_ones(n, n, 1)], 2)
        inputs = inputs.flatten(0, 1).to(self.h1.dtype)
        halves = self.critic.first_layer(x, y)
        estimates = []
        for run, (a, b) in enumerate(zip(*halves, strict=True)):
            scores = self.forward(a, b, run)
            here = slice(run, run + 1)
            estimate, gradient = estimates_and_gradients(scores[None], alpha[here], is_cpc[here])
            self.backward(gradient.flatten(), inputs, run)
            estimates.append(estimate)
        return torch.cat(estimates)

    def forward(self, a: Tensor, b: Tensor, run: int) -> Tensor:
        """Scores (n, n) from the two halves of the first layer; h1 and z2 are kept for the backward pass."""
        n, critic, dtype = self.n, self.critic, self.h1.dtype
        weight2, bias2 = critic.weight2[run].to(dtype), critic.bias2[run, 0].to(dtype)
        scores = a.new_empty(n * n)
        rows = max(1, _TILE // n)
        for start in range(0, n, rows):
            tile = slice(start * n, min(start + rows, n) * n)
            self.h1[tile] = (a[start : start + rows, None] + b).relu_().flatten(0, 1)
            torch.addmm(bias2, self.h1[tile], weight2, out=self.z2[tile])
            torch.mv(self.z2[tile].relu().to(a), critic.weight3[run, :, 0], out=scores[tile])
        return scores.add_(critic.bias3[run, 0]).view(n, n)

    def backward(self, gradient: Tensor, inputs: Tensor, run: int) -> None:
        """Gradients of this run's parameters from the gradient on its n² scores; `inputs` are the rows [x, y, 1]."""
        critic, dtype = self.critic, self.h1.dtype
        h1, z2 = self.h1, self.z2
        kept = carriers(gradient, self.neglect)
        if kept is not None:
            padding = kept.new_zeros(-len(kept) % _ROUND)
            rows = torch.cat([kept, padding])
            gradient, inputs, h1, z2 = (t.index_select(0, rows) for t in (gradient, inputs, h1, z2))
            gradient[len(kept) :] = 0
        masked = _where_positive(gradient.to(dtype)[:, None].expand_as(z2), z2)
        count = masked.sum(0, dtype=gradient.dtype)
        product = (h1.T @ masked).to(gradient)
        weight2, weight3 = critic.weight2[run], critic.weight3[run, :, 0]
        _grad(critic.weight2)[run] = product * weight3
        _grad(critic.bias2)[run, 0] = count * weight3
        _grad(critic.weight3)[run, :, 0] = (product * weight2).sum(0) + count * critic.bias2[run, 0]
        _grad(critic.bias3)[run] = gradient.sum()
        back = _where_positive(masked @ (weight2 * weight3).T.to(dtype), h1)
        first = (inputs.T @ back).to(gradient)
        dim = critic.of_x.shape[1]
        _grad(critic.of_x)[run] = first[:dim]
        _grad(critic.of_y)[run] = first[dim:-1]
        _grad(critic.bias1)[run] = first[-1:]


def carriers(gradient: Tensor, neglect: float) -> Tensor | None:
    """Which entries to keep so that the sum of the others' sizes is at most `neglect` of the whole; None: all.

    The threshold is the largest power of two, times the one that is safe whatever the distribution, that holds this.
    """
    sizes = gradient.abs()
    allowed = neglect * float(sizes.sum())
    threshold = allowed / len(sizes)
    if not threshold > 0:
        return None
    while float(torch.where(sizes > 2 * threshold, 0, sizes).sum()) <= allowed:
        threshold *= 2
    kept = (sizes > threshold).nonzero().squeeze(1)
    return kept if len(kept) < 0.9 * len(sizes) else None


def _where_positive(values: Tensor, gate: Tensor) -> Tensor:
    """values where gate > 0, else 0: the backward pass of a ReLU, in one sweep."""
    kept: Tensor = torch.ops.aten.threshold_backward(values, gate, 0)
    return kept


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
