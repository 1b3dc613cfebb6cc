"""From raw columns to critic inputs, and the closed-form Gaussian critic that training starts from.

Everything here is fitted on the rows it is given (a fold's training rows) and then applied to any others.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["MODES", "Columns", "Gaussian", "fit_columns", "fit_gaussians", "modulated", "radial", "unmixing"]

#: how a column may be brought to unit scale
MODES = ("standard", "rank", "unmixed")
_BOUND = 6.0  # nothing is fed beyond six standard deviations
_RADIAL_DIMS = 64  # modulated copies of more columns than this cost more rows than they are worth


@dataclass(frozen=True)
class Columns:
    """One scale for each column. `standard`: (x − mean) / sd; `rank`: the normal score Φ⁻¹(rank / (n+1)); `unmixed`:
    normal scores of independent components, for columns that are a linear mixture of bent ones.

    Ranks are those among the training rows (ties count half), so any increasing map of a column changes nothing.
    """

    mode: str
    centre: Tensor
    spread: Tensor
    knots: Tensor
    """(d, n): each training column, sorted; empty if mode is "standard" """
    mix: Tensor | None = None
    """(d, d): what the centred columns are multiplied with first; None where unmixing finds nothing"""

    def __call__(self, x: Tensor) -> Tensor:
        if self.mode == "standard":
            return ((x - self.centre) / self.spread).clamp(-_BOUND, _BOUND).float()
        if self.mix is not None:
            x = (x - self.centre) @ self.mix
        n, columns = self.knots.shape[1], x.T.contiguous()
        below = torch.searchsorted(self.knots, columns)
        if (self.knots[:, 1:] == self.knots[:, :-1]).any():
            upto = torch.searchsorted(self.knots, columns, right=True)
        else:
            upto = below + (self.knots.gather(1, below.clamp(max=n - 1)) == columns)
        share = ((below + upto).double() / 2 + 0.5) / (n + 1)
        scores: Tensor = torch.special.ndtri(share.clamp(0.5 / (n + 1), 1 - 0.5 / (n + 1)))
        return scores.T.float()


def fit_columns(x: Tensor, mode: str) -> Columns:
    """The scale of the columns of x (n, d).

    >>> x = torch.tensor([[1.0], [2.0], [4.0]])
    >>> bool(torch.equal(fit_columns(x, "rank")(x), fit_columns(x.exp(), "rank")(x.exp())))
    True
    """
    if mode not in MODES:
        known = ", ".join(map(repr, ("auto", *MODES)))
        raise ValueError(f"inputs is {mode!r}, which is not known: write one of {known}")
    wide = x.double()
    centre, spread = wide.mean(0), wide.std(0)
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    mix = unmixing((wide - centre) / spread) if mode == "unmixed" else None
    if mix is not None:
        mix = mix / spread[:, None]
        x = (wide - centre) @ mix
    knots = x.new_zeros(x.shape[1], 0) if mode == "standard" else x.T.sort(1).values.contiguous()
    return Columns(mode, centre, spread, knots, mix)


def unmixing(z: Tensor, most: int = 10_000, steps: int = 30) -> Tensor | None:
    """FastICA: the (d, d) that makes columns z (n, d) of unit variance least Gaussian; None where that gains little.

    How far a column is from Gaussian is |E log cosh z − 0.3746|, on at most `most` rows: heavy tails do not rule it.
    """

    def distance(columns: Tensor) -> Tensor:
        return ((columns.abs() + (-2 * columns.abs()).exp().log1p()).mean(0) - math.log(2) - 0.37457).abs()

    z = z[:most]
    before = distance(z).mean()
    white = _whitener(z.T @ z / len(z))
    z = z @ white
    if z.shape[1] == 1 or float(distance(z).max()) < 1.2 / math.sqrt(len(z)):  # four standard errors
        return None
    other, _ = torch.linalg.qr(torch.randn(white.shape, generator=torch.Generator().manual_seed(0), dtype=z.dtype))
    turns = [_least_gaussian(z, start, steps) for start in (torch.eye(len(white), dtype=z.dtype), other)]
    turn = max(turns, key=lambda turn: float(distance(z @ turn).mean()))
    return white @ turn if float(distance(z @ turn).mean()) > 1.25 * float(before) + 0.005 else None


def _least_gaussian(z: Tensor, turn: Tensor, steps: int) -> Tensor:
    """FastICA's fixed-point iteration on white z (n, d), all columns at once. It may stop at a saddle."""
    for _ in range(steps):
        bent = (z @ turn).tanh()
        left, _, right = torch.linalg.svd(z.T @ bent / len(z) - turn * (1 - bent.square()).mean(0))
        old, turn = turn, left @ right
        if float(1 - (turn * old).sum(0).abs().min()) < 1e-6:
            break
    return turn


def radial(z: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
    """The standardised squared length |z|²/d of each row, (…, d) → (…, 1), held within ±3."""
    return ((z.square().mean(-1, keepdim=True) - centre) / spread).clamp(-3, 3)


def modulated(z: Tensor, r: Tensor, level: int) -> Tensor:
    """[z, r z, (r²−1) z] up to `level`: directions that may turn or stretch with the radius."""
    return torch.cat([z, r * z, (r.square() - 1) * z][: level + 1], -1)


@dataclass(frozen=True)
class Gaussian:
    """log p(u, v) / p(u) p(v) of jointly Gaussian canonical pairs, as one separable critic:

    Σ_k w_k u_k v_k − ½ q_k (u_k² + v_k²),   w = ρ/(1−ρ²), q = ρ²/(1−ρ²),   u = modulated(z_x) A, v = … B
    """

    a: Tensor
    b: Tensor
    w: Tensor
    q: Tensor
    level: int

    @staticmethod
    def highest_level(dim: int) -> int:
        """How many modulated copies of `dim` columns are worth looking at."""
        return 2 if 1 < dim <= _RADIAL_DIMS else 0


def fit_gaussians(x: Tensor, y: Tensor, highest: int) -> list[Gaussian]:
    """The fits of every level up to the highest, for columns modulated up to it: they share their second moments."""
    n, dims = len(x), (x.shape[1] // (highest + 1), y.shape[1] // (highest + 1))
    x, y = x.double() - x.double().mean(0), y.double() - y.double().mean(0)
    xx, yy, xy = x.T @ x / n, y.T @ y / n, x.T @ y / n
    sizes = [(dims[0] * (k + 1), dims[1] * (k + 1)) for k in range(highest + 1)]
    return [_gaussian(xx[:p, :p], yy[:q, :q], xy[:p, :q], n, level) for level, (p, q) in enumerate(sizes)]


def _gaussian(xx: Tensor, yy: Tensor, xy: Tensor, n: int, level: int, most: int = 32) -> Gaussian:
    """Canonical pairs of n rows that stand out of the noise, their correlations freed of its bias.

    With a = p/n and b = q/n, noise alone reaches r² = (√(a(1−b)) + √(b(1−a)))², and a true ρ² shows itself as
    r² = (ρ²(1−a)+a)(ρ²(1−b)+b)/ρ². Pairs within 10 % of that edge are dropped, the others solved for ρ².
    """
    (p, q), white_x, white_y = xy.shape, _whitener(xx), _whitener(yy)
    left, r, right = torch.linalg.svd(white_x @ xy @ white_y, full_matrices=False)
    a, b, r2 = min(p / n, 0.5), min(q / n, 0.5), r.square().clamp(max=1 - 1e-7)
    edge = (math.sqrt(a * (1 - b)) + math.sqrt(b * (1 - a))) ** 2
    square, linear = (1 - a) * (1 - b), a * (1 - b) + b * (1 - a) - r2
    inside = linear.square() - 4 * square * a * b
    rho2 = ((inside.clamp_min(0).sqrt() - linear) / (2 * square)).clamp(0, 1 - 1e-4)  # sharper would drown in float32
    count = min(int(((inside > 0) & (r2 > 1.1 * edge)).sum()), most)
    rho2 = rho2[:count]
    return Gaussian(
        (white_x @ left[:, :count]).float(),
        (white_y @ right[:count].T).float(),
        (rho2.sqrt() / (1 - rho2)).float(),
        (rho2 / (1 - rho2)).float(),
        level,
    )


def _whitener(covariance: Tensor) -> Tensor:
    """Σ^(−½); directions of (nearly) no variance are left out."""
    values, vectors = torch.linalg.eigh(covariance)
    alive = values > 1e-6 * values.max().clamp_min(1e-12)
    scale = torch.where(alive, values.clamp_min(1e-300).rsqrt(), torch.zeros_like(values))
    whitener: Tensor = vectors * scale @ vectors.T
    return whitener
