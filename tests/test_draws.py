"""Draws by key: uniform, independent of one another, and of who asks."""

import pytest
import torch

from mlcpc import draws


def test_uniform_is_uniform_and_uncorrelated() -> None:
    u = draws.uniform(torch.arange(100_000), 3, 0, "test").double()
    assert u.min() >= 0
    assert u.max() < 1
    for column in u.T:  # Kolmogorov–Smirnov, 0.1 % critical value
        grid = torch.arange(1, len(column) + 1) / len(column)
        assert (column.sort().values - grid).abs().max() < 1.95 / len(column) ** 0.5
    neighbours = torch.stack([*u.T, u[:, 0].roll(1)])
    off_diagonal = torch.corrcoef(neighbours) - torch.eye(4)
    assert off_diagonal.abs().max() < 5 / len(u) ** 0.5


@pytest.mark.parametrize("other", [("test",), (1, "test"), (0, "test", 1)])
def test_every_part_of_the_key_counts(other: tuple[int | str, ...]) -> None:
    ids = torch.arange(1000)
    a, b = draws.uniform(ids, 1, 0, "test"), draws.uniform(ids, 1, *other)
    assert torch.corrcoef(torch.cat([a, b], 1).T)[0, 1].abs() < 0.15
    assert not torch.equal(draws.permutation(1000, 0, "test"), draws.permutation(1000, *other))


def test_known_values_so_that_old_runs_can_be_repeated() -> None:
    assert draws.seed_of(0, "a") == 739273521946992771
    assert draws.uniform(torch.tensor([3]), 2, 0, "a").tolist() == [[0.6604710817337036, 0.410148561000824]]
