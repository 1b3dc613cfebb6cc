"""Negatives of other classes: for each sample its own uniform subset, without replacement.

The law is exact, up to the uniformity of the generator: every k-subset of the other classes' rows is equally likely,
and subsets of different samples, or of one sample in different epochs, are independent. A sample's subset depends on
the key and on the sample alone, so neither the batch it is in, nor the number of ranks, nor a resume changes it.

Not taken, though cheaper: one permutation of all rows for the whole batch, cut or rotated. Each sample's own subset
then has the right law, but the subsets of a batch depend on each other.
"""

import math

import torch
from torch import Tensor, nn

from mlcpc import draws
from mlcpc.batches import check_integers
from mlcpc.config import InputError

__all__ = ["OtherClasses"]

_ENTRIES = 2**26
"""random numbers that a GPU holds at a time"""


class OtherClasses(nn.Module):
    """Rows of a data set by class, to draw each sample's negatives from. Follows `.to(device)`; is not in checkpoints.

    labels   (N,) integers

    >>> others = OtherClasses(torch.tensor([0, 0, 1, 1, 2]))
    >>> others.draw(torch.tensor([0, 4]), 2, 7).shape, others.fewest
    (torch.Size([2, 2]), 3)
    """

    labels: Tensor
    order: Tensor
    starts: Tensor
    sizes: Tensor

    def __init__(self, labels: Tensor) -> None:
        super().__init__()
        check_integers("labels", labels, labels.device)
        if labels.ndim != 1 or len(labels) == 0:
            raise InputError(f"labels have shape {tuple(labels.shape)} but must be (N,): one for each sample")
        _, classes, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
        #: the class of each row, from 0; rows sorted by class; and where each class starts there
        buffers = {
            "labels": classes,
            "order": classes.argsort(stable=True),
            "starts": sizes.cumsum(0) - sizes,
            "sizes": sizes,
        }
        for name, value in buffers.items():
            self.register_buffer(name, value, persistent=False)
        #: samples of other classes that the sample with fewest of them has
        self.fewest = len(labels) - int(sizes.max())
        #: whether all samples have equally many
        self.balanced = int(sizes.min()) == int(sizes.max())

    def __len__(self) -> int:
        return len(self.labels)

    def same(self, indices: Tensor) -> Tensor:
        """Samples of each one's class, itself among them, (n,)."""
        return self.sizes[self.labels[indices]]

    def check(self, k: int) -> None:
        """There must be k negatives for every sample."""
        if not 1 <= k <= self.fewest:
            raise InputError(
                f"{k} negatives are asked for, but a sample here has as few as {self.fewest} samples of other classes "
                f"among {len(self)}: write a number from 1 to {self.fewest}, or negatives='all'"
                if self.fewest
                else "all samples are of one class, so there are no negatives: give labels of two classes or more"
            )

    def draw(self, indices: Tensor, k: int, *key: int | str) -> Tensor:
        """(n, k) rows of other classes than those of the samples `indices`, on their device.

        A GPU draws for all samples at once, without anything that waits for it; a CPU row by row. Both have the same
        law but draw other numbers, as torch's generators do.
        """
        self.check(k)
        if indices.device.type == "cpu":
            return self._row_by_row(indices, k, key)
        height = max(1, _ENTRIES // len(self))
        way = self._smallest if 2 * k > self.fewest else self._first
        return torch.cat([way(part, k, key) for part in torch.split(indices, height)])

    def _smallest(self, indices: Tensor, k: int, key: tuple[int | str, ...]) -> Tensor:
        """The k smallest of N keys of 53 random bits (a tie among 50,000 is one in seven million): a sort."""
        keys = draws.uniform(indices, len(self), *key, "negatives", dtype=torch.float64)
        keys.masked_fill_(self.labels == self.labels[indices][:, None], 2.0)
        return keys.topk(k, largest=False, sorted=False).indices

    def _first(self, indices: Tensor, k: int, key: tuple[int | str, ...]) -> Tensor:
        """The first k different rows of a run of independent draws that is long enough, but for one time in 10^15."""
        own = self.labels[indices]
        starts, sizes = self.starts[own][:, None], self.sizes[own][:, None]
        spare = 6 * math.sqrt(k) + 24  # eight standard deviations or more
        count = math.ceil(-math.log1p(-k / self.fewest) * self.fewest + spare)
        u = draws.uniform(indices, count, *key, "negatives", dtype=torch.float64)
        places = (u * (len(self) - sizes)).long()  # among the rows of other classes, in order of class
        places += sizes * (places >= starts)
        turns = torch.arange(count, device=u.device, dtype=torch.int32).expand(len(indices), -1)
        first = turns.new_full((len(indices), len(self)), count).scatter_reduce_(1, places, turns, "amin")
        fresh = first.gather(1, places) == turns
        slots = fresh.cumsum(1, dtype=torch.int32)
        slots = torch.where(fresh & (slots <= k), slots - 1, k).long()
        found = places.new_zeros(len(indices), k + 1).scatter_(1, slots, places)[:, :k]
        return self.order[found]

    def _row_by_row(self, indices: Tensor, k: int, key: tuple[int | str, ...]) -> Tensor:
        own = self.labels[indices]
        blocks = zip(indices.tolist(), self.starts[own].tolist(), self.sizes[own].tolist(), strict=True)
        rows = torch.empty(len(indices), k, dtype=torch.long)
        scratch = torch.empty(len(self), dtype=torch.int32)
        for row, (i, start, size) in zip(rows, blocks, strict=True):
            generator = draws.generator(*key, "negatives", i)
            if 2 * k > len(self) - size:  # most of them: draws would repeat often
                others = torch.cat([self.order[:start], self.order[start + size :]])
                torch.index_select(others, 0, torch.randperm(len(others), generator=generator)[:k], out=row)
            else:
                _reject(row, self.order[start : start + size], scratch, generator)
        return rows


def _reject(out: Tensor, own: Tensor, scratch: Tensor, generator: torch.Generator) -> None:
    """A uniform subset, (k,), of the len(scratch) rows that are not in `own`.

    Independent draws of all rows, without those of `own` and those that repeat. What is kept has the right law by
    symmetry: nothing here tells one row from another.
    """
    k, size = len(out), len(scratch)
    wanted = -size * math.log1p(-k / (size - len(own)))
    spare = (4 * math.sqrt(k) + 16) * size / (size - len(own))  # five standard deviations or more
    while True:
        draw = torch.empty(math.ceil(wanted + spare), dtype=torch.long)
        draw.random_(size, generator=generator)
        turns = torch.arange(len(draw), dtype=torch.int32)
        scratch.scatter_(0, draw, turns)  # of a row's turns one stays
        scratch.index_fill_(0, own, -1)
        kept = scratch.gather(0, draw) == turns
        places = kept.cumsum(0)
        if int(places[-1]) >= k:
            out.copy_(torch.empty(len(draw) + 1, dtype=torch.long).scatter_(0, places.mul_(kept), draw)[1 : k + 1])
            return
        spare *= 4
