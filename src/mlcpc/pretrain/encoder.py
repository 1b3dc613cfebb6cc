"""Any network in, features out: all that this section asks of an encoder is (n, d) for images (n, 3, h, w)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from mlcpc.config import InputError

__all__ = ["extract", "features", "follow", "head", "inspect"]


def features(encoder: nn.Module, images: Tensor) -> Tensor:
    """(n, d): by the encoder's method `features`, which the networks of mlcpc.models have, or by calling it.

    >>> features(nn.Flatten(), torch.zeros(5, 3, 2, 2)).shape
    torch.Size([5, 12])
    """
    method = getattr(encoder, "features", None)
    if method is None or isinstance(method, nn.Module):  # elsewhere `features` may be a stack of layers
        method = encoder
    found: Tensor = method(images.contiguous(memory_format=_memory_format(encoder)))
    if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != len(images):
        given = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise InputError(
            f"the encoder gives {given} for images {tuple(images.shape)} but must give (n, d), a vector for each "
            "image: end it with nn.AdaptiveAvgPool2d(1) and nn.Flatten(), or give it a method features(images)"
        )
    return found


def inspect(encoder: nn.Module, images: Tensor) -> tuple[int, list[nn.Parameter]]:
    """d, and the parameters that features depend on: a classifier that stands behind them is not ours to decay."""
    learnt = [p for p in encoder.parameters() if p.requires_grad]
    training = encoder.training
    found = features(encoder.eval(), images)
    encoder.train(training)
    if not learnt or not found.requires_grad:
        raise InputError("the encoder has no parameter to learn: leave requires_grad=True where it is to be trained")
    grads = torch.autograd.grad(found.sum(), learnt, allow_unused=True)
    return found.shape[1], [p for p, grad in zip(learnt, grads, strict=True) if grad is not None]


def head(width: int, dim: int, hidden: int) -> nn.Module:
    """From features to the embedding that the loss compares: MoCo-v2's two layers, or with hidden = 0 only one."""
    if hidden == 0:
        return nn.Linear(width, dim)
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, dim))


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, momentum: float) -> None:
    """slow = momentum·slow + (1 − momentum)·fast, parameters only: statistics of batches stay each network's own."""
    torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), 1 - momentum)


@torch.no_grad()
def extract(encoder: nn.Module, batches: Iterable[Any], device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Features (N, d), float32 or float64, and labels (N,) of all batches; the encoder is put in evaluation mode."""
    encoder.eval()
    found, labels = [], []
    for batch in batches:
        x = features(encoder, batch.images.to(device))
        found.append(x if x.dtype == torch.float64 else x.float())
        labels.append(batch.labels.to(device))
    if not found:
        raise InputError("there is no batch to take features of: give at least one image")
    return torch.cat(found), torch.cat(labels)


def _memory_format(encoder: nn.Module) -> torch.memory_format:
    """That of the encoder's convolutions."""
    for p in encoder.parameters():
        if p.ndim == 4 and not p.is_contiguous():
            return torch.channels_last
    return torch.contiguous_format
