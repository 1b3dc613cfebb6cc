"""ContrastiveLoss against the twins, on embeddings."""

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

import reference
from mlcpc import ContrastiveLoss, ceiling

pytestmark = pytest.mark.filterwarnings("ignore::mlcpc.GuaranteeWarning")


def embeddings(n: int = 6, d: int = 5, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(n, d, generator=g, dtype=torch.float64, requires_grad=True) for _ in range(2))


@pytest.mark.parametrize("objective", ["cpc", "ml_cpc"])
@pytest.mark.parametrize("source", ["in-batch", "shared", "per anchor"])
def test_equals_the_twin(objective: str, source: str) -> None:
    queries, keys = embeddings()
    negatives = {"in-batch": None, "shared": torch.randn(9, 5), "per anchor": torch.randn(6, 4, 5)}[source]
    negatives = None if negatives is None else negatives.double()
    value = ContrastiveLoss(objective, alpha=0.3, temperature=0.2)(queries, keys, negatives)
    q, k = F.normalize(queries, dim=1), F.normalize(keys, dim=1)
    if negatives is None:
        neg = torch.stack([torch.stack([q[i] @ k[j] for j in range(6) if j != i]) for i in range(6)])
    else:
        rows = (
            F.normalize(negatives, dim=-1).expand(6, -1, -1) if negatives.ndim == 2 else F.normalize(negatives, dim=-1)
        )
        neg = torch.stack([rows[i] @ q[i] for i in range(6)])
    slow = ceiling(neg.shape[1] + 1, 0.3) - reference.OBJECTIVES[objective]((q * k).sum(1) / 0.2, neg / 0.2, 0.3)
    assert value.item() == pytest.approx(slow.item(), rel=1e-10)
    ours, theirs = torch.autograd.grad(value, [queries, keys]), torch.autograd.grad(slow, [queries, keys])
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_is_infonce_in_one_line() -> None:
    queries, keys = embeddings()
    logits = F.normalize(queries, dim=1) @ F.normalize(keys, dim=1).T / 0.07
    torch.testing.assert_close(ContrastiveLoss("cpc")(queries, keys), F.cross_entropy(logits, torch.arange(6)))


def test_a_schedule_needs_progress() -> None:
    loss = ContrastiveLoss(alpha="2:0.5", temperature=1.0)
    with pytest.raises(ValueError, match=r"schedule from 2 to 0.5: set loss.progress"):
        loss(*embeddings())
    loss.progress = 1.0
    torch.testing.assert_close(loss(*embeddings()), ContrastiveLoss(alpha=0.5, temperature=1.0)(*embeddings()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_no_overflow_at_a_small_temperature(dtype: torch.dtype) -> None:
    queries, keys = (x.detach().to(dtype).requires_grad_() for x in embeddings(32, 8))
    value = ContrastiveLoss(alpha=0.1, temperature=0.01)(queries, keys)
    value.backward()
    assert value.isfinite()
    assert queries.grad.isfinite().all()


BAD = {
    "temperature": (lambda: ContrastiveLoss(temperature=0.0), ValueError, "temperature is 0.0"),
    "objective": (lambda: ContrastiveLoss("infonce"), ValueError, "'infonce'"),
    "lengths": (lambda: ContrastiveLoss()(torch.zeros(3, 2), torch.zeros(4, 2)), ValueError, r"\(3, 2\).*\(4, 2\)"),
    "dims": (
        lambda: ContrastiveLoss()(torch.zeros(3, 2), torch.zeros(3, 2), torch.zeros(5, 3)),
        ValueError,
        r"\(5, 3\)",
    ),
    "integers": (lambda: ContrastiveLoss()(torch.zeros(3, 2).long(), torch.zeros(3, 2)), TypeError, "queries.float"),
    "NaN": (lambda: ContrastiveLoss()(torch.full((3, 2), torch.nan), torch.ones(3, 2)), ValueError, "nan"),
}


@pytest.mark.parametrize(("call", "error", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()
