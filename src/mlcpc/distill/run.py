"""A whole distillation: a teacher, trained first where it is missing, a student, and the result."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mlcpc import models
from mlcpc.bounds import normalise
from mlcpc.classify import (
    WEIGHTS,
    Training,
    accuracy,
    load_network,
    loaders,
    save_network,
    sgd,
    study_rate,
    summary,
    train,
)
from mlcpc.config import InputError
from mlcpc.distill.learner import Distiller
from mlcpc.distill.memory import Contrast
from mlcpc.loop import Show, fit
from mlcpc.plan import Plan, milestones
from mlcpc.ranks import Ranks
from mlcpc.runs import Place, run_folder, run_once
from mlcpc.schedules import parse_alpha

__all__ = ["METHODS", "Distillation", "distill", "teacher_of"]

METHODS = ("kd", "crd", "cpc", "ml_cpc")


@dataclass(frozen=True)
class Distillation:
    """Which student learns from which teacher, by which objective. Defaults are the study's."""

    teacher: str = "resnet56"
    """one of mlcpc.models.MODELS; it is trained first where no finished run of it is found"""
    student: str = "resnet20"
    """likewise"""
    objective: str = "ml_cpc"
    """ml_cpc, cpc, crd (its noise-contrastive loss), or kd alone"""
    alpha: str = "0.05"
    """of ml_cpc and cpc: a number, or a schedule such as 10:0.1"""
    data: str = "cifar100"
    """cifar10, cifar100, fashion-mnist, digits, or folder: class folders of images in --data-dir"""
    epochs: int = 240
    """the rate falls at 5/8, 3/4 and 7/8 of them"""
    batch: int = 64
    """samples a step, over all ranks together"""
    rate: float = 0.0
    """0: the study's, 0.01 for MobileNetV2 and both ShuffleNets and 0.05 for the others"""
    weight_decay: float = 5e-4
    """of SGD, with momentum 0.9"""
    negatives: int = 16384
    """drawn for each sample from the other classes; 0: all of them, without drawing"""
    same_class: bool = False
    """every sample of the class is a positive"""
    contrast: float = 0.8
    """weight of the contrastive loss"""
    kd: float = 0.0
    """weight of KD beside a contrastive loss; --objective kd is 0.1 · cross entropy + 0.9 · KD"""
    dim: int = 128
    """of the projections"""
    temperature: float = 0.07
    """of the contrastive loss"""
    precision: str = "bfloat16"
    """of the networks' products; weights, losses and sums stay in float32. Or float32"""
    limit: int = 0
    """use only so many training images; 0: all"""
    seed: int = 0
    """of the initialisation, the order, the augmentation and the negatives"""
    teacher_weights: str = ""
    """a file to take the teacher from: a published checkpoint, or the network.safetensors of a run"""
    teacher_epochs: int = 0
    """of a teacher that is trained here; 0: as many as the student"""
    teacher_seed: int = 0
    """likewise"""
    teacher_limit: int = -1
    """likewise: training images it sees; 0: all; -1: as many as the student"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", self.objective if self.objective in METHODS else _known(self.objective))
        if self.objective in ("kd", "crd"):
            object.__setattr__(self, "alpha", "1")  # they have none
        try:
            parse_alpha(self.alpha)
        except ValueError as error:
            raise InputError(str(error)) from error
        for name in ("teacher", "student"):
            object.__setattr__(self, name, models.canonical(getattr(self, name)))

    @property
    def name(self) -> str:
        """Leads the run's folder name."""
        how = self.objective + (f"-{self.alpha.replace(':', 'to')}" if self.objective in ("cpc", "ml_cpc") else "")
        return f"{self.teacher}-{self.student}-{how}-{Path(self.data).name}-s{self.seed}"

    def plan(self, place: Place) -> Plan:
        """For `loop.fit`."""
        return Plan(self.epochs, self.batch, self.seed, self.precision, tensorboard=place.tensorboard)

    @property
    def weights(self) -> tuple[float, float, float]:
        """Of cross entropy, KD and the contrastive loss."""
        return (0.1, 0.9, 0.0) if self.objective == "kd" else (1.0, self.kd, self.contrast)

    @property
    def training(self) -> Training:
        """The teacher's own run."""
        return Training(
            self.teacher,
            self.data,
            self.teacher_epochs or self.epochs,
            self.batch,
            precision=self.precision,
            limit=self.limit if self.teacher_limit < 0 else self.teacher_limit,
            seed=self.teacher_seed,
        )


def distill(
    config: Distillation, place: Place, show: Show | None = None, ranks: Ranks | None = None, say: Any = print
) -> dict[str, Any]:
    """Run it to the end, from the newest checkpoint on.

    say     told of the teacher's accuracy before the student starts
    """
    ranks = ranks or Ranks(place.device)
    folder = run_folder(config, "distill", place.runs)

    def compute(config: Distillation) -> dict[str, Any]:
        learn, test = loaders(config, place)
        classes = learn.source.classes
        rest = len(learn) % config.batch
        if 0 < rest // ranks.size < 2 or config.batch // ranks.size < 2:
            raise InputError(
                f"{len(learn)} images in batches of {config.batch} on {ranks.size} ranks leave a last batch of one, "
                f"which has no other to be told from: write --batch {config.batch + 1}, or another"
            )
        teacher = teacher_of(config, place, classes, show, ranks)
        with torch.autocast(ranks.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
            known = accuracy(teacher, test, ranks.device)
        if ranks.rank == 0:
            weak = known["top1"] < 1.5 / len(classes)
            doubt = ": hardly more than chance, is it trained, and on this data?" if weak else ""
            say(f"teacher {config.teacher}: top-1 {known['top1']:.2%} on the test images of {config.data}{doubt}")
        torch.manual_seed(config.seed)
        student = models.build(config.student, len(classes))
        contrast = None
        if config.objective != "kd":
            contrast = Contrast(
                student.num_features,
                teacher.num_features,  # type: ignore[arg-type]
                learn.source.labels,
                config.objective,
                config.alpha,
                negatives=config.negatives or "all",
                same_class=config.same_class,
                dim=config.dim,
                temperature=config.temperature,
            )
        everything = nn.ModuleList([student, *([contrast] if contrast else [])])
        models.placed(everything, ranks.device)
        learner = Distiller(
            student,
            teacher,
            contrast,
            sgd([everything], config),
            lambda net: accuracy(net, test, ranks.device),
            config.weights,
            ranks.group,
        )
        rate = milestones(study_rate(config, config.student))
        rows = fit(learner, learn, config.plan(place), rate, folder, ranks, show)
        if ranks.rank == 0:
            save_network(folder / WEIGHTS, student, config.student, classes)
        return {"teacher_top1": known["top1"], **summary(rows)}

    return run_once(config, "distill", compute, place.runs, ranks.rank == 0)


def teacher_of(
    config: Distillation, place: Place, classes: tuple[str, ...], show: Show | None, ranks: Ranks
) -> nn.Module:
    """From the file named, or from its own run, which is made where it is missing."""
    path = Path(config.teacher_weights) if config.teacher_weights else None
    if path is None:
        train(config.training, place, show, ranks)
        ranks.said_by_first(None)  # the others wait until its weights are there
        path = run_folder(config.training, "train", place.runs) / WEIGHTS
    if path.suffix == ".safetensors":
        teacher, network, known, _ = load_network(path)
        if network != config.teacher:
            raise InputError(f"{path} holds a {network}, not a {config.teacher}: write --teacher {network}")
        if len(known) != len(classes):
            raise InputError(
                f"the teacher in {path} knows {len(known)} classes but {config.data} has {len(classes)}: "
                "give a teacher that was trained on this data"
            )
    else:
        teacher = models.load_published(config.teacher, path, len(classes))
    return models.placed(teacher, ranks.device)


def _known(objective: str) -> str:
    try:
        return normalise(objective)
    except ValueError as error:
        raise InputError(
            f"objective is {objective!r}, which is not known: write one of {', '.join(METHODS)}"
        ) from error
