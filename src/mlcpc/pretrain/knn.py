"""Weighted nearest neighbours: what a representation is worth without training anything on it.

The k images whose features make the smallest angles vote for their classes with weight exp(cosine / temperature).
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mlcpc.classify import places
from mlcpc.config import InputError
from mlcpc.pretrain.encoder import extract

__all__ = ["hits", "knn", "neighbours", "online"]


@torch.no_grad()
def neighbours(queries: Tensor, bank: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Cosines (n, k), largest first, and rows (n, k) of the bank (N, d) nearest to each query (n, d).

    A query that is itself in the bank is its own first neighbour.
    """
    if queries.ndim != 2 or bank.ndim != 2 or queries.shape[1] != bank.shape[1]:
        raise InputError(
            f"queries are {tuple(queries.shape)} and the bank {tuple(bank.shape)}: write (n, d) and (N, d)"
        )
    if not 1 <= k <= len(bank):
        raise InputError(f"k is {k} but must be 1 to {len(bank)}, the size of the bank")
    bank = F.normalize(bank, dim=1).T
    rows = max(1, 2 ** (24 if bank.device.type == "cpu" else 28) // bank.shape[1])  # 64 MB of cosines, 1 GB on a GPU
    parts = [(F.normalize(part, dim=1) @ bank).topk(k) for part in torch.split(queries, rows)]
    return torch.cat([values for values, _ in parts]), torch.cat([indices for _, indices in parts])


@torch.no_grad()
def knn(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    k: int = 200,
    temperature: float = 0.07,
) -> dict[str, float]:
    """top1 and top5, as shares. No more neighbours vote than a class has images: with little data k is smaller.

    >>> corners = torch.eye(3).repeat(4, 1)
    >>> knn(corners, torch.arange(3).repeat(4), torch.eye(3), torch.tensor([0, 1, 0]))["top1"]
    0.666...
    """
    classes = 1 + int(torch.maximum(train_labels.max(), test_labels.max()))
    cosines, rows = neighbours(test_features, train_features, min(k, max(1, len(train_features) // classes)))
    weights = ((cosines - cosines[:, :1]) / temperature).exp()  # relative to the nearest: nothing overflows
    votes = weights.new_zeros(len(rows), classes).scatter_add_(1, train_labels[rows], weights)
    votes.masked_fill_(votes == 0, -torch.inf)  # a class without a vote is not predicted
    return {f"top{among}": hits(votes, test_labels, among) for among in (1, 5)}


def hits(scores: Tensor, labels: Tensor, among: int) -> float:
    """Share of rows (n, classes) whose label scores among the best so many. Ties and NaN count as misses."""
    return float((places(scores, labels) <= among).double().mean())


def online(
    train: Callable[[], Iterable[Any]], test: Callable[[], Iterable[Any]], device: torch.device | str = "cpu"
) -> Callable[[nn.Module], dict[str, float]]:
    """For `MoCo(evaluation=...)`: nearest neighbours by the encoder as it stands, among batches made anew each time."""

    def evaluation(encoder: nn.Module) -> dict[str, float]:
        found = knn(*extract(encoder, train(), device), *extract(encoder, test(), device))
        return {f"knn_{name}": value for name, value in found.items()}

    return evaluation
