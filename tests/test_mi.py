"""Tasks, critics and the staircase."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch

from mlcpc.bounds import ceiling
from mlcpc.mi.by_hand import JointPass, carriers, estimates_and_gradients
from mlcpc.mi.critics import Joint, Separable
from mlcpc.mi.staircase import Staircase, climb
from mlcpc.mi.tasks import correlated_gaussian, correlation
from mlcpc.objectives import OBJECTIVES
from mlcpc.scores import in_batch

METHODS = [(name, alpha) for name in ("cpc", "ml_cpc") for alpha in (1.0, 0.1, 1e-4)]
ALPHA = torch.tensor([alpha for _, alpha in METHODS], dtype=torch.float64)
IS_CPC = torch.tensor([name == "cpc" for name, _ in METHODS])


def slow_joint(critic: Joint, run: int, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The concatenated pairs, one after the other, through the layers as the paper writes them."""
    first = torch.cat([critic.of_x[run], critic.of_y[run]])
    rows = []
    for one in x:
        pairs = torch.stack([torch.cat([one, other]) for other in y])
        h1 = (pairs @ first + critic.bias1[run]).relu()
        h2 = (h1 @ critic.weight2[run] + critic.bias2[run]).relu()
        rows.append((h2 @ critic.weight3[run] + critic.bias3[run]).squeeze(1))
    return torch.stack(rows)


def joint_and_batch(n: int = 12) -> tuple[Joint, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    critic = Joint(len(METHODS), 5, 16, generator).double()
    x, y = correlated_gaussian(n, 5, 0.9, generator)
    return critic, 3 * x.double(), 3 * y.double()


def slow_step(critic: Joint, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Estimates and gradients by autograd through the library's objectives."""
    losses = [OBJECTIVES[name](in_batch(slow_joint(critic, i, x, y)), a) for i, (name, a) in enumerate(METHODS)]
    gradients = torch.autograd.grad(sum(losses), list(critic.parameters()))
    tops = [ceiling(len(x), alpha) for _, alpha in METHODS]
    return torch.tensor([top - loss.item() for top, loss in zip(tops, losses, strict=True)], dtype=x.dtype), [
        *gradients
    ]


@pytest.mark.parametrize("mi", [0.0, 0.5, 2, 10])
def test_correlation_inverts_the_information(mi: float) -> None:
    assert -20 / 2 * math.log1p(-(correlation(mi, 20) ** 2)) == pytest.approx(mi, rel=1e-12, abs=1e-12)


def test_gaussian_has_its_correlation() -> None:
    x, y = correlated_gaussian(50_000, 3, 0.6, torch.Generator().manual_seed(0))
    moments = torch.corrcoef(torch.cat([x, y], 1).T)
    expected = torch.eye(6) + torch.diag(torch.full((3,), 0.6), 3) + torch.diag(torch.full((3,), 0.6), -3)
    torch.testing.assert_close(moments, expected, atol=0.02, rtol=0)


@pytest.mark.parametrize("layers", [2, 3])
def test_batched_critics_are_independent_networks(layers: int) -> None:
    generator = torch.Generator().manual_seed(0)
    critic = Separable(runs=3, dim=4, hidden=8, embedding=5, generator=generator, layers=layers)
    x, y = torch.randn(6, 4), torch.randn(6, 4)
    scores = critic(x, y)

    def single(mlp, run: int, h):
        for layer in range(layers + 1):
            h = (h.relu() if layer else h) @ mlp.weights[layer][run] + mlp.biases[layer][run]
        return h

    for run in range(3):
        torch.testing.assert_close(scores[run], single(critic.f, run, x) @ single(critic.h, run, y).T)
    scores[1].sum().backward()
    for weight in critic.parameters():
        assert weight.grad is not None
        assert weight.grad[1].abs().sum() > 0
        assert weight.grad[[0, 2]].abs().sum() == 0


def test_joint_critic_is_an_mlp_on_every_concatenated_pair() -> None:
    critic, x, y = joint_and_batch()
    expected = torch.stack([slow_joint(critic, run, x, y) for run in range(len(METHODS))])
    torch.testing.assert_close(critic(x, y), expected, atol=1e-12, rtol=1e-12)


def test_estimates_and_gradients_are_the_objectives() -> None:
    for scale in (1.0, 30.0):
        scores = (scale * torch.randn(len(METHODS), 9, 9, dtype=torch.float64)).requires_grad_()
        losses = [OBJECTIVES[name](in_batch(s), alpha) for s, (name, alpha) in zip(scores, METHODS, strict=True)]
        (expected,) = torch.autograd.grad(sum(losses), scores)
        estimates, gradients = estimates_and_gradients(scores.detach(), ALPHA, IS_CPC)
        tops = torch.tensor([ceiling(9, alpha) for _, alpha in METHODS], dtype=torch.float64)
        torch.testing.assert_close(estimates, tops - torch.stack(losses).detach(), atol=1e-10, rtol=1e-10)
        torch.testing.assert_close(gradients, expected, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("neglect", [0.0, 1e-13])
def test_joint_pass_equals_autograd(neglect: float) -> None:
    critic, x, y = joint_and_batch()
    estimates, expected = slow_step(critic, x, y)
    by_hand = JointPass(critic, len(x), torch.float64, neglect)
    for _ in range(2):  # buffers of an earlier batch must not show
        torch.testing.assert_close(by_hand(x, y, ALPHA, IS_CPC), estimates, atol=1e-10, rtol=1e-10)
        for parameter, gradient in zip(critic.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, atol=1e-10, rtol=1e-10)
        by_hand(y, x, ALPHA, IS_CPC)


def test_joint_pass_in_bfloat16_is_near() -> None:
    critic, x, y = joint_and_batch(64)
    estimates, expected = slow_step(critic, x, y)
    by_hand = JointPass(critic.float(), len(x), torch.bfloat16, 2**-9)
    near = by_hand(x.float(), y.float(), ALPHA.float(), IS_CPC).double()
    torch.testing.assert_close(near, estimates, atol=0.01, rtol=0)
    for (name, parameter), gradient in zip(critic.named_parameters(), expected, strict=True):
        error = (parameter.grad.double() - gradient).flatten(1).norm(dim=1) / gradient.flatten(1).norm(dim=1)
        if name != "bias3":  # softmax − label sums to 0; before training the other gradients nearly cancel too
            assert error.max() < 0.1, name
            assert error.median() < 0.01, name


def test_what_is_neglected_weighs_no_more_than_its_share() -> None:
    gradient = torch.randn(4000, dtype=torch.float64) * torch.logspace(-12, 0, 4000, dtype=torch.float64)
    for neglect in (1e-6, 1e-3, 0.05):
        kept = carriers(gradient, neglect)
        assert kept is not None
        lost = gradient.abs().sum() - gradient[kept].abs().sum()
        assert 0 < lost <= neglect * gradient.abs().sum()
        assert len(kept) < 0.9 * len(gradient)
    assert carriers(gradient, 0.0) is None
    assert carriers(torch.zeros(9), 0.01) is None
    assert carriers(torch.ones(9), 0.01) is None


SMALL = {
    "methods": METHODS[::2],
    "levels": (2.0, 6.0),
    "steps": 12,
    "hidden": 16,
    "batch": 16,
    "embedding": 8,
    "dim": 5,
}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("stop", [0.02, 0.06, 0.3, 0.9])
def test_an_interrupted_climb_ends_where_it_would_have_ended(precision: str, stop: float, tmp_path: Path) -> None:
    config = Staircase(critics=("separable", "joint"), precision=precision, neglect=0.01, **SMALL)

    def interrupt(done: float) -> None:
        if done > stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        climb(config, interrupt, tmp_path, every=5)
    climb(config, lambda _: None, tmp_path, every=5)
    resumed, ticks = climb(config, lambda done: pytest.fail("trained again"), tmp_path, every=5), []
    assert resumed["methods"] == climb(config, ticks.append)["methods"]
    assert len(ticks) == 48
    assert ticks == sorted(ticks)
    assert ticks[-1] == 1
    climb(config, lambda _: None, tmp_path / "whole", every=24)
    for critic in config.critics:
        one, other = (torch.load(folder / f"{critic}.pt")["curves"] for folder in (tmp_path, tmp_path / "whole"))
        assert one.equal(other)


def test_a_spoilt_checkpoint_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "separable.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"separable.pt cannot be resumed .*: delete it to start over"):
        climb(Staircase(**SMALL), folder=tmp_path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"critics": ("bilinear",)}, "critic is 'bilinear'"),
        ({"precision": "float8"}, "precision is 'float8'"),
        ({"neglect": 0.5}, "neglect is 0.5"),
    ],
)
def test_bad_configs_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Staircase(**wrong)


@pytest.mark.slow
def test_bfloat16_and_neglect_climb_as_float32_does() -> None:
    """The fast settings move a plateau by no more than another seed does; all of the paper's methods, a smaller net."""
    shape = {"critics": ("joint",), "levels": (2.0, 4.0, 6.0), "steps": 500, "hidden": 64, "batch": 64}

    def plateaus(**settings) -> torch.Tensor:
        return torch.tensor([m["plateau_mean"] for m in climb(Staircase(**shape, **settings))["methods"]])

    exact, other_seed = plateaus(), plateaus(seed=1)
    fast = plateaus(precision="bfloat16", neglect=2**-9)
    by_chance = (other_seed - exact).square().mean().sqrt()
    assert (fast - exact).square().mean().sqrt() < 1.5 * by_chance
    assert (fast - exact).mean().abs() < by_chance  # no bias either


def test_the_published_way_that_the_benchmark_times_is_the_same_computation() -> None:
    path = Path(__file__).parent.parent / "benchmarks" / "figure3.py"
    spec = importlib.util.spec_from_file_location("benchmark_figure3", path)
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    theirs = benchmark.PublishedJoint()
    ours = Joint(1, benchmark.DIM, benchmark.HIDDEN, torch.Generator())
    first, second, third = (layer for layer in theirs.net if isinstance(layer, torch.nn.Linear))
    with torch.no_grad():
        ours.of_x[0], ours.of_y[0] = first.weight.T[: benchmark.DIM], first.weight.T[benchmark.DIM :]
        ours.weight2[0], ours.weight3[0] = second.weight.T, third.weight.T
        ours.bias1[0], ours.bias2[0], ours.bias3[0] = first.bias, second.bias, third.bias
        x, y = torch.randn(2, benchmark.N, benchmark.DIM)
        torch.testing.assert_close(theirs(x, y), ours(x, y)[0])
    scores = torch.randn(7, 7, dtype=torch.float64)
    for name, alpha in METHODS:
        value = benchmark.published_objective(scores, name, alpha).item()
        assert value == pytest.approx(ceiling(7, alpha) - OBJECTIVES[name](in_batch(scores), alpha).item(), abs=1e-6)


def test_training_side_by_side_changes_nothing() -> None:
    """Two methods in one program against a program of one, on the same batches and the same initial weights."""
    torch.manual_seed(0)
    small = {"levels": (2.0,), "steps": 30, "hidden": 16, "batch": 32, "embedding": 8}
    twice = climb(Staircase(methods=(("ml_cpc", 1.0), ("ml_cpc", 1.0)), **small))["methods"]
    assert twice[0]["curve"] != twice[1]["curve"]  # weights of their own
    again = climb(Staircase(methods=(("ml_cpc", 1.0), ("ml_cpc", 1.0)), **small))["methods"]
    assert twice == again  # a seed is a result


@pytest.mark.slow
def test_cpc_stops_at_log_m_and_ml_cpc_does_not() -> None:
    methods = (("cpc", 1.0), ("ml_cpc", 0.01))
    cpc, ml_cpc = climb(Staircase(methods=methods, levels=(4.0, 10.0), steps=1500))["methods"]
    assert max(cpc["curve"]) <= math.log(128)
    assert math.log(128) < ml_cpc["plateau_mean"][-1] < 10


def test_negative_information_is_refused() -> None:
    with pytest.raises(ValueError, match="mi is -1"):
        correlation(-1, 20)
