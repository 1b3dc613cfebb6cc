"""What a run is to do: how long, in which batches, at which learning rate; and how far it is."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mlcpc import draws
from mlcpc.config import InputError
from mlcpc.ranks import Ranks

__all__ = ["PRECISIONS", "Plan", "Progress", "Rate", "cosine", "milestones"]

PRECISIONS = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Progress:
    """Where a run is: `step` of `epoch`, both from 0."""

    epoch: int
    step: int
    epochs: int
    steps_per_epoch: int
    seed: int = 0
    weight: float = 1.0
    """what a mean over this rank's samples is multiplied by, so that the mean over ranks is the global batch's mean"""

    @property
    def done(self) -> int:
        """Steps before this one."""
        return self.epoch * self.steps_per_epoch + self.step

    @property
    def fraction(self) -> float:
        """In [0, 1]."""
        return self.done / max(1, self.epochs * self.steps_per_epoch)

    @property
    def key(self) -> tuple[int, int, int]:
        """For `draws`: what is random in this step."""
        return self.seed, self.epoch, self.step


Rate = Callable[[Progress], float]


def milestones(base: float, at: tuple[float, ...] = (150 / 240, 180 / 240, 210 / 240), factor: float = 0.1) -> Rate:
    """`base`, times `factor` once each of these shares of the epochs is done.

    >>> rate = milestones(0.05)
    >>> [round(rate(Progress(epoch, 0, 240, 10)), 6) for epoch in (0, 149, 150, 239)]
    [0.05, 0.05, 0.005, 5e-05]
    """
    return lambda now: base * factor ** sum(now.epoch >= round(share * now.epochs) for share in at)


def cosine(base: float, per_step: bool = False) -> Rate:
    """Half a cosine from `base` to 0, by epochs as MoCo has it, or by steps."""

    def rate(now: Progress) -> float:
        fraction = now.fraction if per_step else now.epoch / now.epochs
        return base * 0.5 * (1 + math.cos(math.pi * fraction))

    return rate


@dataclass(frozen=True)
class Plan:
    """How to train, whatever it is that is trained."""

    epochs: int
    batch: int
    """samples a step, over all ranks together"""
    seed: int = 0
    precision: str = "float32"
    """float32; bfloat16: products of networks under autocast; float64 for tests"""
    drop_last: bool = False
    """leave out the last, smaller batch of an epoch"""
    accumulate: int = 1
    """pieces that a batch is cut into to save memory; a contrastive loss then sees only a piece's own negatives"""
    evaluate_every: int = 1
    """epochs"""
    checkpoint_seconds: float = 60.0
    log_every: int = 20
    """steps between lines of metrics.jsonl; also how soon several ranks agree to stop"""
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "accumulate", "evaluate_every", "log_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)} but must be 1 or more")
        if self.precision not in PRECISIONS:
            raise InputError(
                f"precision is {self.precision!r}, which is not known: write one of {', '.join(PRECISIONS)}"
            )

    def steps(self, samples: int, ranks: int = 1) -> int:
        """In an epoch. A last batch with fewer samples than pieces cannot be shared out and is left out."""
        whole, rest = divmod(samples, self.batch)
        steps = whole + (0 if self.drop_last or rest < ranks * self.accumulate else 1)
        if self.batch < ranks * self.accumulate or steps == 0:
            raise InputError(
                f"{samples} samples in batches of {self.batch} make {steps} steps on {ranks} ranks in pieces of "
                f"1/{self.accumulate}: every step needs a sample for each piece. Write a smaller --batch, or more data"
            )
        return steps

    def order(self, samples: int, epoch: int, first: int, ranks: Ranks) -> Iterator[tuple[Tensor, float]]:
        """This rank's rows of each batch from step `first` on, and the weight of its mean."""
        everything = torch.split(draws.permutation(samples, self.seed, epoch, "order"), self.batch)
        for whole in everything[first : self.steps(samples, ranks.size)]:
            own = whole.tensor_split(ranks.size)[ranks.rank]
            yield own, len(own) * ranks.size / len(whole)
