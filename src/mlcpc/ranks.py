"""The processes of a run: one, or those that torchrun started."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mlcpc.config import InputError

__all__ = ["LostRankError", "Ranks"]

_PATIENCE = timedelta(minutes=10)
"""how long a rank waits for the others before it stops with an error"""


class LostRankError(RuntimeError):
    """Another process of this run has died, or does not answer."""


class Ranks:
    """This process among those that torchrun started; alone without torchrun.

    Used as a context it opens and closes the process group.
    """

    def __init__(self, device: str = "auto") -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            self.device = torch.device(device)
        except RuntimeError as error:
            raise InputError(f"device is {device!r}, which torch does not know: write cpu, cuda or cuda:1") from error
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise InputError(f"device is {device!r} but torch sees no GPU: write cpu, or install a CUDA build of torch")
        if self.device == torch.device("cuda"):
            self.device = torch.device("cuda", local)

    def __enter__(self) -> "Ranks":
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if self.size > 1:
            gpu = self.device.type == "cuda"
            with self._in_words():
                dist.init_process_group(
                    "nccl" if gpu else "gloo", timeout=_PATIENCE, device_id=self.device if gpu else None
                )
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.size > 1:
            with self._in_words():
                if error is None:
                    dist.barrier()  # the first rank holds what the others still ask
            dist.destroy_process_group()
            with self._in_words():
                if error is not None:
                    raise error

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """What a backend says of a rank that is gone takes a page; a line instead."""
        try:
            yield
        except RuntimeError as error:
            if not isinstance(error, dist.DistError) and "gloo" not in str(error):
                raise
            raise LostRankError(
                f"rank {self.rank} of {self.size} stops: another rank has died, or has not answered for "
                f"{_PATIENCE.total_seconds():.0f} s; its own output says why. Start the run again: it goes on from its "
                "last checkpoint"
            ) from error

    @property
    def group(self) -> Any:
        """For losses over all ranks; None when alone."""
        return dist.group.WORLD if self.size > 1 else None

    def sum(self, *values: float) -> list[float]:
        """Each value's sum over ranks."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def mean_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Replace every gradient by its mean over ranks, in one message; a parameter unused here counts as zero."""
        if self.size == 1:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        for p in parameters:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        flat = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
        dist.all_reduce(flat)
        flat /= self.size
        for p, mean in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
            p.grad.copy_(mean.view_as(p))

    def same(self, tensors: Iterable[Tensor]) -> None:
        """Give every rank the first one's values, in place."""
        if self.size > 1:
            for tensor in tensors:
                first = tensor.contiguous()  # what is sent must be; channels_last is not
                dist.broadcast(first, 0)
                tensor.copy_(first)

    def said_by_first(self, value: Any) -> Any:
        """The first rank's plain value, on every rank."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, 0, device=self.device)
        return box[0]
