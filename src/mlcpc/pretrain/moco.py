"""MoCo-v2 and SimCLR with either contrastive objective: a learner for `mlcpc.loop.fit`.

MoCo: queries come from the encoder, keys from a copy of it that follows slowly, negatives from a queue of the latest
keys. The scores of a batch are three numbers a row (`Scores`), so the loss is `mlcpc.loss` of them: one question over
the *global* batch, whose value does not depend on the number of ranks.

The copy follows in `after_step`, not before the key pass as in the published code. Both give the same sequence (a first
update between two equal networks does nothing), but so it happens once a step however many pieces a batch is cut into.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mlcpc import draws
from mlcpc.bounds import ceiling, normalise
from mlcpc.config import InputError
from mlcpc.contrastive import contrastive_loss
from mlcpc.distributed import Group
from mlcpc.objectives import loss, top
from mlcpc.plan import Progress
from mlcpc.pretrain.encoder import features, follow, head, inspect
from mlcpc.queues import Queue
from mlcpc.ranks import Ranks
from mlcpc.replay import Replay
from mlcpc.schedules import parse_alpha
from mlcpc.scores import Scores, widen
from mlcpc.streaming import Pairs, row_lse

__all__ = ["IMAGENET", "MoCo", "Settings"]


@dataclass(frozen=True)
class Settings:
    """What is compared with what, and how; the defaults are the published ones for CIFAR."""

    objective: str = "ml_cpc"
    """ml_cpc (J) or cpc (L)"""
    alpha: str = "1"
    """0.05; or high:low, such as 10:0.1, which falls over the training"""
    alpha_per: str = "epoch"
    """epoch, as published, or step: when α moves"""
    divide_by_alpha: bool = True
    """minimise (ceiling − estimate) / α as the published code does, not the paper: gradients are 1/α times as large"""
    method: str = "moco"
    """moco, or simclr: both views through one encoder, negatives from the batch, no queue"""
    symmetric: bool = False
    """moco: each view is once the query and once the key; the mean of both losses, and both keys join the queue"""
    temperature: float = 0.07
    """τ"""
    queue: int = 65536
    """keys; more than CIFAR's 50000 images, so that it holds older keys of an image beside its new one"""
    own_keys: bool = True
    """an image's own older keys are negatives, as published; False leaves them out"""
    momentum: float = 0.999
    """of the key encoder"""
    shuffle: bool = True
    """keys are normalised in other batches than their queries, where there are several ranks (shuffling BN)"""
    dim: int = 2048
    """of the embedding"""
    hidden: int = -1
    """width of the head's hidden layer; −1: that of the features; 0: no hidden layer"""
    weight_decay: float = 1e-4
    """of SGD, with momentum 0.9"""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "objective", normalise(self.objective))
            parse_alpha(self.alpha)
        except ValueError as error:
            raise InputError(str(error)) from error
        for name, known in (("alpha_per", ("epoch", "step")), ("method", ("moco", "simclr"))):
            if getattr(self, name) not in known:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}, which is not known: write one of {', '.join(known)}"
                )
        for name in ("temperature", "queue", "dim"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)} but must be positive")
        if not 0 <= self.momentum <= 1:
            raise InputError(f"momentum is {self.momentum} but must lie in [0, 1], such as 0.999")
        if self.symmetric and self.method == "simclr":
            raise InputError("symmetric is on but simclr compares every view with all others anyway: leave it out")


IMAGENET = Settings(temperature=0.2, dim=128)
"""MoCo-v2's own"""


class MoCo:
    """`parts` are the encoder that is learnt, its head, and for MoCo their followers and the queue.

    encoder     any module that gives (n, d); trained in place
    example     a few images (n, 3, h, w) as a loader gives them, to find d with
    seed        of the head and of the queue's random start; the encoder brings its own weights
    evaluation  numbers to report beside the loss, from the encoder as it stands; called on the first rank
    """

    def __init__(
        self,
        encoder: nn.Module,
        example: Tensor,
        settings: Settings | None = None,
        ranks: Ranks | None = None,
        *,
        seed: int = 0,
        evaluation: Callable[[nn.Module], dict[str, float]] | None = None,
    ) -> None:
        self.settings, self.ranks, self.evaluation = settings or Settings(), ranks or Ranks("cpu"), evaluation
        encoder.to(self.ranks.device)
        width, learnt = inspect(encoder, example[:2].to(self.ranks.device))
        self.alpha = parse_alpha(self.settings.alpha)
        self.parts = self._parts(encoder, width, seed).to(self.ranks.device)
        learnt += self.parts["head"].parameters()
        decay = self.settings.weight_decay
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
            learnt, 0.1, momentum=0.9, weight_decay=decay, fused=True
        )
        self.embedding = {which: self._embedding(which) for which in ("", "key_") if f"{which}encoder" in self.parts}
        self.fresh: list[tuple[Tensor, Tensor]] = []  # keys of this step, of all ranks, and the rows they belong to

    def _parts(self, encoder: nn.Module, width: int, seed: int) -> nn.ModuleDict:
        s = self.settings
        kind = next(encoder.parameters()).dtype
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(draws.seed_of(seed, "pretrain"))
            top_layers = head(width, s.dim, width if s.hidden < 0 else s.hidden).to(kind)
            parts = nn.ModuleDict({"encoder": encoder, "head": top_layers})
            if s.method == "moco":
                queue = Queue(s.queue, s.dim, with_ids=not s.own_keys, random_start=True)
                parts["queue"] = queue.to(torch.promote_types(kind, torch.float32))
                parts["key_encoder"], parts["key_head"] = copy.deepcopy(encoder), copy.deepcopy(top_layers)
                for name in ("key_encoder", "key_head"):
                    parts[name].requires_grad_(False)
        return parts

    @property
    def queue(self) -> Queue:
        """The latest keys; there is none in SimCLR."""
        queue = self.parts["queue"]
        assert isinstance(queue, Queue)
        return queue

    def loss(self, batch: Any, at: Progress) -> tuple[Tensor, dict[str, Tensor]]:
        """Of images (n, 2, 3, h, w); with the estimate, its ceiling, and α to log."""
        images = batch.images
        if images.ndim != 5 or images.shape[1] != 2:
            raise InputError(
                f"images have shape {tuple(images.shape)} but must be (n, 2, 3, h, w), two views of each: "
                "write Loader(..., views=2)"
            )
        self.parts.train()
        alpha = self.alpha(at.fraction if self.settings.alpha_per == "step" else at.epoch / at.epochs)
        way = self._moco if self.settings.method == "moco" else self._simclr
        gap, most = way(images, batch.indices, alpha, at)
        numbers = {"estimate": most - gap.detach(), "ceiling": gap.new_full((), most), "alpha": gap.new_full((), alpha)}
        return gap / alpha if self.settings.divide_by_alpha else gap, numbers

    def _moco(self, images: Tensor, rows: Tensor, alpha: float, at: Progress) -> tuple[Tensor, float]:
        group = None if self.ranks.group is None else Group(self.ranks.group, len(images), images.device)
        ways = [(0, 1), (1, 0)] if self.settings.symmetric else [(0, 1)]
        # Keys first: their activations are gone when those of the queries, which wait for the backward pass, come.
        keys = [self._keys(images[:, key], rows, group, (*at.key, len(self.fresh))) for _, key in ways]
        found = []
        for (query, _), k in zip(ways, keys, strict=True):
            found.append(self._told_from_queue(self._embed(images[:, query]), k, rows, alpha, group))
        return torch.stack([gap for gap, _ in found]).mean(), found[0][1]

    def _simclr(self, images: Tensor, rows: Tensor, alpha: float, at: Progress) -> tuple[Tensor, float]:
        first, second = self._embed(images.transpose(0, 1).flatten(0, 1)).chunk(2)
        group = self.ranks.group
        s = self.settings
        gap = contrastive_loss(
            first, second, objective=s.objective, alpha=alpha, temperature=s.temperature, layout="two-view", group=group
        )
        n = len(images) if group is None else Group(group, len(images), images.device).n
        return gap, ceiling(2 * n - 1, alpha)

    def _embedding(self, which: str) -> Replay:
        """Images to unit vectors, in float32 or float64 whatever the products use."""
        encoder, top_layers = self.parts[f"{which}encoder"], self.parts[f"{which}head"]

        def embed(images: Tensor) -> tuple[Tensor]:
            return (F.normalize(widen(top_layers(features(encoder, images))), dim=1),)

        return Replay(nn.ModuleList([encoder, top_layers]), embed)

    def _embed(self, images: Tensor, which: str = "") -> Tensor:
        replay = self.embedding[which]
        if which == "" and self.settings.symmetric:  # two passes before a backward cannot share one
            return replay.run(images)[0]
        return replay(images)[0].clone() if which else replay(images)[0]  # keys outlive the next replay

    @torch.no_grad()
    def _keys(self, images: Tensor, rows: Tensor, group: Group | None, key: tuple[int, ...]) -> Tensor:
        """This rank's keys; those of all ranks wait for the queue.

        Normalisation over a rank's images could tell which key is a query's own, so ranks exchange images first.
        """
        if group is None:
            own = everyones = self._embed(images, "key_")
        elif not self.settings.shuffle:
            own = self._embed(images, "key_")
            everyones = group.all_rows(own)
        else:
            part = slice(group.offset, group.offset + len(images))
            order = draws.permutation(group.n, *key, "shuffle").to(images.device)
            mixed = group.all_rows(self._embed(group.all_rows(images)[order[part]], "key_"))
            everyones = torch.empty_like(mixed)
            everyones[order] = mixed
            own = everyones[part]
        if group is not None and not self.settings.own_keys:
            rows = group.all_rows(rows)
        self.fresh.append((everyones, rows))
        return own

    def _told_from_queue(
        self, q: Tensor, k: Tensor, rows: Tensor, alpha: float, group: Group | None
    ) -> tuple[Tensor, float]:
        """ceiling − estimate, and the ceiling. The queue is read as it lies: full, of unit length, without a copy."""
        s, queue, kind = self.settings, self.queue, q.device.type
        products = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else q.dtype
        pairs = Pairs(bound=1.001 / s.temperature, dtype=products)
        m: int | Tensor = s.queue + 1
        if not s.own_keys:
            pairs = replace(pairs, query_ids=rows, key_ids=queue.stored_ids)
            m = m - pairs.left_out(len(q), s.queue)
        with torch.autocast(kind, enabled=False):
            q = q / s.temperature
            scores = Scores(torch.linalg.vecdot(q, k), row_lse(q, queue.stored, pairs), m)
            gap = loss(scores, s.objective, alpha, group=group)
            return gap, top(scores, alpha, normalise(s.objective), group)

    def after_step(self, batch: Any, at: Progress) -> None:
        """The followers follow, the queue takes the keys that no query of this step saw in it."""
        if self.settings.method == "moco":
            for name in ("encoder", "head"):
                follow(self.parts[f"key_{name}"], self.parts[name], self.settings.momentum)
            keys, rows = (torch.cat(parts) for parts in zip(*self.fresh, strict=True))
            self.queue.update(keys, None if self.settings.own_keys else rows)
        self.fresh = []

    def evaluate(self, at: Progress) -> dict[str, float]:
        """What the caller's evaluation finds, said to all ranks."""
        found: dict[str, float] = {}
        if self.evaluation is not None and self.ranks.rank == 0:
            with torch.no_grad():
                found = self.evaluation(self.parts["encoder"].eval())
        return self.ranks.said_by_first(found)  # type: ignore[no-any-return]
