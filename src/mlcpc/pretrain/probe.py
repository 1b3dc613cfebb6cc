"""Linear evaluation: a linear classifier on frozen features, as published; last and best epoch, top-1 and top-5.

SGD at rate 3 (ImageNet: 30), momentum 0.9, no weight decay, batches of 256, 100 epochs, a tenth of the rate after 60
and 80 %. Where no augmentation is asked for, features are made once and `linear_probe` is a few matrix products a step;
with it, `Probe` is a learner for `mlcpc.loop.fit` that runs the encoder anew in every epoch, as published.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mlcpc import draws
from mlcpc.config import InputError
from mlcpc.plan import Plan, Progress, Rate, milestones
from mlcpc.pretrain.encoder import features
from mlcpc.pretrain.knn import hits

__all__ = ["Linear", "Probe", "linear_probe", "summary"]


@dataclass(frozen=True)
class Linear:
    """How the classifier is trained; the defaults are the published ones for CIFAR."""

    rate: float = 3.0
    """ImageNet: 30"""
    epochs: int = 100
    batch: int = 256
    seed: int = 0
    """of the initialisation, the order and the augmentation"""

    @property
    def plan(self) -> Plan:
        """For `loop.fit`."""
        return Plan(self.epochs, self.batch, self.seed)

    @property
    def schedule(self) -> Rate:
        """The learning rate."""
        return milestones(self.rate, (0.6, 0.8))

    def start(self, classes: int, width: int) -> Tensor:
        """Weights (classes, width) from N(0, 0.01²); the bias starts at 0."""
        return torch.randn(classes, width, generator=draws.generator(self.seed, "probe")) * 0.01


@torch.no_grad()
def linear_probe(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    config: Linear | None = None,
) -> dict[str, Any]:
    """top1, top5 of the last epoch; best_top1 and best_epoch (from 1); and the curve over epochs.

    Gradients are written out, so that a step is two products; it is the same training as nn.Linear's under SGD.

    >>> points = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(20, 1)
    >>> linear_probe(points, torch.arange(2).repeat(20), points[:2], torch.arange(2), Linear(epochs=5))["top1"]
    1.0
    """
    config = config or Linear()
    _check(train_features, train_labels, test_features, test_labels)
    x, labels, n = train_features, train_labels, len(train_labels)
    classes = 1 + int(torch.maximum(train_labels.max(), test_labels.max()))
    weight = config.start(classes, x.shape[1]).to(x)
    bias = x.new_zeros(classes)
    speeds = torch.zeros_like(weight), torch.zeros_like(bias)
    steps = config.plan.steps(n)
    rows = []
    for epoch in range(config.epochs):
        rate = config.schedule(Progress(epoch, 0, config.epochs, steps))
        total = x.new_zeros(())
        for order in torch.split(draws.permutation(n, config.seed, epoch, "order").to(x.device), config.batch):
            own, wanted = x[order], labels[order][:, None]
            logs = torch.addmm(bias, own, weight.T).log_softmax(1)
            total -= logs.gather(1, wanted).sum()
            error = logs.exp_().scatter_add_(1, wanted, x.new_full((), -1.0).expand(wanted.shape)).div_(len(order))
            for speed, part, gradient in zip(speeds, (weight, bias), (error.T @ own, error.sum(0)), strict=True):
                part.sub_(speed.mul_(0.9).add_(gradient), alpha=rate)
        logits = torch.addmm(bias, test_features, weight.T)
        found = {f"top{among}": hits(logits, test_labels, among) for among in (1, 5)}
        rows.append({"epoch": epoch, "loss": float(total) / n, **found})
    return summary(rows)


class Probe:
    """The same training with augmentation, on one rank or several: the frozen encoder sees every batch.

    encoder        gives (n, d); used as in evaluation, never changed, and not in the checkpoints
    test_features  (N, d) of the test images, made once, as they are not augmented
    """

    def __init__(
        self,
        encoder: nn.Module,
        classes: int,
        test_features: Tensor,
        test_labels: Tensor,
        config: Linear | None = None,
    ) -> None:
        config = config or Linear()
        self.encoder, self.test_features, self.test_labels = encoder.eval(), test_features, test_labels
        layer = nn.Linear(test_features.shape[1], classes, dtype=test_features.dtype)
        with torch.no_grad():
            layer.weight.copy_(config.start(*layer.weight.shape))
            layer.bias.zero_()
        self.parts: nn.Module = layer.to(test_features.device)
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.parts.parameters(), config.rate, momentum=0.9)

    def loss(self, batch: Any, at: Progress) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross entropy; the encoder under autocast where the plan says so, the classifier never."""
        with torch.no_grad():
            x = features(self.encoder, batch.images).to(self.test_features.dtype)
        with torch.autocast(x.device.type, enabled=False):
            return F.cross_entropy(self.parts(x), batch.labels) * at.weight, {}

    def after_step(self, batch: Any, at: Progress) -> None:
        """Nothing but gradients."""

    @torch.no_grad()
    def evaluate(self, at: Progress) -> dict[str, float]:
        """Of the test images."""
        with torch.autocast(self.test_features.device.type, enabled=False):
            logits = self.parts(self.test_features)
        return {f"top{among}": hits(logits, self.test_labels, among) for among in (1, 5)}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Last and best epoch of a probe's rows, `loop.fit`'s or its own, and the curve."""
    best = max(rows, key=lambda row: row["top1"])
    curve = [{name: row[name] for name in ("epoch", "loss", "top1", "top5")} for row in rows]
    last = {name: rows[-1][name] for name in ("top1", "top5")}
    return {**last, "best_top1": best["top1"], "best_epoch": best["epoch"] + 1, "curve": curve}


def _check(train_features: Tensor, train_labels: Tensor, test_features: Tensor, test_labels: Tensor) -> None:
    for name, x, labels in (("train", train_features, train_labels), ("test", test_features, test_labels)):
        if x.ndim != 2 or labels.shape != x.shape[:1] or len(x) == 0:
            raise InputError(
                f"{name} features are {tuple(x.shape)} and labels {tuple(labels.shape)}: give (N, d) and (N,), N ≥ 1"
            )
    if train_features.shape[1] != test_features.shape[1]:
        raise InputError(
            f"train features have {train_features.shape[1]} columns and test features {test_features.shape[1]}: "
            "take both from the same encoder"
        )
