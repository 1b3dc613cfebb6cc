"""estimate_kl: Theorem 2 on any two samples."""

import math

import pytest
import torch

from mlcpc import estimate_kl

GOOD = torch.linspace(0, 1, 100)


def test_kl_between_two_samples() -> None:
    g = torch.Generator().manual_seed(7)
    p, q = torch.randn(3000, 2, generator=g) + torch.tensor([0.6, 0.0]), torch.randn(4000, 2, generator=g)
    assert estimate_kl(p, q).lower_bound == pytest.approx(0.18, abs=0.06)
    assert abs(estimate_kl(q[:2000], q[2000:]).lower_bound) < 0.03
    with pytest.raises(ValueError, match="p has 1 columns and q 2"):
        estimate_kl(p[:, :1], q)


def test_kl_of_words_that_one_sample_lacks() -> None:
    """P(c) = 0.2 and Q(c) = 0: the divergence is infinite, and the ceiling is the limit of what can be shown."""
    p, q = ["a", "b", "b", "c", "b"] * 80, ["a", "b"] * 150
    result = estimate_kl(p, q, steps=100)
    assert 0.3 < result.lower_bound < result.max_detectable
    assert result.sentence().startswith("p is at least")
    apart = estimate_kl(GOOD, GOOD + 5, steps=60)
    assert "within 1 of its ceiling" in apart.warnings[0]


@pytest.mark.parametrize(
    ("p", "q", "settings", "message"),
    [
        (GOOD * math.nan, GOOD, {}, "100 of 100 rows of p have missing"),
        (GOOD, GOOD.log(), {}, "q has 1 infinite values"),
        (GOOD[:20], GOOD, {}, "p has 20 rows"),
        (GOOD, ["a", "b"] * 50, {}, "one has words, the other numbers"),
        (GOOD, GOOD, {"folds": 1}, "folds is 1"),
        (GOOD, GOOD, {"folds": 40}, "folds is 40, which leaves 2 of 100 rows"),
        (GOOD, GOOD, {"steps": 0}, "steps is 0"),
    ],
)
def test_kl_refuses_in_one_line(p, q, settings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate_kl(p, q, **settings)
