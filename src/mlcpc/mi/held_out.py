"""The bound on held-out rows, over all their pairs, without ever holding all their scores."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from mlcpc.bounds import alpha_min
from mlcpc.mi.methods import ceiling_of, read
from mlcpc.mi.networks import Embedded
from mlcpc.pairs import LOG2E

__all__ = ["Bent", "HeldOut", "climb", "read_bound", "stream_blocks", "stream_cut", "stream_shifts"]

_Trial = TypeVar("_Trial", bound=tuple[Any, ...])
_BLOCK = 2**18
"""scores in memory at once"""


@dataclass(frozen=True)
class HeldOut:
    """n held-out rows, each with m−1 negatives.

    pos (n,), row_lse (n,) and col_lse (n,): log-sums of the scores of x_i with other y, and of y_i with other x.
    """

    pos: Tensor
    row_lse: Tensor
    col_lse: Tensor
    m: int

    @property
    def alpha(self) -> float:
        """α_{m,n}, the smallest at which J_α is a lower bound."""
        return alpha_min(self.m, len(self.pos))

    @property
    def log_mean(self) -> float:
        """log of the mean of g over the negatives."""
        return float(self.row_lse.logsumexp(0)) - math.log(len(self.pos) * (self.m - 1))


@dataclass(frozen=True)
class Bent:
    """A critic's scores as they are read: times `temperature`, then held between `floor` and `cap`.

    J_α at α_{m,n} is highest not at the log ratio r but at −log(e^−r + e^−c), c its ceiling: nearly r cut off at c.
    Without the cut a Gaussian of 15 nats reads as 6.7 on 4000 rows by the exact critic, with it as 14.1.

    >>> Bent(temperature=0.5, cap=1.0)(torch.tensor([1.0, 9.0]))
    tensor([0.5000, 1.0000])
    """

    temperature: float = 1.0
    cap: float = math.inf
    floor: float = -math.inf

    def __call__(self, scores: Tensor) -> Tensor:
        return (self.temperature * scores).clamp(self.floor, self.cap)


def stream_blocks(e: Embedded, bent: Bent = Bent()) -> HeldOut:
    """All pairs of a separable critic; temporary memory is one block of scores, small enough for a core's cache.

    >>> rows = Embedded(torch.zeros(3, 1), torch.zeros(3), torch.zeros(3, 1), torch.zeros(3))
    >>> stream_blocks(rows).row_lse.exp().round(decimals=6)
    tensor([2., 2., 2.], dtype=torch.float64)
    """
    n = len(e.left)
    own, rows, columns = [], [], torch.full((n,), -torch.inf, dtype=torch.float64)
    step = max(1, _BLOCK // n)
    for i in range(0, n, step):
        part = slice(i, i + step)
        block = torch.addmm(e.from_y, e.left[part], e.right.T).add_(e.from_x[part, None])
        block.mul_(bent.temperature).clamp_(bent.floor, bent.cap)
        diagonal = block[:, i:].diagonal()  # from the same product, so that rounding favours neither side
        own.append(diagonal.double())
        diagonal.fill_(-torch.inf)
        tops = block.amax(1, keepdim=True)
        block.sub_(tops).mul_(LOG2E).exp2_()  # one exponential serves rows and columns
        rows.append((tops[:, 0] + block.sum(1).log()).double())
        top = tops.max()
        columns = torch.logaddexp(columns, ((tops[:, 0] - top).exp() @ block).log().add_(top).double())
    return HeldOut(torch.cat(own), torch.cat(rows), columns, n)


def stream_cut(e: Embedded, ceiling: float, temperature: float = 1.0) -> tuple[HeldOut, Bent]:
    """All pairs, cut off at the highest true pair, and at the ceiling above log mean g where that is lower."""
    top = float(((e.left * e.right).sum(1) + e.from_x + e.from_y).max())
    bent = Bent(temperature, temperature * top)
    held = stream_blocks(e, bent)
    if (cap := held.log_mean + ceiling) < bent.cap:
        bent = Bent(temperature, cap)
        held = stream_blocks(e, bent)
    return held, bent


def stream_shifts(
    score: Callable[[list[int]], Tensor],
    shifts: Iterable[list[int]],
    bent: Bent = Bent(),
) -> HeldOut:
    """Some pairs of a critic that is not separable: `score([s])` gives x_i with y_{i+s}, (1, n), for each shift."""

    def scaled(group: list[int]) -> Tensor:
        return bent(score(group)).double()

    pos, m = scaled([0])[0], 1
    rows, columns = pos.new_full(pos.shape, -torch.inf), pos.new_full(pos.shape, -torch.inf)
    for group in shifts:
        block = scaled(group)
        m += len(group)
        rows = torch.logaddexp(rows, block.logsumexp(0))
        back = torch.stack([line.roll(s) for s, line in zip(group, block, strict=True)])
        columns = torch.logaddexp(columns, back.logsumexp(0))
    return HeldOut(pos, rows, columns, m)


def read_bound(held: HeldOut, method: str = "ml_cpc", alpha: float | None = None) -> tuple[float, Tensor, float]:
    """(estimate, influence of each row on it, ceiling).

    The influence is ψ_i = pos_i − (rows_i + columns_i)/Z, from the first-order expansion of log Z over pairs that
    share x_i or y_i, so the standard error of the estimate is sd(ψ)/√n.
    """
    alpha = held.alpha if alpha is None else alpha
    value = float(read(method, held.pos, held.row_lse, held.m, alpha))
    if method == "cpc":
        influence = held.pos - torch.logaddexp(held.pos, held.row_lse)
    else:
        log_z = held.log_mean if method in ("dv", "smile") else 0.0
        if method == "ml_cpc":
            log_z = float(held.pos.mean()) - value
        each = torch.logsumexp(torch.stack([held.row_lse, held.col_lse]), 0) - math.log(held.m - 1)
        influence = held.pos - (each - log_z).exp()
    return value, influence, ceiling_of(method, held.m, alpha)


def climb(trials: Iterable[_Trial]) -> _Trial:
    """The best of trials that rise, then fall: the later ones are not made. A trial begins with its value.

    J is concave in the temperature, scores and their cap being multiples of it, and so is the lower of two readings.

    >>> climb(iter([(1.0, "hot"), (2.0, "warm"), (1.5, "cool"), (9.9, "never made")]))
    (2.0, 'warm')
    """
    trials = iter(trials)
    best = next(trials)
    for trial in trials:
        if not trial[0] > best[0]:
            break
        best = trial
    return best
