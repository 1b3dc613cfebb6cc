"""`mlcpc train`, `distill`, `pretrain` and `probe`; each also under torchrun."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.console import Console

from mlcpc.bounds import GuaranteeWarning
from mlcpc.classify import WEIGHTS, Training, train
from mlcpc.commands.shown import named, training_bar
from mlcpc.distill.run import Distillation, distill
from mlcpc.pretrain.run import Pretraining, Probing, pretrain, probe
from mlcpc.ranks import Ranks
from mlcpc.runs import Place, run_folder

__all__ = ["Distill", "Pretrain", "Probe", "Train"]


@dataclass(frozen=True)
class Train:
    """Train a plain classifier: a teacher, or a student's baseline. Run again, it goes on or shows the result."""

    config: Training = field(default_factory=Training)
    place: Place = field(default_factory=Place)

    def __call__(self) -> int:
        title = f"{self.config.network} on {self.config.data}"
        return run(self.config, self.place, "train", title, train)


@dataclass(frozen=True)
class Distill:
    """Train a student network with the help of a teacher's features. The teacher is trained first if need be."""

    config: Distillation = field(default_factory=Distillation)
    place: Place = field(default_factory=Place)

    def __call__(self) -> int:
        title = f"{self.config.teacher} → {self.config.student}, {self.config.objective}"

        def work(config: Distillation, place: Place, show: Any, ranks: Ranks) -> dict[str, Any]:
            return distill(config, place, show, ranks, say=partial(Console().print, markup=False))

        return run(self.config, self.place, "distill", title, work)


@dataclass(frozen=True)
class Pretrain:
    """Learn an encoder from unlabelled images: MoCo-v2 or SimCLR, with CPC or ML-CPC and an α curriculum."""

    config: Pretraining = field(default_factory=Pretraining)
    place: Place = field(default_factory=Place)

    def __call__(self) -> int:
        settings = self.config.settings
        title = f"{self.config.network} by {settings.objective}, α {settings.alpha}"
        return run(self.config, self.place, "pretrain", title, pretrain)


@dataclass(frozen=True)
class Probe:
    """Linear evaluation and nearest neighbours of a finished run's encoder, or of one with random weights."""

    config: Probing = field(default_factory=Probing)
    place: Place = field(default_factory=Place)

    def __call__(self) -> int:
        return run(self.config, self.place, "probe", self.config.name, probe)


def run(config: Any, place: Place, section: str, title: str, work: Callable[..., dict[str, Any]]) -> int:
    """One run with its bar, on one rank or on torchrun's; then the result in a line, and where to find it."""
    config = named(config, place)
    with Ranks(place.device) as ranks, warnings.catch_warnings():
        warnings.simplefilter("once", GuaranteeWarning)
        with training_bar(title, ranks.rank == 0) as show:
            result = work(config, place, show, ranks)
    if ranks.rank == 0:
        folder = run_folder(config, section, place.runs)
        console = Console()
        console.print(f"{title}: {sentence(result)}", highlight=False, markup=False)
        for name in ("result.json", "metrics.jsonl", WEIGHTS):
            if (folder / name).exists():
                console.print(f"  {folder / name}", highlight=False, markup=False, soft_wrap=True)
    return 0


def sentence(result: dict[str, Any]) -> str:
    """What a person wants to know first."""
    minutes = f"{result['seconds'] / 60:.1f} min"
    if "estimate" in result:
        text = f"estimate {result['estimate']:.2f} of at most {result['ceiling']:.2f} nats at α = {result['alpha']:.3g}"
        near = "" if result["knn"] is None else f", k-NN {result['knn']:.2%}"
        return f"{text}{near}, {minutes}"
    text = f"top-1 {result['top1']:.2%} after {len(result['curve'])} epochs"
    text += f" (best {result['best_top1']:.2%}, epoch {result['best_epoch']})"
    for name, words in (("teacher_top1", "teacher"), ("knn_top1", "k-NN")):
        text += f", {words} {result[name]:.2%}" if name in result else ""
    return f"{text}, {minutes}"
