"""The tiled engine on a GPU, where there is one: `python tests/test_gpu.py` or pytest."""

import copy
import itertools
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from mlcpc import ContrastiveLoss, Queue, contrastive_loss, models
from mlcpc.data import Batch
from mlcpc.plan import Progress
from mlcpc.pretrain.moco import MoCo, Settings
from mlcpc.queues import MemoryBank
from mlcpc.ranks import Ranks
from mlcpc.replay import Replay

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
    pytest.mark.filterwarnings("ignore::mlcpc.GuaranteeWarning"),
]
N, D = 3000, 64
SOURCES = [
    "in-batch",
    "symmetric",
    "two-view",
    "ids",
    "queue",
    "queue and in-batch",
    "learnt",
    "bank",
    "each",
    "labels",
]


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def arguments(source: str) -> dict[str, Any]:
    ids = torch.arange(N) % 1000
    return {
        "in-batch": {},
        "symmetric": {"layout": "symmetric"},
        "two-view": {"layout": "two-view"},
        "ids": {"ids": ids},
        "queue": {"negatives": draw(5000, D, seed=3)},
        "queue and in-batch": {"negatives": draw(5000, D, seed=3), "in_batch": True},
        "learnt": {"negatives": draw(500, D, seed=3).requires_grad_()},
        "bank": {"negatives": draw(5000, D, seed=3), "indices": torch.arange(N * 40).view(N, 40) % 5000},
        "each": {"negatives": draw(N, 20, D, seed=3)},
        "labels": {"labels": ids},
    }[source]


def moved(x: Any, dtype: torch.dtype, device: str) -> Any:
    if not isinstance(x, Tensor):
        return x
    kept = x.detach().to(device, dtype if x.is_floating_point() else x.dtype)
    return kept.requires_grad_() if x.requires_grad else kept


@pytest.mark.parametrize("objective", ["cpc", "ml_cpc"])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("dtype", "limit"), [(torch.float64, 1e-9), (torch.float32, 2e-4), (torch.bfloat16, 2e-2), (torch.float16, 2e-2)]
)
def test_equals_plain_autograd_in_float64(source: str, objective: str, dtype: torch.dtype, limit: float) -> None:
    for temperature in (0.07, 0.01):
        queries = F.normalize(draw(N, D, seed=1), dim=1).requires_grad_()
        keys = F.normalize(queries.detach() + 0.1 * draw(N, D, seed=2), dim=1).requires_grad_()
        more = arguments(source)
        results = []
        for kind, engine in ((dtype, "tiled"), (torch.float64, "dense")):
            q, k = (moved(moved(x, dtype, "cuda"), kind, "cuda") for x in (queries, keys))
            extra = {name: moved(moved(x, dtype, "cuda"), kind, "cuda") for name, x in more.items()}
            value = contrastive_loss(
                q, k, objective=objective, alpha=0.3, temperature=temperature, engine=engine, **extra
            )
            loud = 2**14 if dtype == torch.float16 else 1  # as a GradScaler would: fp16 gradients underflow below 6e-8
            results.append((value, [g.double() / loud for g in torch.autograd.grad(value * loud, [q, k])]))
        (ours, ours_grads), (exact, exact_grads) = results
        # At τ = 0.01 a bf16 logit is rounded by up to half a bit, whoever makes it.
        scale = 1 if temperature == 0.07 else 20 if dtype == torch.bfloat16 else 5
        assert abs(ours.item() - exact.item()) <= scale * limit * max(1.0, abs(exact.item()))
        for got, wanted in zip(ours_grads, exact_grads, strict=True):
            if dtype == torch.float16 and wanted.norm() < 1e-4:
                continue  # even scaled, such a gradient is below what fp16 can hold
            error = (got - wanted).norm() / wanted.norm()
            assert error <= scale * limit, (source, objective, dtype, temperature, error.item())


def test_modules_move_and_mixed_precision_trains() -> None:
    loss = ContrastiveLoss("ml_cpc", alpha=0.2, learn_temperature=True).cuda()
    queue, bank = Queue(256, D).cuda(), MemoryBank(100, D).cuda()
    net = torch.nn.Linear(D, D).cuda()
    optimizer = torch.optim.Adam([*net.parameters(), *loss.parameters()], lr=1e-2)
    x = torch.randn(64, D, device="cuda")
    queue.update(torch.randn(200, D, device="cuda"))
    bank.update(torch.arange(64, device="cuda"), x)
    history = []
    for _ in range(30):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            value = loss(net(x), x, queue.keys())
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        history.append(value.item())
    assert history[-1] < history[0]


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_replayed_network_learns_as_it_is_written(pieces: int) -> None:
    """Whole batches, batches in pieces whose gradients add up, and a last batch of another size."""
    torch.manual_seed(0)
    written = models.placed(models.build("resnet8", 10), "cuda").train()
    recorded = copy.deepcopy(written)
    replay = Replay(recorded, recorded.both)
    images, labels = torch.randn(5, 32, 3, 32, 32, device="cuda"), torch.arange(32, device="cuda") % 10
    for net, run in ((written, written.both), (recorded, replay)):
        optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
        for step, some in enumerate(images):
            optimizer.zero_grad()
            some = some if step < 4 else some[:20]
            for x, y in zip(some.chunk(pieces), labels[: len(some)].chunk(pieces), strict=True):
                x = x.contiguous(memory_format=torch.channels_last)
                (F.cross_entropy(run(x)[1], y) / pieces).backward()
            optimizer.step()
    assert replay.replay is not None
    for a, b in zip(written.state_dict().values(), recorded.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_replayed_moco_learns_as_it_is_written(symmetric: bool) -> None:
    """Queries are recorded forward and backward, keys forward; the classifier behind the features stays out of it."""
    settings = Settings(dim=16, queue=64, shuffle=False, symmetric=symmetric)
    images = torch.randn(5, 32, 2, 3, 32, 32, device="cuda")
    learners = []
    for recorded in (False, True):
        torch.manual_seed(0)
        net = models.placed(models.build("resnet8", 10), "cuda")
        learner = MoCo(net, torch.zeros(2, 3, 32, 32), settings, Ranks("cuda"))
        if not recorded:
            for replay in learner.embedding.values():
                replay.record = lambda images: None  # type: ignore[method-assign]
        for step, some in enumerate(images):
            batch, at = Batch(some, torch.zeros(32), torch.arange(32, device="cuda")), Progress(0, step, 1, 5)
            learner.optimizer.zero_grad()
            learner.loss(batch, at)[0].backward()
            learner.optimizer.step()
            learner.after_step(batch, at)
        learners.append(learner)
    assert (learners[1].embedding[""].replay is None) == symmetric
    assert learners[1].embedding["key_"].replay is not None
    for a, b in zip(*(learner.parts.state_dict().values() for learner in learners), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=5e-3)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    cases = [(torch.float64, 1e-9), (torch.float32, 2e-4), (torch.bfloat16, 2e-2), (torch.float16, 2e-2)]
    failures = 0
    for source, objective, (dtype, limit) in itertools.product(SOURCES, ["cpc", "ml_cpc"], cases):
        try:
            test_equals_plain_autograd_in_float64(source, objective, dtype, limit)
        except AssertionError as error:
            failures += 1
            print("FAILED", source, objective, dtype, str(error)[:200])
    test_modules_move_and_mixed_precision_trains()
    for pieces in (1, 2):
        test_a_replayed_network_learns_as_it_is_written(pieces)
    for symmetric in (False, True):
        test_a_replayed_moco_learns_as_it_is_written(symmetric)
    print(f"{len(SOURCES) * 2 * len(cases) + 5 - failures} passed, {failures} failed")
