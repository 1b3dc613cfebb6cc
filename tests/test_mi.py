"""Tasks, critics and the staircase."""

import math

import pytest
import torch

from mlcpc.mi.critics import Separable
from mlcpc.mi.staircase import Staircase, climb
from mlcpc.mi.tasks import correlated_gaussian, correlation


@pytest.mark.parametrize("mi", [0.0, 0.5, 2, 10])
def test_correlation_inverts_the_information(mi: float) -> None:
    assert -20 / 2 * math.log1p(-(correlation(mi, 20) ** 2)) == pytest.approx(mi, rel=1e-12, abs=1e-12)


def test_gaussian_has_its_correlation() -> None:
    x, y = correlated_gaussian(50_000, 3, 0.6, torch.Generator().manual_seed(0))
    moments = torch.corrcoef(torch.cat([x, y], 1).T)
    expected = torch.eye(6) + torch.diag(torch.full((3,), 0.6), 3) + torch.diag(torch.full((3,), 0.6), -3)
    torch.testing.assert_close(moments, expected, atol=0.02, rtol=0)


def test_batched_critics_are_independent_networks() -> None:
    critic = Separable(runs=3, dim=4, hidden=8, embedding=5, generator=torch.Generator().manual_seed(0))
    x, y = torch.randn(6, 4), torch.randn(6, 4)
    scores = critic(x, y)

    def single(mlp, run: int, h):
        for layer in range(3):
            h = (h.relu() if layer else h) @ mlp.weights[layer][run] + mlp.biases[layer][run]
        return h

    for run in range(3):
        torch.testing.assert_close(scores[run], single(critic.f, run, x) @ single(critic.h, run, y).T)
    scores[1].sum().backward()
    for weight in critic.parameters():
        assert weight.grad is not None
        assert weight.grad[1].abs().sum() > 0
        assert weight.grad[[0, 2]].abs().sum() == 0


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
