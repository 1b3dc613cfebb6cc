"""What α means: the ceiling of an objective, and the range in which it is a lower bound.

Both objectives give the positives a total weight of α and the negatives one of m − α, of m. So no critic can make
them report more than log(m/α) nats (`ceiling`). Whether what they report is *guaranteed*, in expectation, not to
exceed the true value is the paper's Theorem 2, whose proof allows (see docs/paper.md)

    J_α (ML-CPC)   α in [α_{m,n}, m/2],  α_{m,n} = m / (n(m−1) + 1)
    L_α (CPC)      α in [1, m/2]
"""

import math
import warnings
from numbers import Real

import torch

__all__ = ["GuaranteeWarning", "alpha_min", "ceiling", "check_alpha", "is_lower_bound"]


class GuaranteeWarning(UserWarning):
    """This α may report more than the truth: the objective still trains, but it is no longer a lower bound."""


def alpha_min(m: float, n: int) -> float:
    """α_{m,n} = m / (n(m−1) + 1): the smallest α at which ML-CPC is a lower bound (Corollary 2).

    >>> alpha_min(m=128, n=128)
    0.007873...
    >>> math.isclose(ceiling(128, alpha_min(128, 128)), math.log(128 * 127 + 1))
    True
    """
    _check_sizes(m, n)
    return m / (n * (m - 1) + 1)


def ceiling(m: float, alpha: float = 1.0) -> float:
    """log(m/α), in nats: the most that L_α or J_α can report from m candidates.

    >>> ceiling(128)
    4.852...
    >>> ceiling(128, alpha=0.01)
    9.457...
    """
    _check_sizes(m)
    _check_inside(alpha, m)
    return math.log(m) - math.log(alpha)


def is_lower_bound(alpha: float, m: float, n: int, objective: str = "ml_cpc") -> bool:
    """Whether the objective is, in expectation, at most the true KL divergence (mutual information) for every critic.

    The proof is for negatives drawn independently of the positives; docs/paper.md says what holds in-batch.

    >>> is_lower_bound(0.05, m=128, n=128), is_lower_bound(0.05, m=128, n=128, objective="cpc")
    (True, False)
    """
    _check_sizes(m, n)
    _check_inside(alpha, m)
    return _lowest(normalise(objective), m, n) <= alpha <= m / 2


def check_alpha(alpha: float, m: float, n: int, objective: str, stacklevel: int = 2) -> None:
    """Raise where α has no meaning; warn where it voids the guarantee.

    The text holds no numbers, so Python's own filter says it once per call site while α, m or n move. The range gets a
    slack of rounding size, for schedules whose ends are the range's.
    """
    name = normalise(objective)
    inside = is_lower_bound(alpha, m, n, name) or any(
        math.isclose(alpha, end, rel_tol=1e-9) for end in (_lowest(name, m, n), m / 2)
    )
    if not inside and not torch.compiler.is_compiling():
        warnings.warn(
            f"{name} with this alpha is not guaranteed to be a lower bound: it is for alpha in {_RANGES[name]}, and "
            "outside its value may exceed the truth. mlcpc.is_lower_bound(alpha, m, n, objective) tells; "
            "GuaranteeWarning can be silenced",
            GuaranteeWarning,
            stacklevel=stacklevel + 1,
        )


_RANGES = {"cpc": "[1, m/2]", "ml_cpc": "[m/(n(m-1)+1), m/2]"}


def normalise(objective: str) -> str:
    """'ml-cpc' as on a command line, 'ml_cpc' as in code."""
    name = objective.replace("-", "_").lower() if isinstance(objective, str) else objective
    if name not in _RANGES:
        known = ", ".join(map(repr, _RANGES))
        raise ValueError(f"objective is {objective!r}, which is not known: write one of {known}")
    return name


def _lowest(name: str, m: float, n: int) -> float:
    return alpha_min(m, n) if name == "ml_cpc" else 1.0


def _check_sizes(m: float, n: int = 1) -> None:
    for name, size in (("m", m), ("n", n)):
        if size is None or isinstance(size, str):
            raise TypeError(f"{name} is {size!r} but must be a whole number, such as the batch size")
    if not 1 < m < math.inf:
        raise ValueError(f"m is {m}: a row needs its positive and at least one negative, so m must be 2 or more")
    if not 1 <= n < math.inf:
        raise ValueError(f"n is {n}: there must be at least one positive pair")


def _check_inside(alpha: float, m: float) -> None:
    if not isinstance(alpha, Real):
        raise TypeError(f"alpha is {alpha!r} but must be a number; schedules and strings are for ContrastiveLoss")
    if not 0 < alpha < m:
        raise ValueError(
            f"alpha is {alpha} but must lie strictly between 0 and m = {m:g}: 1 is the plain objective, "
            "smaller values raise the ceiling log(m/alpha)"
        )
