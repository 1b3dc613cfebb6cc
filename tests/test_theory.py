"""Theorem 2 by exact enumeration: small discrete joints, free critics trained to break the bound."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from mlcpc import alpha_min, cpc, ml_cpc
from mlcpc.scores import Scores

pytestmark = pytest.mark.filterwarnings("ignore::mlcpc.GuaranteeWarning")


def joint(kind: str, size: int, seed: int = 0) -> Tensor:
    """p(x, y) on size × size."""
    if kind == "equal":
        return torch.eye(size, dtype=torch.float64) / size
    weights = torch.rand(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 4
    return weights / weights.sum()


def information(p: Tensor) -> float:
    ratio = p / (p.sum(1, keepdim=True) * p.sum(0))
    return (p * ratio.clamp_min(1e-300).log()).sum().item()


def batches(p: Tensor, n: int, m: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Every batch as indices into the flat critic: positives (B, n), negatives (B, n, m−1), probabilities (B,).

    m = None takes the other pairs' y as negatives; otherwise they are drawn from p(y), independently.
    """
    size, p_y = len(p), p.sum(0)
    pairs = [(x, y) for x in range(size) for y in range(size) if p[x, y] > 0]
    pos, neg, weight = [], [], []
    for batch in itertools.product(pairs, repeat=n):
        base = math.prod(p[x, y].item() for x, y in batch)
        draws = [None] if m is None else itertools.product(range(size), repeat=n * (m - 1))
        for draw in draws:
            pos.append([x * size + y for x, y in batch])
            if draw is None:
                neg.append([[x * size + batch[j][1] for j in range(n) if j != i] for i, (x, _) in enumerate(batch)])
                weight.append(base)
            else:
                k = (m or 0) - 1
                neg.append([[x * size + draw[i * k + j] for j in range(k)] for i, (x, _) in enumerate(batch)])
                weight.append(base * math.prod(p_y[y].item() for y in draw))
    return torch.tensor(pos), torch.tensor(neg), torch.tensor(weight, dtype=torch.float64)


def expectation(critic: Tensor, cells: tuple[Tensor, Tensor, Tensor], objective, alpha: float) -> Tensor:
    pos, neg, weight = cells
    pos, neg = critic[pos], critic[neg].logsumexp(2)
    m = cells[1].shape[2] + 1
    return sum(w * objective(Scores(a, b, m), alpha) for a, b, w in zip(pos, neg, weight, strict=True))


def worst_case(cells, objective, alpha: float, size: int, steps: int = 40) -> float:
    """The largest expectation that a free critic reaches from three starts."""
    best = -math.inf
    for seed in range(3):
        critic = torch.randn(
            size * size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, requires_grad=True
        )
        optimizer = torch.optim.LBFGS([critic], max_iter=steps, line_search_fn="strong_wolfe")

        def closure(critic=critic, optimizer=optimizer):
            optimizer.zero_grad()
            value = -expectation(critic, cells, objective, alpha) + 1e-9 * critic.square().sum()
            value.backward()
            return value

        optimizer.step(closure)
        best = max(best, expectation(critic.detach(), cells, objective, alpha).item())
    return best


SETTINGS = [
    ("equal", 2, 2, 2),
    ("equal", 2, 2, 3),
    ("skewed", 2, 2, 2),
    ("equal", 2, 2, None),
    ("equal", 2, 3, None),
    ("skewed", 2, 3, None),
]


@pytest.mark.parametrize(("kind", "size", "n", "m"), SETTINGS)
def test_ml_cpc_is_a_lower_bound_in_the_whole_range(kind, size, n, m) -> None:
    p = joint(kind, size)
    cells = batches(p, n, m)
    assert cells[2].sum().item() == pytest.approx(1)
    m = m or n
    low, high = alpha_min(m, n), m / 2
    for share in (0.0, 0.3, 1.0):
        alpha = low ** (1 - share) * high**share
        assert worst_case(cells, ml_cpc, alpha, size) <= information(p) + 1e-9


@pytest.mark.parametrize(("m", "n"), [(3, 3), (None, 3)])
def test_cpc_below_one_is_not(m, n) -> None:
    """Example 1 (in-batch) and its cousin with independent negatives."""
    p = joint("equal", 2)
    cells = batches(p, 2 if m else n, m)
    assert worst_case(cells, cpc, 0.5, 2) > information(p) + 0.02


def test_example_1_exactly() -> None:
    critic = torch.tensor([0.0, -1e3, -1e3, 0.0], dtype=torch.float64)
    value = expectation(critic, batches(joint("equal", 2), 3, None), cpc, 0.5)
    assert value.item() == pytest.approx(0.7174, abs=5e-5)


def test_ml_cpc_far_below_alpha_min_is_not_a_bound_either() -> None:
    """So the range is not an idle condition."""
    p = joint("equal", 2)
    cells = batches(p, 2, 2)
    assert worst_case(cells, ml_cpc, alpha_min(2, 2) / 4, 2) > information(p) + 0.02
