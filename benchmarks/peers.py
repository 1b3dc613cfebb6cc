"""The contrastive losses of other libraries, by their own interfaces; each is None where it is not installed.

Losses that need torchvision only in parts they do not use are loaded without it.
"""

import contextlib
import importlib
import importlib.util
import pathlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

Loss = Callable[[Tensor, Tensor], Tensor]


def info_nce(temperature: float) -> Any:
    """info-nce-pytorch's InfoNCE(query, positive, negatives)."""
    module = _module("info_nce")
    return None if module is None else module.InfoNCE(temperature=temperature)


def metric_learning(temperature: float) -> Loss | None:
    """pytorch-metric-learning's NTXentLoss on (embeddings, labels) of both sides, as a two-view loss."""
    module = _module("pytorch_metric_learning.losses")
    if module is None:
        return None
    loss = module.NTXentLoss(temperature=temperature)
    return lambda q, k: loss(torch.cat([q, k]), torch.arange(len(q)).repeat(2))


def lightly(temperature: float, bank: tuple[int, int] | None = None) -> Any:
    """lightly's NTXentLoss(view, view), two-view, or one-way against a bank."""
    if importlib.util.find_spec("lightly") is None:
        return None
    with _without_torchvision():
        module = importlib.import_module("lightly.loss")
    return module.NTXentLoss(temperature=temperature, memory_bank_size=bank or 0)


def open_clip(scale: float) -> Loss | None:
    """open_clip's ClipLoss(images, texts, scale), symmetric, on unit vectors."""
    spec = importlib.util.find_spec("open_clip")
    if spec is None or spec.origin is None:
        return None
    path = pathlib.Path(spec.origin).with_name("loss.py")
    found = importlib.util.spec_from_file_location("open_clip_loss", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    loss = module.ClipLoss()
    return lambda q, k: loss(q, k, scale)


def cross_entropy(q: Tensor, k: Tensor) -> Tensor:
    """What most people write; scores already hold the temperature."""
    return F.cross_entropy(q @ k.T, torch.arange(len(q), device=q.device))


def chunked_cross_entropy() -> Loss | None:
    """torch's own fused linear + cross entropy, in chunks."""
    module = _module("torch.nn.modules.linear_cross_entropy_options")
    if module is None:
        return None
    options = module.LinearCrossEntropyOptions()

    def loss(q: Tensor, k: Tensor) -> Tensor:
        target = torch.arange(len(q), device=q.device)
        value: Tensor = F.linear_cross_entropy(q, k, target, options=options)  # type: ignore[attr-defined]
        return value

    return loss


def naive_ml_cpc(q: Tensor, k: Tensor, alpha: float = 0.5) -> Tensor:
    """ML-CPC in three lines of autograd."""
    s, n = q @ k.T, len(q)
    odds = torch.full((n, n), (n - alpha) / (n - 1), device=q.device).fill_diagonal_(alpha).log().to(s.dtype)
    return (s + odds).logsumexp((0, 1)) - s.diagonal().mean()


def published_ml_cpc(q: Tensor, k: Tensor, alpha: float = 0.5) -> Tensor:
    """As the paper's Appendix B lays it out, its two slips mended: positives first, concatenated, summed twice."""
    s, n = q @ k.T, len(q)
    off = ~torch.eye(n, dtype=torch.bool, device=q.device)
    logits = torch.cat([s.diagonal()[:, None], s[off].view(n, n - 1)], 1)
    pos, neg = logits.select(1, 0), logits.narrow(1, 1, n - 1)
    log_alpha, log_beta = torch.tensor(alpha).log(), torch.tensor((n - alpha) / (n - 1)).log()
    weighted = torch.cat([pos[:, None] + log_alpha, neg + log_beta], 1)
    return weighted.logsumexp(1).logsumexp(0) - pos.mean()


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


@contextlib.contextmanager
def _without_torchvision() -> Iterator[None]:
    names = [name for name in ("torchvision", "torchvision.ops") if name not in sys.modules]
    vision, ops = types.ModuleType("torchvision"), types.ModuleType("torchvision.ops")
    vision.__path__, vision.ops = [], ops  # type: ignore[attr-defined]
    ops.StochasticDepth, ops.roi_align = type("StochasticDepth", (), {}), None  # type: ignore[attr-defined]
    sys.modules.update({name: {"torchvision": vision, "torchvision.ops": ops}[name] for name in names})
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)
