"""What the estimator's critics see, and what they keep."""

import pytest
import torch

from mlcpc import estimate_mi
from mlcpc.mi.features import fit_columns, fit_gaussian, unmixing
from mlcpc.mi.networks import Critic
from mlcpc.mi.prepare import Recipe, encoded, split_rows
from mlcpc.mi.tasks import TASKS, cubic
from mlcpc.mi.train import _validate, train

QUICK = {"fast": True, "steps": 150}


def sample(name: str, n: int, seed: int = 11):
    return TASKS[name].sample(n, torch.Generator().manual_seed(seed))


def test_unmixing_finds_the_columns_behind_a_rotation() -> None:
    x, y = cubic(8, 4.0).sample(8000, torch.Generator().manual_seed(5))
    assert unmixing(x.double()) is None  # Gaussian: nothing to find
    scale = fit_columns(y, "unmixed")
    turn, _ = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(0)))
    hidden = y.double() @ turn.double().T  # the cubes before the rotation
    found = scale(y).double()
    both = torch.corrcoef(torch.cat([found, hidden.sign() * hidden.abs().pow(1 / 3)], 1).T)[:8, 8:].abs()
    assert (both.max(1).values > 0.97).all()
    assert len(set(both.argmax(1).tolist())) == 8
    half_cubes = TASKS["half-cube 5×5"].sample(8000, torch.Generator().manual_seed(5))[0]
    assert unmixing(((half_cubes - half_cubes.mean(0)) / half_cubes.std(0)).double()) is None  # not mixed


def test_a_joint_critic_sees_what_is_left_of_each_side() -> None:
    """Scores depend on the residuals of the canonical fit: the same as computed row by row."""
    x, y = sample("additive noise 0.1", 400)
    z = [(side - side.mean()) / side.std() for side in (x, y)]
    start = fit_gaussian(*z, 0), torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0])
    critic = Critic((1, 1), [start], True, (8, 1), torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in critic.residual.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(1))
        scores = critic.pairs(z[0][None], z[1][None], [0, 3])
        gaussian = start[0]
        rho = gaussian.q / gaussian.w
        assert float(rho) == pytest.approx(float(torch.corrcoef(torch.cat(z, 1).T)[0, 1].abs()), abs=0.01)
        a, b = z[0][5] * gaussian.a[0], z[1][8] * gaussian.b[0]
        left, right = (a - rho * b) / (1 - rho**2).sqrt(), (b - rho * a) / (1 - rho**2).sqrt()
        extra = critic.residual(torch.cat([z[0][5], z[1][8], left, right]).view(1, 1, 4))
        closed = gaussian.w * a * b - gaussian.q * (a**2 + b**2) / 2
    assert float(scores[0, 1, 5]) == pytest.approx(float(extra + closed), rel=1e-4)


@pytest.mark.slow
def test_a_cube_before_a_rotation_is_undone() -> None:
    task = cubic(20, 5.0)
    result = estimate_mi(*task.sample(20_000, torch.Generator().manual_seed(11)))
    assert 4.5 < result.lower_bound < 5.05


def test_best_weights_come_with_what_their_norms_have_counted() -> None:
    """After training, a critic gives on validation rows what it gave at its best step: its buffers too."""
    g = torch.Generator().manual_seed(3)
    x = torch.randn(300, 6, generator=g)
    y = x[:, :2] + torch.randn(300, 2, generator=g)
    recipe = Recipe(folds=2, steps=80, every=10)
    split = split_rows(300, recipe, g)
    encoder = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8))
    critic, views, _ = encoded(x, y, split, recipe, (encoder, None), g)
    best = train(critic, views, split, recipe, g, lambda done: None)
    assert _validate(critic, views, split, "ml_cpc") == pytest.approx(best, abs=1e-4)
