"""Two classic numbers to hold an estimate against: canonical correlations, and nearest neighbours."""

import math

import torch
from torch import Tensor

__all__ = ["cca", "ksg"]


def cca(x: Tensor, y: Tensor) -> float:
    """The mutual information of the jointly Gaussian fit: −½ Σ log(1 − ρ_k²). It is biased by about dx·dy/2n.

    >>> x = torch.randn(4000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> cca(x, x + x.roll(1)) > 0.3 > abs(cca(x, x.roll(1)))
    True
    """
    bases = []
    for side in (x.double(), y.double()):
        u, s, _ = torch.linalg.svd(side - side.mean(0), full_matrices=False)
        bases.append(u[:, s > 1e-9 * s.max()])
    r = torch.linalg.svdvals(bases[0].T @ bases[1]).clamp(max=1 - 1e-12)
    return float(-torch.log1p(-r.square()).sum() / 2)


def ksg(x: Tensor, y: Tensor, neighbours: int = 5, most: int = 2000) -> float | None:
    """Kraskov, Stögbauer and Grassberger's first estimator, ψ(k) + ψ(n) − ⟨ψ(n_x) + ψ(n_y)⟩, on at most `most` rows.

    None without SciPy, or where distances mean little: beyond ten columns, or with many tied values.
    """
    try:
        from scipy.spatial import cKDTree
        from scipy.special import digamma
    except ModuleNotFoundError:
        return None
    if x.shape[1] + y.shape[1] > 10:
        return None
    chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:most]
    sides = [(side[chosen].double() - side.double().mean(0)) / side.double().std(0) for side in (x, y)]
    if any(len(torch.unique(side, dim=0)) < 0.99 * len(side) for side in sides):
        return None
    both = torch.cat(sides, 1).numpy()
    reach = cKDTree(both).query(both, k=neighbours + 1, p=math.inf)[0][:, -1]
    total = digamma(neighbours) + digamma(len(both))
    for side in sides:
        inside = cKDTree(side.numpy()).query_ball_point(
            side.numpy(), reach * (1 - 1e-12), p=math.inf, return_length=True
        )
        total -= digamma(inside).mean()
    return float(total)
