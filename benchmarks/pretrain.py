"""MoCo's loss against the published way of computing it, and a whole step against the encoder's own work.

    python -m benchmarks.pretrain [--quick]      writes results/bench/pretrain.csv

loss   J_α forward and backward: n 256 queries, their keys, a queue of 65536. Published: a copy of the queue, logits
       (n, 1 + k) by concatenation, weights added by another one, KL divergence of their log-softmax from the labels.
       Values and gradients are asserted to agree. Half precision: products in bfloat16, for the published way as well.
step   loss, backward pass, optimiser, momentum encoder and queue, on 256 images; against the passes of the encoder
       and its head alone: queries forward and backward, keys forward.

One thread, medians of thread time; on a GPU, of wall time with a synchronisation.
"""

import contextlib
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from benchmarks.measure import medians, write
from mlcpc import models
from mlcpc.objectives import loss
from mlcpc.plan import Progress
from mlcpc.pretrain.moco import MoCo, Settings
from mlcpc.ranks import Ranks
from mlcpc.scores import Scores
from mlcpc.streaming import Pairs, row_lse

TAU, ALPHA = 0.07, 0.5
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Way = Callable[[], Any]


class Batch(NamedTuple):
    images: Tensor
    labels: Tensor
    indices: Tensor


def unit(n: int, d: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)), dim=1).to(DEVICE)


def precision(half: bool) -> Any:
    return torch.autocast(DEVICE.type, torch.bfloat16) if half else contextlib.nullcontext()


def losses(n: int, k: int, d: int) -> dict[str, Way]:
    """Each gives value and gradient of one batch."""
    q, keys, queue = unit(n, d, 1).requires_grad_(), unit(n, d, 2), unit(k, d, 3)
    keys = F.normalize(keys + q.detach() * 0.5, dim=1)  # positives that stand out, as in training
    columns = queue.T.contiguous()  # how the published code keeps it

    def published(half: bool) -> tuple[Tensor, Tensor]:
        with precision(half):
            pos = torch.einsum("nc,nc->n", q, keys)[:, None]
            neg = torch.einsum("nc,ck->nk", q, columns.clone().detach())
            logits = torch.cat([pos, neg], 1) / TAU
            weights = torch.tensor([ALPHA, (k + 1 - ALPHA) / k], device=DEVICE).log()
            logits = torch.cat([logits[:, :1] + weights[0], logits[:, 1:] + weights[1]], 1)
            labels = torch.zeros_like(logits)
            labels[:, 0] = 1 / n
            logs = F.log_softmax(logits.view(1, -1), 1)
            value = F.kl_div(logs, labels.view(1, -1), reduction="batchmean")
        return value.detach(), torch.autograd.grad(value, q)[0]

    def ours(half: bool) -> tuple[Tensor, Tensor]:
        pairs = Pairs(bound=1 / TAU, dtype=torch.bfloat16 if half else torch.float32)
        scaled = q / TAU
        value = loss(Scores(torch.linalg.vecdot(scaled, keys), row_lse(scaled, queue, pairs), k + 1), "ml_cpc", ALPHA)
        return value.detach(), torch.autograd.grad(value, q)[0]

    value, gradient = published(False)
    for half, most in ((False, 1e-4), (True, 2e-2)):
        found = ours(half)
        assert math.isclose(found[0].item(), value.item(), rel_tol=most)
        assert (found[1] - gradient).norm() <= most * gradient.norm()
    return {
        "published": lambda: published(False),
        "published, bfloat16 autocast": lambda: published(True),
        "mlcpc": lambda: ours(False),
        "mlcpc, bfloat16 products": lambda: ours(True),
    }


def steps(network: str, n: int, settings: Settings, half: bool) -> dict[str, Way]:
    """A whole step, and the passes that it cannot do without (on a GPU both are replayed recordings)."""
    net = models.build(network, 10).to(memory_format=torch.channels_last)
    moco = MoCo(net, torch.randn(2, 3, 32, 32), settings, Ranks(str(DEVICE)))
    batch = Batch(torch.randn(n, 2, 3, 32, 32, device=DEVICE), torch.zeros(n).long(), torch.arange(n, device=DEVICE))
    at = Progress(0, 0, 10, 100)
    parts = moco.parts
    upstream = torch.randn(n, settings.dim, device=DEVICE)

    def whole() -> None:
        moco.optimizer.zero_grad(set_to_none=True)
        with precision(half):
            value, _ = moco.loss(batch, at)
        value.backward()
        moco.optimizer.step()
        moco.after_step(batch, at)

    def passes() -> None:
        moco.optimizer.zero_grad(set_to_none=True)
        parts.train()
        with precision(half):
            with torch.no_grad():
                moco.embedding["key_"](batch.images[:, 1])
            (q,) = moco.embedding[""](batch.images[:, 0])
        q.backward(upstream)

    return {"encoder and head alone": passes, "whole step": whole}


def rows(case: str, ways: dict[str, Way], base: str, seconds: float, **shape: Any) -> list[dict[str, object]]:
    """`ratio` is the base's time over the way's: how many times as fast; for steps, the way's over the base's."""
    times = medians(ways, seconds, 3)
    found: list[dict[str, object]] = []
    for way, time in times.items():
        ratio = times[base] / time if case == "loss" else time / times[base]
        found.append({"case": case, **shape, "way": way, "ms": round(time * 1e3, 2), "ratio": round(ratio, 3)})
    what = "× as fast as" if case == "loss" else "× the time of"
    print(
        case, shape, ", ".join(f"{row['way']} {row['ms']} ms = {row['ratio']}" for row in found), what, base, flush=True
    )
    return found


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    quick = "--quick" in arguments
    k, seconds = (8192, 4.0) if quick else (65536, 30.0)
    table: list[dict[str, object]] = []
    for d in (128, 2048):
        table += rows("loss", losses(256, k, d), "published", seconds, n=256, k=k, d=d)
    cases = [("resnet20", Settings(dim=128, queue=k), True)]
    if not quick:
        cases += [("resnet20", Settings(dim=128), False)]
        cases += [("cifar_resnet18", Settings(dim=128), half) for half in (True, False)]
    for network, settings, half in cases:
        ways = steps(network, 256, settings, half)
        shape = {
            "network": network,
            "precision": "bfloat16" if half else "float32",
            "n": 256,
            "k": k,
            "d": settings.dim,
        }
        table += rows("step", ways, "encoder and head alone", seconds, **shape)
    print(write("pretrain_quick" if quick else "pretrain_gpu" if DEVICE.type == "cuda" else "pretrain", table))


if __name__ == "__main__":
    main(sys.argv[1:])
