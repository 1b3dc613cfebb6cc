"""Ceilings and the range of the guarantee."""

import math

import pytest

from mlcpc import alpha_min, ceiling, is_lower_bound


@pytest.mark.parametrize(("m", "n"), [(2, 1), (2, 7), (128, 128), (16385, 64), (65537, 256)])
def test_the_smallest_alpha_lifts_the_ceiling_to_all_pairs(m: int, n: int) -> None:
    assert ceiling(m, alpha_min(m, n)) == pytest.approx(math.log(n * (m - 1) + 1), rel=1e-15)


def test_the_distillation_setting_of_the_paper() -> None:
    assert alpha_min(16385, 64) == pytest.approx(0.01563, abs=5e-6)
    assert not is_lower_bound(0.01, 16385, 64)
    assert is_lower_bound(0.05, 16385, 64)


@pytest.mark.parametrize(("m", "n"), [(2, 1), (3, 2), (128, 128)])
def test_ends_of_the_ranges(m: int, n: int) -> None:
    low = alpha_min(m, n)
    assert is_lower_bound(low, m, n)
    assert is_lower_bound(m / 2, m, n)
    assert not is_lower_bound(math.nextafter(low, 0), m, n)
    assert not is_lower_bound(math.nextafter(m / 2, m), m, n)
    assert is_lower_bound(1.0, m, n, objective="cpc")
    assert not is_lower_bound(math.nextafter(1.0, 0), m, n, objective="cpc")


@pytest.mark.parametrize("alpha", [0, -1, 4, 5, math.nan, math.inf])
def test_alpha_outside_is_refused(alpha: float) -> None:
    for call in (lambda: ceiling(4, alpha), lambda: is_lower_bound(alpha, 4, 4)):
        with pytest.raises(ValueError, match="strictly between 0 and m = 4"):
            call()


@pytest.mark.parametrize(("m", "n"), [(1, 4), (0, 4), (4, 0), (4, -1), (math.nan, 3), (math.inf, 3), (4, math.inf)])
def test_impossible_sizes(m: int, n: int) -> None:
    with pytest.raises(ValueError, match=r"^[mn] is"):
        alpha_min(m, n)


@pytest.mark.parametrize(("m", "n"), [("128", 3), (None, 3), (4, "3"), (4, None)])
def test_sizes_that_are_no_numbers(m, n) -> None:
    with pytest.raises(TypeError, match=r"^[mn] is .* must be a whole number"):
        alpha_min(m, n)


def test_unknown_objective() -> None:
    with pytest.raises(ValueError, match="'nwj'"):
        is_lower_bound(1.0, 4, 4, objective="nwj")
