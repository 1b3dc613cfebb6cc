"""Negatives that outlive a batch: a queue of the latest keys, and a bank with one vector for each sample.

Both are modules whose state is buffers, so checkpoints hold it. With a process group, every rank stores the keys of all
ranks, in rank order, and so all ranks hold the same.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mlcpc.batches import check_finite, check_integers
from mlcpc.distributed import Group
from mlcpc.scores import check_float

__all__ = ["MemoryBank", "Queue"]


class Queue(nn.Module):
    """The latest `length` keys of size `dim`, first in, first out; batches of any size wrap around without loss.

    with_ids      keep an integer id beside each key, to leave false negatives out
    random_start  begin full of random unit vectors, as MoCo does, rather than empty

    >>> queue = Queue(5, 2)
    >>> queue.update(torch.ones(3, 2)); len(queue)
    3
    >>> queue.update(torch.zeros(4, 2)); queue.keys().sum().item()
    2.0
    """

    def __init__(self, length: int, dim: int, *, with_ids: bool = False, random_start: bool = False) -> None:
        super().__init__()
        if length < 1 or dim < 1:
            raise ValueError(f"a queue of {length} keys of size {dim} holds nothing: both must be 1 or more")
        start = F.normalize(torch.randn(length, dim), dim=1) if random_start else torch.zeros(length, dim)
        self.register_buffer("stored", start)
        self.register_buffer("stored_ids", torch.full((length,), -1) if with_ids else None)
        #: where the next key goes, and how many are there
        self.register_buffer("state", torch.tensor([0, length if random_start else 0]))

    stored: Tensor
    stored_ids: Tensor | None
    state: Tensor

    def __len__(self) -> int:
        return int(self.state[1])

    def keys(self) -> Tensor:
        """The keys that are there, (k, dim), as a view: `contrastive_loss(queries, keys, queue.keys())`."""
        if len(self) == 0:
            raise ValueError("the queue is empty: call update(keys) first, or make it with random_start=True")
        return self.stored[: len(self)]

    def ids(self) -> Tensor:
        """The ids of `keys()`; −1 for a random start."""
        if self.stored_ids is None:
            raise ValueError("this queue has no ids: make it with with_ids=True")
        return self.stored_ids[: len(self)]

    @torch.no_grad()
    def update(self, keys: Tensor, ids: Tensor | None = None, *, group: Any = None) -> None:
        """Put a batch of keys (n, dim) in, after the loss that must not see them."""
        check_float("keys", keys)
        check_finite("keys", keys)
        check_integers("ids", ids)
        length, dim = self.stored.shape
        if keys.ndim != 2 or keys.shape[1] != dim:
            raise ValueError(f"keys have shape {tuple(keys.shape)} but this queue holds (n, {dim})")
        if (ids is None) != (self.stored_ids is None) or (ids is not None and ids.shape != keys.shape[:1]):
            wanted = "no ids" if self.stored_ids is None else f"one id for each of the {len(keys)} keys"
            raise ValueError(f"this queue needs {wanted}")
        if group is not None:
            ranks = Group(group, len(keys), keys.device)
            keys, ids = ranks.all_rows(keys), None if ids is None else ranks.all_rows(ids)
        keys, ids = keys[-length:], None if ids is None else ids[-length:]
        places = (self.state[0] + torch.arange(len(keys), device=self.stored.device)) % length  # never asks the device
        self.stored[places] = keys.to(self.stored)
        if ids is not None and self.stored_ids is not None:
            self.stored_ids[places] = ids.to(self.stored_ids)
        self.state[0].add_(len(keys)).remainder_(length)
        self.state[1].add_(len(keys)).clamp_(max=length)


class MemoryBank(nn.Module):
    """One unit vector for each of `size` samples, moved to `momentum`·old + (1 − momentum)·new and rescaled.

    Starts uniform in ±1/√(dim/3), as CRD's banks do.

    >>> bank = MemoryBank(size=10, dim=4)
    >>> bank.update(torch.tensor([3]), torch.tensor([[1.0, 0, 0, 0]]))
    >>> round(bank.vectors[3].norm().item(), 5)
    1.0
    """

    vectors: Tensor

    def __init__(self, size: int, dim: int, momentum: float = 0.5) -> None:
        super().__init__()
        if size < 1 or dim < 1:
            raise ValueError(f"a bank of {size} vectors of size {dim} holds nothing: both must be 1 or more")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum is {momentum} but must lie in [0, 1): 0 keeps only the newest vector")
        self.momentum = momentum
        self.register_buffer("vectors", (torch.rand(size, dim) * 2 - 1) / (dim / 3) ** 0.5)

    @torch.no_grad()
    def update(self, indices: Tensor, vectors: Tensor, *, group: Any = None) -> None:
        """Move the rows `indices` (n,) towards `vectors` (n, dim); where an index repeats, the last one counts."""
        check_float("vectors", vectors)
        check_finite("vectors", vectors)
        check_integers("indices", indices)
        size, dim = self.vectors.shape
        if indices.ndim != 1 or vectors.shape != (len(indices), dim):
            raise ValueError(
                f"indices are {tuple(indices.shape)} and vectors {tuple(vectors.shape)}: write (n,) and (n, {dim})"
            )
        if group is not None:
            ranks = Group(group, len(indices), vectors.device)
            indices, vectors = ranks.all_rows(indices), ranks.all_rows(vectors)
        on_cpu = indices.device.type == "cpu"  # on a GPU a look would stall its queue
        if on_cpu and len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < size:
            raise ValueError(
                f"indices reach {int(indices.min())} … {int(indices.max())} but the bank has rows 0 to {size - 1}"
            )
        new = F.normalize(vectors.to(self.vectors), dim=1)
        mixed = F.normalize(self.momentum * self.vectors[indices] + (1 - self.momentum) * new, dim=1)
        last = torch.full((size,), -1, device=indices.device).scatter_reduce(
            0, indices, torch.arange(len(indices), device=indices.device), "amax"
        )
        self.vectors[indices] = mixed[last[indices]]  # index_put leaves the order of repeats open, so all say the same
