"""Pairs (x, y) whose mutual information is known: a sampler and the exact value (or a Monte-Carlo one with its error).

`TASKS` has the forty tasks of the benchmark-mi list by name; `TWELVE` are the ones quoted in docs. A further task is
one function that returns a `Task`. Invertible maps of x or of y leave the mutual information as it is, so a task can
be bent (`map_x`, `map_y`) without computing anything again.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from mlcpc.mi import maps

__all__ = ["TASKS", "TWELVE", "Task", "correlated_gaussian", "correlation"]

Sampler = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]
Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Task:
    """`sample(n, generator)` gives x (n, dx) and y (n, dy) that share `mi` nats, known to ± `mi_error` (1 s.e.)."""

    name: str
    mi: float
    sample: Sampler
    mi_error: float = 0.0

    def bent(self, name: str, map_x: Map = lambda x: x, map_y: Map = lambda y: y) -> "Task":
        """The same information behind invertible maps."""

        def sample(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
            x, y = self.sample(n, generator)
            return map_x(x), map_y(y)

        return replace(self, name=name, sample=sample)


def correlation(mi: float, dim: int) -> float:
    """ρ at which `dim` independent coordinate pairs share `mi` nats: mi = −d/2 log(1 − ρ²).

    The paper's Appendix C.2 prints 1 − ρ/2; its own example in Section 2.2 needs this one:

    >>> round(-1000 / 2 * math.log(1 - 0.2**2), 2)
    20.41
    """
    if not mi >= 0:
        raise ValueError(f"mi is {mi} nats but mutual information is never negative")
    return math.sqrt(-math.expm1(-2 * mi / dim))


def correlated_gaussian(n: int, dim: int, rho: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """n rows of x ~ N(0, I) and y = ρ x + √(1−ρ²) noise."""
    x, noise = torch.randn(2, n, dim, generator=generator)
    return x, rho * x + math.sqrt(1 - rho**2) * noise


def gaussian(dim: int, mi: float) -> Task:
    """`dim` equally correlated pairs, as on the paper's staircase.

    >>> gaussian(20, 10.0).mi
    10.0
    """
    return Task(
        f"gaussian {dim}×{dim} at {mi:g}", mi, lambda n, g: correlated_gaussian(n, dim, correlation(mi, dim), g)
    )


def pairs(dim: int, count: int = 2, rho: float = 0.8) -> Task:
    """Only the first `count` coordinates of x and y are correlated: I = −count/2 log(1 − ρ²).

    >>> round(pairs(5).mi, 3)
    1.022
    """

    def sample(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x, y = torch.randn(2, n, dim, generator=generator)
        y[:, :count] = rho * x[:, :count] + math.sqrt(1 - rho**2) * y[:, :count]
        return x, y

    return Task(f"{count}-pair {dim}×{dim}", -count / 2 * math.log(1 - rho**2), sample)


def dense(dim: int, rho: float = 0.5) -> Task:
    """All 2·dim coordinates share one correlation: I = ½ log(det Σx det Σy / det Σ).

    >>> round(dense(25).mi, 3), round(dense(50).mi, 3)
    (1.292, 1.624)
    """
    within, over = 1 + (dim - 1) * rho, 1 + (2 * dim - 1) * rho
    mi = 0.5 * math.log(within**2 / (over * (1 - rho)))

    def sample(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        z = math.sqrt(1 - rho) * torch.randn(n, 2 * dim, generator=generator)
        z += math.sqrt(rho) * torch.randn(n, 1, generator=generator)
        return z[:, :dim], z[:, dim:]

    return Task(f"dense {dim}×{dim}", mi, sample)


def student(dim: int, dof: int) -> Task:
    """Multivariate Student-t with identity dispersion: the parts share only their common scale.

    I = φ(ν) + φ(ν + 2d) − 2 φ(ν + d),  φ(k) = log Γ(k/2) − (k/2) ψ(k/2).

    >>> round(student(1, 1).mi, 3), round(student(5, 2).mi, 3)
    (0.224, 0.448)
    """

    def phi(k: int) -> float:
        half = torch.tensor(k / 2, dtype=torch.float64)
        return float(torch.lgamma(half) - half * torch.digamma(half))

    def sample(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        z = torch.randn(n, 2 * dim, generator=generator)
        chi2 = torch.randn(n, dof, generator=generator).square().sum(1, keepdim=True)
        z = z / (chi2 / dof).sqrt()
        return z[:, :dim], z[:, dim:]

    return Task(f"student {dim}×{dim} dof {dof}", phi(dof) + phi(dof + 2 * dim) - 2 * phi(dof + dim), sample)


def additive_noise(width: float) -> Task:
    """x ~ U(0, 1), y = x + U(−ε, ε): I = ε − log 2ε up to ε = ½, and 1/(4ε) beyond.

    >>> round(additive_noise(0.1).mi, 3), round(additive_noise(0.75).mi, 3)
    (1.709, 0.333)
    """

    def sample(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x, noise = torch.rand(2, n, 1, generator=generator)
        return x, x + width * (2 * noise - 1)

    return Task(f"additive noise {width:g}", width - math.log(2 * width) if width <= 0.5 else 1 / (4 * width), sample)


def discrete(states: int, keep: float = 1.0) -> Task:
    """x uniform over k states; y = x with probability `keep`, else uniform over all. Codes as numbers.

    >>> round(discrete(8).mi - math.log(8), 6)
    0.0
    """
    same, other = keep + (1 - keep) / states, (1 - keep) / states
    mi = same * math.log(states * same) + ((states - 1) * other * math.log(states * other) if other else 0.0)

    def sample(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x, fresh = torch.randint(states, (2, n, 1), generator=generator).float()
        return x, torch.where(torch.rand(n, 1, generator=generator) < keep, x, fresh)

    return Task(f"discrete {states} kept {keep:g}", mi, sample)


def mixture(rho: float = 0.9, draws: int = 200_000) -> Task:
    """½ N(0, ρ) + ½ N(0, −ρ) on the plane: uncorrelated, not independent. I by Monte Carlo over `draws`.

    >>> task = mixture(draws=20_000)
    >>> task.mi_error < 0.01 < task.mi
    True
    """

    def sample(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x, y = correlated_gaussian(n, 1, rho, generator)
        return x, y * torch.where(torch.rand(n, 1, generator=generator) < 0.5, 1.0, -1.0)

    x, y = sample(draws, torch.Generator().manual_seed(0))
    quiet, cross = (x.square() + y.square()) * rho**2, 2 * rho * x * y
    halves = torch.stack([(cross - quiet), (-cross - quiet)]) / (2 * (1 - rho**2))
    ratio = torch.logsumexp(halves, 0) - math.log(2) - 0.5 * math.log(1 - rho**2)
    return Task(f"mixture {rho:g}", float(ratio.mean()), sample, float(ratio.std()) / math.sqrt(draws))


def cubic(dim: int, mi: float) -> Task:
    """Correlated Gaussians with y cubed coordinate by coordinate and then rotated, so that no column shows the cube."""
    q, _ = torch.linalg.qr(torch.randn(dim, dim, generator=torch.Generator().manual_seed(0)))
    return gaussian(dim, mi).bent(f"rotated cubic {dim}×{dim} at {mi:g}", map_y=lambda y: y.pow(3) @ q)


def _one_dimensional() -> list[Task]:
    normal = replace(pairs(1, 1, 0.75), name="normal 1×1")
    uniform = normal.bent("uniform 1×1", maps.normal_cdf, maps.normal_cdf)
    heavy = student(1, 1)
    return [
        normal,
        uniform,
        additive_noise(0.1),
        additive_noise(0.75),
        normal.bent("bimodal 1×1", maps.bimodal, maps.bimodal),
        normal.bent("wiggly 1×1", maps.wiggly_x, maps.wiggly_y),
        normal.bent("half-cube 1×1", maps.half_cube, maps.half_cube),
        heavy,
        heavy.bent("asinh student 1×1", torch.asinh, torch.asinh),
        uniform.bent("swiss roll 2×1", map_x=maps.swiss_roll),
    ]


def _students() -> list[Task]:
    return [student(dim, dof) for dim, dof in ((2, 1), (2, 2), (3, 2), (3, 3), (5, 2), (5, 3))]


def _transformed() -> list[Task]:
    found = []
    for dim in (3, 5, 25):
        base = pairs(dim)
        turn_x, turn_y = partial(maps.spiral, plane=(0, 1)), partial(maps.spiral, plane=(1, 2))
        flat = base.bent(f"uniform {dim}×{dim}", maps.normal_cdf, maps.normal_cdf)
        found += [
            flat,
            base.bent(f"half-cube {dim}×{dim}", maps.half_cube, maps.half_cube),
            base.bent(f"spiral {dim}×{dim}", turn_x, turn_y),
            flat.bent(f"spiral uniform {dim}×{dim}", turn_x, turn_y),
        ]
    for dim, dof in ((2, 1), (3, 2), (5, 2)):
        found.append(student(dim, dof).bent(f"asinh student {dim}×{dim}", torch.asinh, torch.asinh))
    return found


#: name → task
TASKS: dict[str, Task] = {
    task.name: task
    for task in [
        *_one_dimensional(),
        *(dense(dim) for dim in (2, 3, 5, 25, 50)),
        *(pairs(dim) for dim in (2, 3, 5, 25)),
        *_students(),
        *_transformed(),
    ]
}
#: the twelve that peers were measured on
TWELVE = (
    "normal 1×1",
    "additive noise 0.1",
    "additive noise 0.75",
    "asinh student 1×1",
    "swiss roll 2×1",
    "dense 25×25",
    "dense 50×50",
    "2-pair 5×5",
    "2-pair 25×25",
    "asinh student 5×5",
    "spiral 5×5",
    "spiral 25×25",
)
