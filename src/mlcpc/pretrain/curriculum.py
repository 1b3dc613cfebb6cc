"""α over a training run: by the schedule's progress, or `auto`, by how much of what it could say the estimate says.

The gap between the ceiling log(m/α) and the estimate is at least −log of the positives' share of the probability. A
small gap: the question has become easy, and the estimate can hardly rise. Lowering α raises the ceiling and weighs the
negatives more: the same question, harder. The published curricula do so by the clock, from 10 to 0.1. `Auto` does so by
the gap: whenever the running mean of gap / ceiling is below a target (a half), α falls by a fixed factor, from its high
end to its low end at the earliest after half of the training; otherwise it stays. So it slows down by itself: each fall
raises the gap. It never rises.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from mlcpc.config import InputError
from mlcpc.plan import Progress
from mlcpc.ranks import Ranks
from mlcpc.schedules import Schedule, parse_alpha

__all__ = ["Auto", "Curriculum", "curriculum"]


class Curriculum(nn.Module):
    """α by the clock: a number, or high:low, by epochs as the published code has it, or by steps.

    >>> later = Progress(epoch=1, step=3, epochs=2, steps_per_epoch=4)
    >>> [round(Curriculum("10:0.1", per_step).alpha(later), 4) for per_step in (False, True)]
    [1.0, 0.1778]
    """

    def __init__(self, alpha: str, per_step: bool) -> None:
        super().__init__()
        self.schedule, self.per_step = parse_alpha(alpha), per_step

    def alpha(self, at: Progress) -> float:
        """α of this step."""
        return self.schedule(at.fraction if self.per_step else at.epoch / at.epochs)

    def after_step(self, gap: Tensor, ceiling: float, at: Progress, ranks: Ranks) -> None:
        """The clock needs no looking."""


class Auto(nn.Module):
    """α by the gap; see above. Its state is a buffer, so that a resumed run goes on alike.

    target  share of the ceiling that may be missing while α falls
    memory  steps over which the share is averaged
    fall    share of the training that the whole way down takes at least
    """

    state: Tensor

    def __init__(
        self, ends: Schedule, per_step: bool, target: float = 0.5, memory: int = 50, fall: float = 0.5
    ) -> None:
        super().__init__()
        self.ends, self.per_step, self.target, self.memory, self.fall = ends, per_step, target, memory, fall
        #: α, the running share, and the steps seen
        self.register_buffer("state", torch.tensor([ends.high, 0.0, 0.0], dtype=torch.float64))
        self.known: float | None = None  # α, so that the device is asked for it only where it may have changed

    def _load_from_state_dict(self, *arguments: Any, **named: Any) -> None:
        super()._load_from_state_dict(*arguments, **named)
        self.known = None

    def alpha(self, at: Progress) -> float:
        """α of this step."""
        if self.known is None:
            self.known = float(self.state[0])
        return self.known

    @torch.no_grad()
    def after_step(self, gap: Tensor, ceiling: float, at: Progress, ranks: Ranks) -> None:
        """Take in a step's gap; at an epoch's end, or after every step, decide what α is next."""
        self.state[2] += 1
        self.state[1] += (gap / ceiling - self.state[1]) / self.state[2].clamp_max(self.memory)
        if self.per_step or at.step + 1 == at.steps_per_epoch:
            ranks.same([self.state])  # they agree up to rounding; a decision must not hang on that
            self.decide(at.epochs * (at.steps_per_epoch if self.per_step else 1))

    def decide(self, times: int) -> None:
        """Once of so many times in the training."""
        alpha, share, _ = self.state.tolist()
        if share < self.target:
            factor = math.exp(-math.log(self.ends.high / self.ends.low) / max(1.0, self.fall * times))
            alpha = max(self.ends.low, alpha * factor)
            self.state[0] = alpha
        self.known = alpha


def curriculum(alpha: str, per_step: bool) -> Curriculum | Auto:
    """From what a user writes: 0.05, 10:0.1, auto (from 10 to 0.1), auto:5:0.2.

    >>> curriculum("auto:5:0.2", False).ends
    Schedule(high=5.0, low=0.2)
    """
    if alpha.split(":")[0] != "auto":
        return Curriculum(alpha, per_step)
    ends = parse_alpha(alpha[len("auto:") :] or "10:0.1")
    if not isinstance(ends, Schedule) or ends.high <= ends.low:
        raise InputError(f"alpha is {alpha!r} but auto goes down: write auto, or auto:high:low such as auto:10:0.1")
    return Auto(ends, per_step)
