"""α as a function of progress in [0, 1].

The paper's curricula fall geometrically: 10 → 0.1 is α = 1 half way. Its published code steps once per epoch,
e = 0 … E−1; `schedule(e / E)` is that form, bit for bit (so it ends a little above the low end).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

__all__ = ["Alpha", "Schedule", "constant", "geometric", "parse_alpha"]


@dataclass(frozen=True)
class Schedule:
    """exp(ln low + (ln high − ln low)(1 − progress)); constant where both ends are equal."""

    high: float
    low: float

    def __post_init__(self) -> None:
        for end in (self.high, self.low):
            if not isinstance(end, Real) or not 0 < end < math.inf:
                raise ValueError(f"an alpha of {end!r} has no meaning: alphas are positive and finite, such as 0.05")

    def __call__(self, progress: float) -> float:
        if isinstance(progress, str) or not 0 <= progress <= 1:
            raise ValueError(f"progress is {progress!r} but must lie in [0, 1]: give step / total_steps")
        if self.high == self.low:
            return self.high
        return math.exp(math.log(self.low) + (math.log(self.high) - math.log(self.low)) * (1 - progress))

    def __str__(self) -> str:
        return f"{self.high:g}" if self.high == self.low else f"{self.high:g}:{self.low:g}"


#: Whatever a user may write for α: a number, "0.05", "10:0.1", or a function of progress.
Alpha = float | str | Callable[[float], float]


def constant(a: float) -> Schedule:
    """The same α throughout."""
    return Schedule(a, a)


def geometric(high: float, low: float) -> Schedule:
    """α falls (or rises) from `high` to `low` by equal factors.

    >>> f"{geometric(10, 0.1)(0.5):.6f}"
    '1.000000'
    """
    return Schedule(high, low)


def parse_alpha(alpha: Alpha) -> Callable[[float], float]:
    """A schedule from a number, a string as on the command line, or a schedule itself.

    >>> parse_alpha("0.05")(0.3), parse_alpha("10:0.1")
    (0.05, Schedule(high=10.0, low=0.1))
    """
    if callable(alpha):
        return alpha
    try:
        ends = [float(part) for part in str(alpha).split(":")]
    except ValueError:
        ends = []
    if not 1 <= len(ends) <= 2:
        raise ValueError(f"alpha is {alpha!r}, which is neither a number nor high:low: write 0.05 or 10:0.1")
    return Schedule(ends[0], ends[-1])
