"""A contrastive loss between a student and its teacher over two memory banks, as CRD has it.

Each network gets a projection (linear, then unit length) and a bank that remembers the projected features of every
sample. A student's feature is told from the teacher's remembered features of other samples, a teacher's from the
student's, and the loss is the sum of both. The positive of a sample is its own row of the other network's bank, so
gradients reach the student and both projections, never a bank; `update` moves the banks after the backward pass.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mlcpc.config import InputError
from mlcpc.distill.directions import Many, One
from mlcpc.distill.negatives import OtherClasses
from mlcpc.objectives import as_group
from mlcpc.queues import MemoryBank
from mlcpc.schedules import Alpha, parse_alpha
from mlcpc.scores import widen
from mlcpc.streaming import Pairs

__all__ = ["OBJECTIVES", "Contrast"]

OBJECTIVES = ("crd", "cpc", "ml_cpc")
"""noise contrast as published with CRD; the paper's L_α; the paper's J_α"""


class Contrast(nn.Module):
    """The loss of a batch of student and teacher features, both directions together.

    student_dim, teacher_dim   sizes of the features
    labels        (N,) classes of the training set
    objective     "crd", "cpc" or "ml_cpc"
    alpha         of CPC and ML-CPC: a number, "0.05", or a schedule such as "10:0.1"
    negatives     so many of other classes, drawn anew for each sample, without replacement; or "all": every sample of
                  another class, nothing drawn
    same_class    every row of the sample's class is a positive, each pair of its own, not its own row alone

    Beside the loss come numbers to log, as tensors: `estimate` of the mutual information in nats, the mean of both
    directions, and the `ceiling` it cannot pass: log(m/α), for CRD log k. It is an estimate against negatives of other
    classes, and as in `mlcpc.bounds` only some α make it a lower bound.

    >>> contrast = Contrast(8, 16, torch.arange(50) % 5, "ml_cpc", alpha=0.05, negatives=20)
    >>> student, teacher, rows = torch.randn(4, 8), torch.randn(4, 16), torch.tensor([3, 1, 4, 15])
    >>> loss, numbers = contrast(student, teacher, rows, key=(0, 0))
    >>> loss.backward()
    >>> contrast.update()
    >>> round(numbers["ceiling"].item(), 3)
    6.04
    """

    log_z: Tensor
    has_z: Tensor

    def __init__(
        self,
        student_dim: int,
        teacher_dim: int,
        labels: Tensor,
        objective: str = "ml_cpc",
        alpha: Alpha = 1.0,
        negatives: int | str = 16384,
        same_class: bool = False,
        dim: int = 128,
        temperature: float = 0.07,
        momentum: float = 0.5,
    ) -> None:
        super().__init__()
        self.objective = objective.replace("-", "_").lower()
        self.alpha = parse_alpha(alpha)
        self.others = OtherClasses(labels)
        self.k = _number_of(negatives, self.others)
        self.temperature, self.same_class = temperature, same_class
        self._check()
        self.project_student, self.project_teacher = nn.Linear(student_dim, dim), nn.Linear(teacher_dim, dim)
        self.student_bank = MemoryBank(len(labels), dim, momentum)
        self.teacher_bank = MemoryBank(len(labels), dim, momentum)
        # CRD's normalisers, one a direction: N times the first batch's mean of exp(score), then kept.
        self.register_buffer("log_z", torch.zeros(2))
        self.register_buffer("has_z", torch.tensor(False))
        self._has_z = False  # has_z on the host, so that a GPU need not be asked
        self._seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def forward(
        self,
        student: Tensor,
        teacher: Tensor,
        indices: Tensor,
        key: tuple[int | str, ...],
        progress: float = 0.0,
        group: Any = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of features (n, …) of the samples `indices` (n,), and numbers to log.

        key        what the negatives depend on besides the sample: (seed, epoch), or with the step
        progress   of training, in [0, 1]; what α depends on
        group      process group over which the batch is spread; see mlcpc.distributed for the gradient's convention
        """
        alpha = self.alpha(progress)
        v_student, v_teacher = _unit(self.project_student, student), _unit(self.project_teacher, teacher.detach())
        if self.training:
            self._seen.append((indices, v_student.detach(), v_teacher.detach()))
        rows = None if self.k is None else self.others.draw(indices, self.k, *key)
        k = len(self.others) - self.others.same(indices) if self.k is None and not self.others.balanced else self.fewest
        kind, narrow = v_student.device.type, v_student.dtype
        if torch.is_autocast_enabled(kind):
            narrow = torch.get_autocast_dtype(kind)
        ids = self.others.labels
        # |score| ≤ √3/τ: a row of a bank starts with at most that length, and has length 1 once it has moved
        pairs = Pairs(query_ids=ids[indices], key_ids=ids, bound=math.sqrt(3) / self.temperature, dtype=narrow)
        ranks = as_group(group, indices)
        with torch.autocast(kind, enabled=False):
            make = Many if self.same_class else One
            ways = [
                make(v / self.temperature, bank.vectors, indices, rows, pairs, k, ranks)
                for v, bank in ((v_student, self.teacher_bank), (v_teacher, self.student_bank))
            ]
            if self.objective == "crd":
                self._normalise(ways)
                each = [way.noise_contrast(log_z) for way, log_z in zip(ways, self.log_z, strict=True)]
            else:
                each = [way.objective(self.objective, alpha) for way in ways]
            loss = each[0] + each[1]
            ceiling = ways[0].ceiling(self.objective, alpha)
        found = loss.detach()
        numbers = {"contrast": found, "estimate": ceiling - found / 2, "ceiling": ceiling}
        if self.objective != "crd":
            numbers["alpha"] = found.new_full((), alpha)
        return loss if ranks is None else ranks.for_ddp(loss), numbers

    def update(self, group: Any = None) -> None:
        """Move the banks to the features seen in training since the last update: after the backward pass."""
        if self._seen:
            indices, student, teacher = (torch.cat(parts) for parts in zip(*self._seen, strict=True))
            self._seen = []
            self.student_bank.update(indices, student, group=group)
            self.teacher_bank.update(indices, teacher, group=group)

    @property
    def fewest(self) -> int:
        """Negatives of a sample; where they differ, of the sample with fewest."""
        return self.others.fewest if self.k is None else self.k

    def extra_repr(self) -> str:
        negatives = "all" if self.k is None else self.k
        return f"{self.objective}, alpha={self.alpha}, negatives={negatives}, temperature={self.temperature:g}"

    def _normalise(self, ways: Sequence[One]) -> None:
        """Set CRD's normalisers, on the first batch only."""
        self._has_z = self._has_z or bool(self.has_z)
        if not self._has_z:
            means = torch.stack([way.mean_score().detach() for way in ways])
            self.log_z.copy_(means + math.log(len(self.others)))
            self.has_z.fill_(True)
            self._has_z = True

    def _load_from_state_dict(self, *arguments: Any, **more: Any) -> None:
        self._has_z = False  # ask again
        super()._load_from_state_dict(*arguments, **more)

    def _check(self) -> None:
        if self.objective not in OBJECTIVES:
            raise InputError(
                f"objective is {self.objective!r}, which is not known: write one of {', '.join(OBJECTIVES)}"
            )
        if not 0 < self.temperature < math.inf:
            raise InputError(f"temperature is {self.temperature} but must be a positive number: write, say, 0.07")
        self.others.check(self.fewest)
        if self.objective == "crd":
            return
        m: float = 1 + self.fewest
        if self.same_class and self.objective == "ml_cpc":
            m = 1 + self.fewest / int(self.others.sizes.max())
        for alpha in (self.alpha(0.0), self.alpha(1.0)):
            if not 0 < alpha < m:
                raise InputError(f"alpha is {alpha:g} but must lie strictly between 0 and m = {m:g}: write, say, 0.05")


def _number_of(negatives: int | str, others: OtherClasses) -> int | None:
    """None for all."""
    if negatives == "all":
        return None
    if isinstance(negatives, bool) or not isinstance(negatives, int):
        raise InputError(f"negatives is {negatives!r}: write a number, say 16384, or 'all'")
    others.check(negatives)
    return negatives


def _unit(projection: nn.Linear, features: Tensor) -> Tensor:
    """Projected, in float32 or float64, of length 1."""
    return F.normalize(widen(projection(features.flatten(1))), dim=1)
