"""Before training: which rows are whose, what each critic sees of them, and where it starts from."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from mlcpc.mi.features import Columns, Gaussian, fit_columns, fit_gaussian, modulated, radial
from mlcpc.mi.held_out import Bent, read_bound, stream_blocks
from mlcpc.mi.networks import Critic, Embedded

__all__ = ["TEMPERATURES", "Encoders", "Recipe", "Split", "Views", "embed_rows", "encoded", "prepare", "split_rows"]

Encoders = tuple[nn.Module | None, nn.Module | None]
Start = tuple[Gaussian, Tensor, Tensor]
TEMPERATURES = (1.0, 0.97, 0.93, 0.88, 0.8, 0.7, 0.6, 0.5, 0.35, 0.2, 0.0)


@dataclass(frozen=True)
class Recipe:
    """How critics are fitted. The defaults were tuned on `mlcpc.mi.tasks`, seeds 0–9."""

    method: str = "ml_cpc"
    inputs: str = "auto"
    joint: bool | None = None
    folds: int = 5
    steps: int = 600
    batch: int = 256
    width: int = 128
    embedding: int = 32
    learning_rate: float = 3e-3
    decay: float = 1.0
    every: int = 25
    patience: int = 8
    negatives: int = 100
    """a joint critic is read on this many negatives a row (a separable one on all)"""
    held_out: int = 5000
    """rows of a fold that are read at most"""
    seed: int = 0


@dataclass(frozen=True)
class Split:
    """Row numbers, (R, n) each."""

    train: Tensor
    validation: Tensor
    test: Tensor

    @property
    def beside(self) -> Tensor:
        """As many training rows as there are validation rows."""
        return self.train[:, : self.validation.shape[1]]

    @property
    def ceiling(self) -> float:
        """log(n(n−1)+1): what all pairs of the test rows can show at most."""
        n = self.test.shape[1]
        return math.log(n * (n - 1) + 1)

    def alpha(self, m: int) -> float:
        """The α at which m candidates weigh the positives as they will be weighed on the test rows.

        Validation rows are fewer than test rows, and at their own α_{m,n} they would favour too flat a critic.
        """
        return m / math.exp(self.ceiling)

    def keep(self, runs: list[int]) -> "Split":
        """The same for some of the runs."""
        return Split(self.train[runs], self.validation[runs], self.test[runs])


@dataclass(frozen=True)
class Views:
    """What critic r sees of row i: x[r, i], or an encoder's raw x[i], shared by all."""

    x: Tensor
    y: Tensor
    raw: tuple[bool, bool]

    def __call__(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        runs = torch.arange(len(rows))[:, None]
        x, y = (side[rows] if raw else side[runs, rows] for side, raw in zip((self.x, self.y), self.raw, strict=True))
        return x, y

    def keep(self, runs: list[int]) -> "Views":
        """The same for some of the runs."""
        x, y = (side if raw else side[runs] for side, raw in zip((self.x, self.y), self.raw, strict=True))
        return replace(self, x=x, y=y)


def split_rows(n: int, recipe: Recipe, generator: torch.Generator) -> Split:
    order = torch.randperm(n, generator=generator)
    size = n // recipe.folds
    parts = [order[k * size : (k + 1) * size] for k in range(recipe.folds)]
    train, validation = [], []
    for k in range(recipe.folds):
        rest = torch.cat(parts[:k] + parts[k + 1 :] + [order[recipe.folds * size :]])
        cut = min(max(20, len(rest) // 10), len(rest) // 3, 2000)
        validation.append(rest[:cut])
        train.append(rest[cut:])
    return Split(torch.stack(train), torch.stack(validation), torch.stack(parts)[:, : recipe.held_out])


def prepare(
    x: Tensor, y: Tensor, split: Split, modes: list[str]
) -> tuple[Views, list[tuple[Columns, Columns]], list[Start], list[str]]:
    """Scales and warm starts of every mode and fold; one mode where the two hardly differ."""
    views, columns, starts, names = [], [], [], []
    for mode in modes:
        for train, validation in zip(split.train, split.validation, strict=True):
            scales = fit_columns(x[train], mode), fit_columns(y[train], mode)
            zx, zy = scales[0](x), scales[1](y)
            views.append((zx, zy))
            columns.append(scales)
            starts.append(_warm_start(zx, zy, train, validation))
            names.append(mode)
    if len(modes) == 2:
        apart = max(float((views[0][s] - views[len(split.train)][s]).abs().mean()) for s in (0, 1))
        if apart < 0.05:
            folds = len(split.train)
            views, columns, starts, names = views[:folds], columns[:folds], starts[:folds], names[:folds]
    left, right = (torch.stack([pair[s] for pair in views]) for s in (0, 1))
    return Views(left, right, (False, False)), columns, starts, names


def _warm_start(zx: Tensor, zy: Tensor, train: Tensor, validation: Tensor) -> Start:
    """The closed-form critic, with as much radial modulation as validation rows reward."""
    radii = []
    for z in (zx, zy):
        square = z[train].square().mean(1)
        radii.append(torch.stack([square.mean(), square.std().clamp_min(1e-3)]))
    level = min(Gaussian.highest_level(zx.shape[1]), Gaussian.highest_level(zy.shape[1]))
    rx, ry = (radial(z, *radius) for z, radius in zip((zx, zy), radii, strict=True))
    starts = [
        (fit_gaussian(modulated(zx[train], rx[train], k), modulated(zy[train], ry[train], k), k), radii[0], radii[1])
        for k in range(level + 1)
    ]
    if level == 0:
        return starts[0]
    trial = Critic((zx.shape[1], zy.shape[1]), starts, True, (1, 1), torch.Generator())
    worth = [-0.02 * k for k in range(len(starts))]
    with torch.no_grad():
        both = [
            trial.embed(*(z[rows].expand(len(starts), -1, -1) for z in (zx, zy)))
            for rows in (validation, train[: len(validation)])
        ]
        for k in range(len(starts)):
            worth[k] += _best_value([embedded.rows(k) for embedded in both])
    return starts[worth.index(max(worth))]


def encoded(
    x: Tensor, y: Tensor, recipe: Recipe, encoders: Encoders, generator: torch.Generator
) -> tuple[Critic, Views, list[tuple[Columns, Columns]]]:
    with torch.no_grad():
        dims = [
            side[:2].flatten(1).shape[1] if encoder is None else encoder(side[:2]).flatten(1).shape[1]
            for side, encoder in zip((x, y), encoders, strict=True)
        ]
    nothing = torch.zeros(0)
    plain = torch.tensor([1.0, 1.0])
    gaussian = Gaussian(torch.zeros(dims[0], 0), torch.zeros(dims[1], 0), nothing, nothing, 0)
    filled = tuple(encoder if encoder is not None else nn.Flatten() for encoder in encoders)
    starts = [(gaussian, plain, plain)] * recipe.folds
    critic = Critic(
        (dims[0], dims[1]), starts, False, (recipe.width, recipe.embedding), generator, (filled[0], filled[1])
    )
    return critic, Views(x, y, (True, True)), []


def embed_rows(critic: Critic, views: Views, rows: Tensor) -> Embedded:
    """In pieces, so an encoder never sees more than a thousand rows at once."""
    pieces = []
    for part in torch.split(rows, 1000, 1):
        x, y = views(part)
        pieces.append(critic.embed(critic.x.columns(x), critic.y.columns(y)))
    return Embedded(*(torch.cat(parts, 1) for parts in zip(*pieces, strict=True)))


def _best_value(parts: list[Embedded]) -> float:
    """The highest J over the temperatures, on the part where it is lower; no score above the first part's best pair."""
    top = float(parts[0].pairs().max())
    return max(min(read_bound(stream_blocks(e, Bent(t, t * top)))[0] for e in parts) for t in TEMPERATURES)
