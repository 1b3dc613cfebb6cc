"""α against progress."""

import math

import pytest

from mlcpc import constant, geometric, parse_alpha


def test_the_published_form_bit_for_bit() -> None:
    high, low, epochs = 10, 0.1, 200
    ours = [geometric(high, low)(e / epochs) for e in range(epochs)]
    published = [math.exp(math.log(low) + (math.log(high) - math.log(low)) * (1 - e / epochs)) for e in range(epochs)]
    assert ours == published
    assert ours[-1] == pytest.approx(0.1023, abs=5e-5)
    assert ours[epochs // 2] == pytest.approx(1)


def test_constant_is_exact() -> None:
    assert {constant(0.05)(p / 10) for p in range(11)} == {0.05}


@pytest.mark.parametrize(
    ("text", "high", "low"), [("0.05", 0.05, 0.05), ("10:0.1", 10, 0.1), (2, 2, 2), ("1e-3", 1e-3, 1e-3)]
)
def test_parse(text, high, low) -> None:
    schedule = parse_alpha(text)
    assert schedule(0) == pytest.approx(high)
    assert schedule(1) == pytest.approx(low)


def test_a_function_of_your_own() -> None:
    assert parse_alpha(lambda progress: 1 - progress / 2)(1.0) == 0.5


@pytest.mark.parametrize("bad", ["", "a", "1:2:3", "1:", "nan", "inf", "-1", "0", "10:0", 0, -0.5])
def test_bad_alpha(bad) -> None:
    with pytest.raises(ValueError, match="alpha"):
        parse_alpha(bad)


@pytest.mark.parametrize("bad", ["10", None, math.nan])
def test_ends_that_are_no_numbers(bad) -> None:
    for make in (lambda: geometric(bad, 0.1), lambda: constant(bad)):
        with pytest.raises(ValueError, match=r"an alpha of .* has no meaning"):
            make()


@pytest.mark.parametrize("progress", [-0.01, 1.01, math.nan, "0.5"])
def test_progress_outside(progress) -> None:
    with pytest.raises(ValueError, match=r"progress is .* \[0, 1\]"):
        geometric(10, 0.1)(progress)
