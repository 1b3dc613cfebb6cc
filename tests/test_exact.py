"""The closed forms of Appendix C.1 against brute force, and the numbers the errata give."""

import itertools
import math

import mpmath
import pytest
import torch

from mlcpc import alpha_min, cpc, in_batch, ml_cpc
from mlcpc.exact import binary_moments, entropy

pytestmark = pytest.mark.filterwarnings("ignore::mlcpc.GuaranteeWarning")


@pytest.mark.parametrize("p", [0.5, 0.2, 0.9])
@pytest.mark.parametrize("alpha", [1.0, 0.3, 1.9])
@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize(("name", "objective"), [("cpc", cpc), ("ml_cpc", ml_cpc)])
def test_equals_an_enumeration_of_all_batches(name, objective, n, alpha, p) -> None:
    mean = square = 0.0
    for batch in itertools.product((0, 1), repeat=n):
        x = torch.tensor(batch)
        scores = torch.where(x[:, None] == x, 0.0, -math.inf).double()
        value = objective(in_batch(scores), alpha).item()
        weight = p ** sum(batch) * (1 - p) ** (n - sum(batch))
        mean, square = mean + weight * value, square + weight * value**2
    ours = binary_moments(n, alpha, name, p)
    assert ours.mean == pytest.approx(mean, rel=1e-12)
    assert ours.variance == pytest.approx(square - mean**2, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "alpha", "expected"),
    [("cpc", 1, 0.6892255), ("ml_cpc", 1, 0.6854235), ("ml_cpc", None, 0.6931460), ("cpc", None, 0.6970692)],
)
def test_check_values_of_the_errata(name, alpha, expected) -> None:
    value = binary_moments(128, alpha or alpha_min(128, 128), name).mean
    assert value == pytest.approx(expected, abs=1e-6)


def test_example_1_cpc_exceeds_the_truth() -> None:
    assert binary_moments(3, 0.5, "cpc").mean == pytest.approx(0.7174, abs=5e-5)
    assert binary_moments(3, 0.5, "cpc").mean > math.log(2)
    assert binary_moments(3, 0.5, "ml_cpc").mean < math.log(2)


@pytest.mark.parametrize("name", ["cpc", "ml_cpc"])
@pytest.mark.parametrize("p", [0.5, 0.01])
def test_ten_thousand_is_stable(name: str, p: float) -> None:
    """Against 40 digits."""
    n, alpha = 10_000, 0.1
    mpmath.mp.dps = 40
    beta = (n - mpmath.mpf(alpha)) / (n - 1)
    mean = mpmath.mpf(0)
    weight = mpmath.mpf(1 - p) ** n
    for t in range(n + 1):
        u = n - t
        if name == "cpc":
            rows = [c * mpmath.log(n / (alpha + beta * (c - 1))) for c in (t, u) if c]
            value = sum(rows) / n
        else:
            value = mpmath.log(mpmath.mpf(n) * n / (alpha * n + beta * (t * (t - 1) + u * (u - 1))))
        mean += weight * value
        weight *= mpmath.mpf(n - t) / (t + 1) * mpmath.mpf(p) / (1 - mpmath.mpf(p))
    assert binary_moments(n, alpha, name, p).mean == pytest.approx(float(mean), rel=1e-10)


def test_entropy() -> None:
    assert entropy(0.25) == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75), rel=1e-15)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 1}, "n is 1"),
        ({"n": 3, "alpha": 3}, "alpha is 3"),
        ({"n": 2.5}, "n is 2.5"),
        ({"n": "3"}, "n is '3'"),
        ({"n": 3, "alpha": "x"}, "alpha is 'x'"),
        ({"n": 3, "p": 0}, "p is 0"),
        ({"n": 3, "objective": "x"}, "'x'"),
    ],
)
def test_bad_input(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        binary_moments(**arguments)
