"""Sums over the ranks of a process group: all that the losses know of torch.distributed.

The one convention: every rank returns the loss of the *global* batch, and its backward pass gives world_size times that
loss's gradient with respect to what the rank holds. DistributedDataParallel averages gradients over ranks, so after it
they are exactly those of one process with the whole batch. (Without DDP: average the parameters' gradients yourself.)

Every rank must call the loss the same number of times, with at least one pair; batches may differ in length.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["Group"]


class Group:
    """A process group and the rows that each of its ranks brings; all methods are collective."""

    def __init__(self, group: Any, n: int, device: torch.device) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise ValueError(
                "group is given but no process group is running: call torch.distributed.init_process_group first, "
                "or leave group out on a single process"
            )
        self.group = group
        self.size: int = dist.get_world_size(group)
        self.rank: int = dist.get_rank(group)
        counts = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(self.size)]
        dist.all_gather(counts, torch.tensor([n], device=device), group=group)
        self.counts: list[int] = torch.cat(counts).tolist()
        self.n: int = sum(self.counts)
        self.offset: int = sum(self.counts[: self.rank])

    def gather(self, x: Tensor) -> Tensor:
        """All ranks' rows in rank order; differentiable (a row's gradient is summed over the ranks that used it)."""
        result: Tensor = _Gather.apply(x, self)  # type: ignore[no-untyped-call]
        return result

    def sum(self, x: Tensor) -> Tensor:
        """Σ over ranks; the gradient with respect to this rank's term is 1."""
        result: Tensor = _Sum.apply(x, self)  # type: ignore[no-untyped-call]
        return result

    def lse(self, x: Tensor) -> Tensor:
        """log Σ exp over ranks; the gradient with respect to this rank's term is its share."""
        result: Tensor = _Lse.apply(x, self)  # type: ignore[no-untyped-call]
        return result

    def for_ddp(self, loss: Tensor) -> Tensor:
        """The same value, with world_size times its gradient (see the module's convention)."""
        result: Tensor = _Scale.apply(loss, self.size)  # type: ignore[no-untyped-call]
        return result

    def all_rows(self, x: Tensor) -> Tensor:
        """gather without a gradient, padding ranks that have fewer rows."""
        longest = max(self.counts)
        padded = torch.cat([x, x.new_zeros(longest - len(x), *x.shape[1:])]) if len(x) < longest else x.contiguous()
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded, group=self.group)
        return torch.cat([part[:count] for part, count in zip(parts, self.counts, strict=True)])

    def stack(self, x: Tensor) -> Tensor:
        """(ranks, *x.shape): tensors that have one shape on all ranks."""
        parts = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(parts, x.contiguous(), group=self.group)
        return torch.stack(parts)

    def own(self, total: Tensor) -> Tensor:
        """This rank's rows of a tensor over all rows, summed over ranks."""
        total = total.contiguous()
        if len(set(self.counts)) == 1 and dist.get_backend(self.group) == "nccl":
            mine = torch.empty_like(total[: self.counts[0]])
            dist.reduce_scatter_tensor(mine, total, group=self.group)
            return mine
        dist.all_reduce(total, group=self.group)
        return total[self.offset : self.offset + self.counts[self.rank]]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return group.all_rows(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return ctx.group.own(g.clone()), None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        return group.stack(x).sum(0)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g, None


class _Lse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        total = torch.logsumexp(group.stack(x), 0)
        ctx.save_for_backward((x - total).exp().nan_to_num(0.0))
        return total

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (share,) = ctx.saved_tensors
        return g * share, None


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: int) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * ctx.factor, None
