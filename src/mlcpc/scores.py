"""The narrow waist: all that either objective needs to know of a batch.

Scores are **log g** everywhere, the critic's log density ratio up to a constant; nothing here ever leaves log space.
bf16 and fp16 scores are accumulated in float32.
"""

from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor

__all__ = ["Scores", "from_logits", "in_batch", "paired"]


@dataclass(frozen=True)
class Scores:
    """n positives, each with the log-sum of its m−1 negatives.

    pos      (n,)  log g(x_i, y_i)
    neg_lse  (n,)  log Σ_k g(x_i, ȳ_ik) over the m−1 negatives of row i
    m        candidates per row: one positive and m−1 negatives; an (n,) tensor where rows differ (masked negatives)
    """

    pos: Tensor
    neg_lse: Tensor
    m: int | Tensor

    def __post_init__(self) -> None:
        for name, x in (("pos", self.pos), ("neg_lse", self.neg_lse)):
            check_float(name, x)
            if x.ndim != 1:
                raise ValueError(
                    f"{name} has shape {tuple(x.shape)} but must be (n,): one number for each positive pair"
                )
        if self.pos.shape != self.neg_lse.shape:
            raise ValueError(
                f"pos has {len(self.pos)} entries and neg_lse {len(self.neg_lse)}: "
                "give one of each for every positive pair"
            )
        check_same_device(pos=self.pos, neg_lse=self.neg_lse)
        if len(self.pos) == 0:
            raise ValueError("the batch is empty (n = 0): give at least one positive pair")
        self._check_m()
        if not isinstance(self.m, Tensor) and self.m < 2:
            raise ValueError(
                f"m is {self.m}: there are no negatives, so nothing to tell apart. Give at least one a row"
            )
        check_values(self.pos, self.neg_lse)
        common = torch.promote_types(widen(self.pos).dtype, widen(self.neg_lse).dtype)
        object.__setattr__(self, "pos", self.pos.to(common))
        object.__setattr__(self, "neg_lse", self.neg_lse.to(common))

    def _check_m(self) -> None:
        if not isinstance(self.m, Tensor):
            if not isinstance(self.m, Integral):
                raise TypeError(f"m is {self.m!r} but must be a whole number, or an (n,) tensor of them")
            return
        if self.m.shape != self.pos.shape or self.m.dtype.is_floating_point:
            raise ValueError(
                f"m has shape {tuple(self.m.shape)} and {self.m.dtype}: write (n,) integers, one m for each row"
            )
        check_same_device(pos=self.pos, m=self.m)
        if self.m.device.type == "cpu" and not torch.compiler.is_compiling() and int(self.m.min()) < 2:
            row = int(self.m.argmin())
            raise ValueError(
                f"m of row {row} is {int(self.m[row])}: every row needs at least one negative, so m is 2 or more"
            )

    @property
    def n(self) -> int:
        """The number of positive pairs."""
        return len(self.pos)

    @property
    def mean_m(self) -> float:
        """Candidates per row, averaged where rows differ."""
        return float(self.m.double().mean()) if isinstance(self.m, Tensor) else float(self.m)


def in_batch(scores: Tensor) -> Scores:
    """From a square matrix (n, n) with the positives on the diagonal; the others of a row are its negatives (m = n).

    >>> s = in_batch(torch.tensor([[3.0, 0.0], [0.0, 3.0]]))
    >>> s.pos.tolist(), s.neg_lse.tolist(), s.m
    ([3.0, 3.0], [0.0, 0.0], 2)
    """
    check_float("scores", scores)
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1]:
        raise ValueError(
            f"scores has shape {tuple(scores.shape)} but in_batch needs a square (n, n) with positives on the "
            "diagonal. For positives in column 0 use from_logits"
        )
    n = len(scores)
    if n == 1:
        raise ValueError(
            "a batch of one pair has no in-batch negatives: give two pairs or more, or use paired(pos, neg)"
        )
    scores = widen(scores)
    diagonal = torch.eye(n, dtype=torch.bool, device=scores.device)
    return Scores(scores.diagonal(), logsumexp(scores.masked_fill(diagonal, -torch.inf)), n)


def from_logits(logits: Tensor) -> Scores:
    """From logits (n, m) with the positive in column 0, as MoCo and the paper's Appendix B have them.

    >>> from_logits(torch.tensor([[3.0, 0.0, 0.0]])).neg_lse.exp()
    tensor([2.])
    """
    check_float("logits", logits)
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(
            f"logits has shape {tuple(logits.shape)} but must be (n, m): "
            "the positive in column 0 and at least one negative"
        )
    return paired(logits[:, 0], logits[:, 1:])


def paired(pos: Tensor, neg: Tensor) -> Scores:
    """From positives (n,) and explicit negatives (n, m−1), one row of them for each positive.

    >>> paired(torch.zeros(2), torch.zeros(2, 3)).m
    4
    """
    check_float("pos", pos)
    check_float("neg", neg)
    if neg.ndim != 2 or pos.ndim != 1 or len(neg) != len(pos):
        raise ValueError(
            f"pos has shape {tuple(pos.shape)} and neg {tuple(neg.shape)}: "
            "give pos as (n,) and neg as (n, m-1), row for row"
        )
    check_same_device(pos=pos, neg=neg)
    if neg.shape[1] == 0:
        raise ValueError("neg has no columns: every positive needs at least one negative to be told from")
    return Scores(pos, logsumexp(widen(neg)), neg.shape[1] + 1)


def logsumexp(x: Tensor, dim: int = -1) -> Tensor:
    """torch.logsumexp, but with gradient 0 (not NaN) where everything is −inf."""
    dead = (x == -torch.inf).all(dim, keepdim=True)
    return torch.logsumexp(x.masked_fill(dead, 0), dim).masked_fill(dead.squeeze(dim), -torch.inf)


def widen(x: Tensor) -> Tensor:
    """bf16 and fp16 to float32; the others as they are."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def check_float(name: str, x: Tensor) -> None:
    """Scores and embeddings are dense floating-point tensors."""
    if not isinstance(x, Tensor) or x.layout != torch.strided:
        kind = f"{x.layout} tensor" if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"{name} is a {kind} but must be a dense tensor: write torch.as_tensor({name}), or .to_dense()")
    if not x.dtype.is_floating_point:
        raise TypeError(f"{name} is a tensor of {x.dtype} but must be floating point: write {name}.float()")


def check_same_device(**tensors: Tensor) -> None:
    """All on one device."""
    devices = {name: x.device for name, x in tensors.items()}
    if len(set(devices.values())) > 1:
        where = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise ValueError(f"the tensors are on different devices ({where}): move them to one with .to(device)")


def check_values(pos: Tensor, neg_lse: Tensor) -> None:
    """No NaN, no infinite positive, no +inf negative. Left out on a GPU: looking would stall its queue."""
    if pos.device.type != "cpu" or torch.compiler.is_compiling():
        return
    for name, x in (("positive", pos), ("negative", neg_lse)):
        good = x.isfinite() | (x == -torch.inf) if name == "negative" else x.isfinite()
        if not good.all():
            row = int((~good).nonzero()[0])
            raise ValueError(
                f"the {name} score of row {row} is {x[row].item()}: scores are log g and must be finite "
                "(a negative may be -inf). Look for a division by zero or an overflow in the critic"
            )
