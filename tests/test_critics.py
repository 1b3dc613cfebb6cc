"""What the estimator's critics see, and what they keep."""

from dataclasses import replace

import pytest
import torch

from mlcpc import estimate_mi
from mlcpc.mi import networks
from mlcpc.mi.crossfit import fit
from mlcpc.mi.features import fit_columns, fit_gaussians, modulated, radial, unmixing
from mlcpc.mi.held_out import Bent, climb, read_bound, stream_blocks
from mlcpc.mi.methods import objective
from mlcpc.mi.networks import Critic, Embedded, Mlp
from mlcpc.mi.prepare import TEMPERATURES, Recipe, encoded, split_rows
from mlcpc.mi.tasks import TASKS, cubic
from mlcpc.mi.train import _backward, _validate, train

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
    x, y = (side.double() for side in sample("additive noise 0.1", 400))
    z = [(side - side.mean()) / side.std() for side in (x, y)]
    start = fit_gaussians(*z, 0)[0], torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0])
    critic = Critic((1, 1), [start], True, (8, 1), torch.Generator().manual_seed(0)).double()
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


def critic_and_batch(joint: bool, n: int = 24) -> tuple[Critic, torch.Tensor, torch.Tensor]:
    """Two critics with weights of their own, in float64, and what each sees."""
    g = torch.Generator().manual_seed(0)
    x, y = (side.double() for side in sample("2-pair 2×2", n))
    start = fit_gaussians(x, y, 0)[0], torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0])
    critic = Critic((2, 2), [start] * 2, joint, (8, 1 if joint else 3), g).double()
    for parameter in critic.parameters():
        parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=g))
    return critic, x.expand(2, -1, -1), y.flip(0).expand(2, -1, -1)


@pytest.mark.parametrize("joint", [False, True])
def test_groups_hold_the_scores_of_their_pairs(joint: bool) -> None:
    critic, x, y = critic_and_batch(joint)
    for size in (8, 24):
        grouped = critic.groups(x, y, size)
        shifted = critic.pairs(x, y, range(24))  # [:, s, i] is the pair (i, i + s)
        for i in range(24):
            for j in range(i // size * size, (i // size + 1) * size):
                torch.testing.assert_close(grouped[:, i // size, i % size, j % size], shifted[:, (j - i) % 24, i])


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("method", ["ml_cpc", "cpc", "nwj", "js"])
def test_gradients_are_those_of_the_objective(joint: bool, method: str) -> None:
    critic, x, y = critic_and_batch(joint)
    size = 8 if joint else 24
    scores = critic.pairs(x, y, range(24))
    partner = (torch.arange(24)[:, None] // size * size + torch.arange(size)) - torch.arange(24)[:, None]
    others = torch.stack([partner[i][partner[i] != 0] % 24 for i in range(24)])
    negatives = torch.stack([scores[:, others[:, k], torch.arange(24)] for k in range(size - 1)], 1)
    expected = torch.autograd.grad(-objective(method, scores[:, 0], negatives).sum(), list(critic.parameters()))
    _backward(critic, x, y, method)
    for parameter, gradient in zip(critic.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-9, rtol=1e-7)


def test_narrow_products_err_as_their_format_does(monkeypatch) -> None:
    monkeypatch.setattr(networks, "narrow_is_fast", lambda: False)
    net = Mlp(2, [3, 32, 32, 4], torch.Generator().manual_seed(0), 1.0, smooth=True)
    h = torch.randn(2, 200, 3, generator=torch.Generator().manual_seed(1))
    wide = net(h)
    monkeypatch.setattr(networks, "narrow_is_fast", lambda: True)
    narrow = net(h)
    assert narrow.dtype == torch.float32
    assert not torch.equal(narrow, wide)
    assert (narrow - wide).norm() < 2**-7 * wide.norm()
    torch.testing.assert_close(net.double()(h.double()), wide.double(), atol=1e-5, rtol=1e-4)  # never narrowed


def test_levels_share_their_moments() -> None:
    """Each level's fit is the one of its own columns alone."""
    z = [side.float() for side in sample("spiral 3×3", 2000)]
    z = [modulated(side, radial(side, torch.tensor(1.0), torch.tensor(0.8)), 2) for side in z]
    for level, found in enumerate(fit_gaussians(*z, 2)):
        width = 3 * (level + 1)
        alone = fit_gaussians(*(side[:, :width] for side in z), 0)[0]
        torch.testing.assert_close(found.w, alone.w)
        torch.testing.assert_close(found.a.abs(), alone.a.abs(), atol=1e-5, rtol=1e-4)
        assert found.level == level


def test_the_climb_over_temperatures_finds_the_best_of_all() -> None:
    g = torch.Generator().manual_seed(4)
    for scale in (0.3, 1.0, 3.0):
        e = Embedded(*(scale * torch.randn(*shape, generator=g) for shape in ((90, 2), (90,), (90, 2), (90,))))
        values = [read_bound(stream_blocks(e, Bent(t, 2 * t)))[0] for t in TEMPERATURES]
        assert climb((value,) for value in values)[0] == pytest.approx(max(values), abs=1e-6)


def test_all_rows_of_a_fold_are_read_in_blocks() -> None:
    x, y = sample("2-pair 3×3", 1210)
    recipe = Recipe(folds=2, steps=60)
    whole, parted = (fit(x, y, r) for r in (recipe, replace(recipe, held_out=160)))
    assert len(whole.held) == 2
    assert [len(held.pos) for held in parted.held] == [152] * 2 + [151] * 6
    for run in range(2):
        one, many = whole.held[run].pos, torch.cat([held.pos for held in parted.held[run::2]])
        torch.testing.assert_close(many, one, atol=1e-4, rtol=1e-4)  # the critic, cut and temperature are the same
    values = [sum(read_bound(held)[0] for held in f.held) / len(f.held) for f in (whole, parted)]
    assert values[1] == pytest.approx(values[0], abs=0.05)
