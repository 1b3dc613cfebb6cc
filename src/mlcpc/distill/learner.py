"""What a distilled student minimises at each step: any two networks that give a feature and logits, any data.

ce · cross entropy  +  kd · KL(teacher ‖ student) · T²  +  contrast · (both directions' contrastive loss)
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mlcpc.config import InputError
from mlcpc.data import Batch
from mlcpc.distill.losses import kd_loss
from mlcpc.distill.memory import Contrast
from mlcpc.plan import Progress
from mlcpc.replay import Replay

__all__ = ["Distiller", "features_and_logits"]

Both = Callable[[Tensor], tuple[Tensor, Tensor]]


class Distiller:
    """A learner for `loop.fit`: a student beside a frozen teacher.

    contrast    None for plain training and for KD alone
    weights     of cross entropy, of KD, of the contrastive loss
    evaluate    numbers of the student at an epoch's end
    """

    def __init__(
        self,
        student: nn.Module,
        teacher: nn.Module | None,
        contrast: Contrast | None,
        optimizer: torch.optim.Optimizer,
        evaluate: Callable[[nn.Module], dict[str, float]],
        weights: tuple[float, float, float] = (1.0, 0.0, 0.8),
        group: Any = None,
    ) -> None:
        if teacher is None and (contrast is not None or weights[1]):
            raise InputError("there is no teacher, but KD or a contrastive loss needs one: give a teacher")
        self.student, self.teacher, self.contrast, self.optimizer = student, teacher, contrast, optimizer
        self.weights, self.scores, self.group = weights, evaluate, group
        self.parts: nn.Module = nn.ModuleDict({"student": student} | ({"contrast": contrast} if contrast else {}))
        self.studying = Replay(student, features_and_logits(student))
        self.teaching: Replay | None = None
        if teacher is not None:
            self.teaching = Replay(teacher, features_and_logits(teacher.requires_grad_(False).eval()))

    def loss(self, batch: Batch, at: Progress) -> tuple[Tensor, dict[str, Tensor]]:
        if len(batch.images) < 2:
            raise InputError("a batch of one image: batch normalisation and ML-CPC need two; write a larger --batch")
        images = batch.images.contiguous(memory_format=torch.channels_last)
        self.parts.train()
        feature, logits = self.studying(images)
        ce, kd, contrast = self.weights
        total = ce * F.cross_entropy(logits.float(), batch.labels) * at.weight
        numbers = {"train_top1": (logits.detach().argmax(1) == batch.labels).float().mean()}
        if self.teaching is None:
            return total, numbers
        with torch.no_grad():
            taught, wanted = self.teaching(images)
        if kd:
            if wanted.shape != logits.shape:
                raise InputError(
                    f"the teacher knows {wanted.shape[1]} classes and the student {logits.shape[1]}: KD needs the same"
                )
            total = total + kd * kd_loss(logits.float(), wanted.float()) * at.weight
        if self.contrast is not None:
            if getattr(batch, "indices", None) is None:
                raise InputError(
                    "the batches have no indices, which the banks go by: give each sample's row as `indices`"
                )
            value, found = self.contrast(feature, taught, batch.indices, at.key, progress=at.fraction, group=self.group)
            total, numbers = total + contrast * value, numbers | found
        return total, numbers

    def after_step(self, batch: Batch, at: Progress) -> None:
        """The banks, after the gradients that must not see it."""
        if self.contrast is not None:
            self.contrast.update(group=self.group)

    def evaluate(self, at: Progress) -> dict[str, float]:
        return self.scores(self.student)


def features_and_logits(net: nn.Module) -> Both:
    """A function to (features, logits): the network's own `both`, or whatever enters its last linear layer.

    >>> both = features_and_logits(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)))
    >>> [x.shape for x in both(torch.ones(4, 3))]
    [torch.Size([4, 5]), torch.Size([4, 2])]
    """
    own: Both | None = getattr(net, "both", None)
    if own is not None:
        return own
    heads = [module for module in net.modules() if isinstance(module, nn.Linear)]
    if not heads:
        raise InputError(f"{type(net).__name__} has no linear layer to take features from: give it a method both(x)")
    seen: list[Tensor] = []
    heads[-1].register_forward_hook(lambda module, given, out: seen.append(given[0]))

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        seen.clear()
        logits = net(x)
        return seen.pop(), logits

    return both
