"""Every fast path against its twin, and what the theory says of the values."""

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from cases import CASES, Case
from mlcpc import (
    GuaranteeWarning,
    Scores,
    alpha_min,
    ceiling,
    cpc,
    from_logits,
    geometric,
    in_batch,
    loss,
    ml_cpc,
    paired,
)
from mlcpc.objectives import OBJECTIVES

FAST = {"cpc": cpc, "ml_cpc": ml_cpc}
pytestmark = pytest.mark.filterwarnings("ignore::mlcpc.GuaranteeWarning")


def gradients(value, *inputs):
    return torch.autograd.grad(value, inputs)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_equals_the_paper_in_value_and_gradient(case: Case, objective: str) -> None:
    pos, neg = case.pos.clone().requires_grad_(), case.neg.clone().requires_grad_()
    fast = FAST[objective](paired(pos, neg), case.alpha)
    slow = reference.OBJECTIVES[objective](pos, neg, case.alpha)
    assert fast.item() == pytest.approx(slow.item(), rel=1e-10, abs=1e-10)
    for ours, theirs in zip(gradients(fast, pos, neg), gradients(slow, pos, neg), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_three_ways_to_the_same_scores(case: Case) -> None:
    expected = paired(case.pos, case.neg)
    logits = from_logits(torch.cat([case.pos[:, None], case.neg], 1))
    torch.testing.assert_close((logits.pos, logits.neg_lse), (expected.pos, expected.neg_lse), rtol=0, atol=0)
    square = torch.randn(5, 5, dtype=torch.float64)
    rows = torch.stack([torch.cat([square[i, :i], square[i, i + 1 :]]) for i in range(5)])
    ours, explicit = in_batch(square), paired(square.diagonal(), rows)
    torch.testing.assert_close((ours.pos, ours.neg_lse), (explicit.pos, explicit.neg_lse))
    assert ours.m == explicit.m == 5


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_loss_is_the_distance_to_the_ceiling(case: Case, objective: str) -> None:
    s = paired(case.pos, case.neg)
    value = loss(s, objective, case.alpha)
    assert value.item() >= 0
    assert (ceiling(s.m, case.alpha) - value).item() == pytest.approx(FAST[objective](s, case.alpha).item(), rel=1e-12)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_loss_of_ml_cpc_is_the_kl_divergence_of_appendix_b(case: Case) -> None:
    ours = loss(paired(case.pos, case.neg), "ml_cpc", case.alpha).item()
    assert ours == pytest.approx(reference.appendix_b(case.pos, case.neg, case.alpha).item(), rel=1e-10, abs=1e-10)


def test_cpc_at_alpha_one_is_cross_entropy() -> None:
    scores = torch.randn(7, 7, dtype=torch.float64)
    expected = torch.nn.functional.cross_entropy(scores, torch.arange(7))
    torch.testing.assert_close(loss(in_batch(scores), "cpc"), expected)


sizes = st.integers(1, 5)
scores = st.floats(-50, 50)


@settings(max_examples=300, deadline=None)
@given(st.data(), sizes, st.integers(2, 6), st.floats(0.01, 0.99), st.sampled_from([torch.float32, torch.float64]))
def test_properties(data, n, m, share, dtype) -> None:
    numbers = data.draw(st.lists(scores, min_size=n * m, max_size=n * m))
    logits = torch.tensor(numbers, dtype=dtype).view(n, m)
    s, alpha = from_logits(logits), share * m
    tolerance = 1e-4 if dtype == torch.float32 else 1e-11
    values = {name: objective(s, alpha).item() for name, objective in FAST.items()}
    for name in FAST:
        assert loss(s, name, alpha).item() >= 0
        assert values[name] <= ceiling(m, alpha) + tolerance / 100
    assert values["ml_cpc"] <= values["cpc"] + tolerance  # Jensen
    row_shift = torch.randn(n, 1, dtype=dtype)
    assert cpc(from_logits(logits + row_shift), alpha).item() == pytest.approx(values["cpc"], abs=tolerance)
    assert ml_cpc(from_logits(logits + 3), alpha).item() == pytest.approx(values["ml_cpc"], abs=tolerance)


def test_a_shift_per_row_changes_ml_cpc() -> None:
    logits = torch.randn(4, 6, dtype=torch.float64)
    shifted = logits + 3 * torch.arange(4.0)[:, None]
    assert abs(ml_cpc(from_logits(logits)).item() - ml_cpc(from_logits(shifted)).item()) > 0.1


@pytest.mark.parametrize("alpha", [0.05, 1.0, 2.5])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gradcheck_and_gradgradcheck(objective: str, alpha: float) -> None:
    scores = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)
    value = lambda x: loss(in_batch(x), objective, alpha)  # noqa: E731
    assert torch.autograd.gradcheck(value, scores)
    assert torch.autograd.gradgradcheck(value, scores)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_half_precision_is_accumulated_in_float32(dtype: torch.dtype, objective: str) -> None:
    scores = (torch.randn(64, 64) * 3).to(dtype).requires_grad_()
    value = loss(in_batch(scores), objective, 0.1)
    assert value.dtype == torch.float32
    expected = loss(in_batch(scores.detach().double()), objective, 0.1)
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    value.backward()
    assert scores.grad is not None
    assert scores.grad.dtype == dtype


def test_rows_may_differ_in_their_number_of_negatives() -> None:
    """A masked negative is a −inf that is not counted: L averages log m_i, J has the mean m."""
    pos, neg = CASES[0].pos, CASES[0].neg.clone()
    neg[0, 2:] = -math.inf
    m = torch.tensor([3, 6, 6, 6])
    s = Scores(pos, neg.logsumexp(1), m)
    each = [reference.l_alpha(pos[i : i + 1], neg[i : i + 1, : int(m[i]) - 1], 0.5).item() for i in range(4)]
    assert cpc(s, 0.5).item() == pytest.approx(sum(each) / 4, rel=1e-12)
    mean_m = 21 / 4
    z = 0.5 * pos.exp().sum() + (mean_m - 0.5) / (mean_m - 1) * neg.exp().sum()
    assert ml_cpc(s, 0.5).item() == pytest.approx((pos.mean() - z.log() + math.log(4 * mean_m)).item(), rel=1e-12)


def test_the_guarantee_is_said_once_however_alpha_moves() -> None:
    s = in_batch(torch.randn(8, 8))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for step in range(50):
            loss(in_batch(torch.randn(8 + step, 8 + step)), "ml_cpc", 0.001 + step / 10000)
    assert [w.category for w in caught] == [GuaranteeWarning]
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(s, "ml_cpc", alpha_min(8, 8))
        cpc(s, 4.0)
        loss(in_batch(torch.randn(20, 20)), "ml_cpc", geometric(10, 0.1)(0))  # 10.000000000000007


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_float32_keeps_its_digits(objective: str) -> None:
    """A common level of 1e4, all positives equal, odds between 20 and 50: where careless forms lose them."""
    for pos in (torch.randn(64) + 1e4, torch.full((7,), 1e6 + 0.1), torch.full((9,), 3.3)):
        neg = pos[:, None] + torch.randn(len(pos), 5) - 2
        got = loss(paired(pos, neg), objective, 0.5).item()
        wanted = loss(paired(pos.double(), neg.double()), objective, 0.5).item()
        assert got == pytest.approx(wanted, abs=1e-6 + 1.5e-7 * float(pos.max()))  # one rounding of the inputs' level
        assert got >= 0
    steep = paired(torch.zeros(3, dtype=torch.float64), torch.full((3, 1), 21.0, dtype=torch.float64))
    exact = math.log1p(math.exp(-21.0)) + 21
    assert loss(steep, objective).item() == pytest.approx(exact, rel=1e-13)


def test_equal_positives_never_give_a_negative_loss() -> None:
    for value in torch.linspace(-9, 9, 200):
        for n in (3, 5, 7):
            s = paired(value.expand(n), (value - 80).expand(n, 2))
            assert loss(s, "ml_cpc", 1.0).item() >= 0


def test_mixed_formats_meet_in_the_wider() -> None:
    s = paired(torch.zeros(2), torch.zeros(2, 3, dtype=torch.float64))
    assert s.pos.dtype == s.neg_lse.dtype == torch.float64


NAN, INF = math.nan, math.inf
BAD = {
    "not square": (lambda: in_batch(torch.zeros(3, 4)), ValueError, r"\(3, 4\).*square.*from_logits"),
    "one pair in batch": (lambda: in_batch(torch.zeros(1, 1)), ValueError, "no in-batch negatives"),
    "NaN score": (lambda: in_batch(torch.full((2, 2), NAN)), ValueError, "positive score of row 0 is nan"),
    "NaN negative": (
        lambda: paired(torch.zeros(2), torch.tensor([[0.0], [NAN]])),
        ValueError,
        "negative score of row 1",
    ),
    "+inf positive": (lambda: paired(torch.tensor([INF]), torch.zeros(1, 1)), ValueError, "row 0 is inf"),
    "+inf negative": (lambda: paired(torch.zeros(1), torch.full((1, 1), INF)), ValueError, "row 0 is inf"),
    "no negatives": (
        lambda: paired(torch.zeros(2), torch.zeros(2, 0)),
        ValueError,
        "no columns.*at least one negative",
    ),
    "one column": (lambda: from_logits(torch.zeros(2, 1)), ValueError, "at least one negative"),
    "no columns at all": (lambda: from_logits(torch.zeros(2, 0)), ValueError, r"\(2, 0\).*column 0"),
    "n = 0": (lambda: paired(torch.zeros(0), torch.zeros(0, 3)), ValueError, "empty.*n = 0"),
    "lengths": (lambda: paired(torch.zeros(2), torch.zeros(3, 3)), ValueError, r"\(2,\).*\(3, 3\)"),
    "lengths in Scores": (lambda: Scores(torch.zeros(2), torch.zeros(3), 4), ValueError, "2 entries and neg_lse 3"),
    "m = 1": (lambda: Scores(torch.zeros(2), torch.zeros(2), 1), ValueError, "m is 1.*no negatives"),
    "a matrix of positives": (lambda: Scores(torch.zeros(2, 2), torch.zeros(2, 2), 3), ValueError, r"must be \(n,\)"),
    "integers": (lambda: in_batch(torch.zeros(2, 2, dtype=torch.long)), TypeError, r"int64.*scores\.float\(\)"),
    "devices": (
        lambda: paired(torch.zeros(2), torch.zeros(2, 2, device="meta")),
        ValueError,
        "pos on cpu, neg on meta.*to\\(device\\)",
    ),
    "alpha = 0": (lambda: cpc(in_batch(torch.zeros(2, 2)), 0.0), ValueError, "alpha is 0.0.*between 0 and m = 2"),
    "alpha = m": (lambda: loss(in_batch(torch.zeros(2, 2)), alpha=2.0), ValueError, "alpha is 2.0"),
    "alpha < 0": (lambda: ml_cpc(in_batch(torch.zeros(2, 2)), -1.0), ValueError, "alpha is -1.0"),
    "alpha NaN": (lambda: ml_cpc(in_batch(torch.zeros(2, 2)), NAN), ValueError, "alpha is nan"),
    "a list": (lambda: in_batch([[0.0]]), TypeError, "scores is a list.*as_tensor"),
    "a matrix for scores": (lambda: loss(torch.zeros(3, 3)), TypeError, "scores are a Tensor.*in_batch"),
    "alpha as text": (lambda: cpc(in_batch(torch.zeros(2, 2)), "0.5"), TypeError, "alpha is '0.5'"),
    "no objective": (lambda: loss(in_batch(torch.zeros(2, 2)), 0.5), ValueError, "objective is 0.5"),
    "-inf positive": (lambda: paired(torch.tensor([-INF]), torch.zeros(1, 1)), ValueError, "row 0 is -inf"),
    "sparse": (lambda: in_batch(torch.eye(2).to_sparse()), TypeError, "sparse"),
    "fractional m": (lambda: Scores(torch.zeros(2), torch.zeros(2), 2.5), TypeError, "m is 2.5"),
    "m per row": (lambda: Scores(torch.zeros(2), torch.zeros(2), torch.tensor([3, 1])), ValueError, "m of row 1 is 1"),
    "m of wrong length": (lambda: Scores(torch.zeros(2), torch.zeros(2), torch.tensor([3])), ValueError, r"\(1,\)"),
    "alpha above the smallest m": (
        lambda: cpc(Scores(torch.zeros(2), torch.zeros(2), torch.tensor([2, 9])), 3.0),
        ValueError,
        "m = 2",
    ),
    "objective": (lambda: loss(in_batch(torch.zeros(2, 2)), "nce"), ValueError, "'nce'.*'cpc', 'ml_cpc'"),
}


@pytest.mark.parametrize(("call", "error", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_clear_line(call, error, message) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
