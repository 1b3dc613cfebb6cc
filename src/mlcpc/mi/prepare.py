"""Before training: which rows are whose, what each critic sees of them, and where it starts from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from mlcpc.mi.features import Columns, Gaussian, fit_columns, fit_gaussians, modulated, radial
from mlcpc.mi.held_out import Bent, climb, read_bound, stream_blocks
from mlcpc.mi.networks import Critic, Embedded

__all__ = [
    "TEMPERATURES",
    "Encoders",
    "Recipe",
    "Scales",
    "Split",
    "Views",
    "embed_rows",
    "encoded",
    "prepare",
    "split_rows",
]

Encoders = tuple[nn.Module | None, nn.Module | None]
Start = tuple[Gaussian, Tensor, Tensor]
Scales = tuple[Columns | None, Columns | None]
"""of x and of y; None where an encoder takes the rows as they are"""
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
    """rows of a fold that are read together at most"""
    seed: int = 0

    def together(self, n: int) -> int:
        """Of n rows, how many of a fold are read together: as many in each block, so a little fewer than `held_out`."""
        size = n // self.folds
        return size // max(1, math.ceil(size / self.held_out))


@dataclass(frozen=True)
class Split:
    """Row numbers, (R, n) each."""

    train: Tensor
    validation: Tensor
    test: Tensor
    together: int
    """test rows that are read together: of more, blocks are"""

    @property
    def blocks(self) -> tuple[Tensor, ...]:
        """The test rows as they are read."""
        return self.test.tensor_split(self.test.shape[1] // self.together, 1)

    @property
    def beside(self) -> Tensor:
        """As many training rows as there are validation rows."""
        return self.train[:, : self.validation.shape[1]]

    @property
    def ceiling(self) -> float:
        """log(n(n−1)+1): what all pairs of the n test rows that are read together can show at most."""
        return math.log(self.together * (self.together - 1) + 1)

    def alpha(self, m: int) -> float:
        """The α at which m candidates weigh the positives as they will be weighed on the test rows.

        Validation rows are fewer than test rows, and at their own α_{m,n} they would favour too flat a critic.
        """
        return m / math.exp(self.ceiling)

    def keep(self, runs: list[int]) -> "Split":
        """The same for some of the runs."""
        return replace(self, train=self.train[runs], validation=self.validation[runs], test=self.test[runs])


@dataclass(frozen=True)
class Views:
    """What critic r sees of row i: x[r, i], or an encoder's raw x[i], shared by all."""

    x: Tensor
    y: Tensor
    raw: tuple[bool, bool]

    @property
    def n(self) -> int:
        """How many rows there are."""
        return self.x.shape[0 if self.raw[0] else 1]

    def __call__(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        flat = (rows + self.n * torch.arange(len(rows))[:, None]).flatten()
        x, y = (
            side[rows] if raw else side.flatten(0, 1).index_select(0, flat).view(*rows.shape, -1)
            for side, raw in zip((self.x, self.y), self.raw, strict=True)
        )
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
    return Split(torch.stack(train), torch.stack(validation), torch.stack(parts), recipe.together(n))


def prepare(x: Tensor, y: Tensor, split: Split, modes: list[str]) -> tuple[Views, list[Scales], list[Start], list[str]]:
    """Scales and warm starts of every mode and fold; a mode that hardly differs from an earlier one is left out."""
    views: list[tuple[Tensor, Tensor]] = []
    columns: list[Scales] = []
    starts: list[Start] = []
    names: list[str] = []
    folds, some = len(split.train), split.train[0, :1000]
    for mode in modes:
        fits = ((fit_columns(x[train], mode), fit_columns(y[train], mode)) for train in split.train)
        first = next(fits)  # most modes can be left out on sight of one fold
        trial = first[0](x[some]), first[1](y[some])
        if any(_apart(trial, (zx[some], zy[some])) < 0.05 for zx, zy in views[::folds]):
            continue
        scales = [first, *fits]
        seen = [(of_x(x), of_y(y)) for of_x, of_y in scales]
        views += seen
        columns += scales
        starts += [_warm_start(*z, *rows) for z, *rows in zip(seen, split.train, split.validation, strict=True)]
        names += [mode] * folds
    left, right = (torch.stack([pair[s] for pair in views]) for s in (0, 1))
    return Views(left, right, (False, False)), columns, starts, names


def _apart(views: tuple[Tensor, Tensor], others: tuple[Tensor, Tensor]) -> float:
    return max(float((z - other).abs().mean()) for z, other in zip(views, others, strict=True))


def _warm_start(zx: Tensor, zy: Tensor, train: Tensor, validation: Tensor) -> Start:
    """The closed-form critic, with as much radial modulation as validation rows reward."""
    radii = []
    for z in (zx, zy):
        square = z[train].square().mean(1)
        radii.append(torch.stack([square.mean(), square.std().clamp_min(1e-3)]))
    level = min(Gaussian.highest_level(zx.shape[1]), Gaussian.highest_level(zy.shape[1]))
    rx, ry = (radial(z, *radius) for z, radius in zip((zx, zy), radii, strict=True))
    fits = fit_gaussians(modulated(zx[train], rx[train], level), modulated(zy[train], ry[train], level), level)
    starts = [(fit, radii[0], radii[1]) for fit in fits]
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
    x: Tensor, y: Tensor, split: Split, recipe: Recipe, encoders: Encoders, generator: torch.Generator
) -> tuple[Critic, Views, list[Scales]]:
    """Critics behind encoders; a side without one is standardised. No warm start: nobody knows what comes out."""
    seen, scales, dims = [], [], []
    of: Sequence[Columns | None]
    for side, encoder, name in zip((x, y), encoders, "xy", strict=True):
        if encoder is None:
            standard = [fit_columns(side[train], "standard") for train in split.train]
            of = standard
            seen.append(torch.stack([scale(side) for scale in standard]))
            dims.append(side.shape[1])
        else:
            of = [None] * recipe.folds
            seen.append(side)
            dims.append(_width(encoder, side, name))
        scales.append(of)
    nothing = torch.zeros(0)
    plain = torch.tensor([1.0, 1.0])
    gaussian = Gaussian(torch.zeros(dims[0], 0), torch.zeros(dims[1], 0), nothing, nothing, 0)
    starts = [(gaussian, plain, plain)] * recipe.folds
    critic = Critic((dims[0], dims[1]), starts, False, (recipe.width, recipe.embedding), generator, encoders)
    raw = encoders[0] is not None, encoders[1] is not None
    return critic, Views(seen[0], seen[1], raw), list(zip(*scales, strict=True))


@torch.no_grad()
def _width(encoder: nn.Module, rows: Tensor, name: str) -> int:
    """Numbers that an encoder gives for a row."""
    training = encoder.training
    try:
        out = encoder.eval()(rows[:2])
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
        shape = f"(n, {', '.join(map(str, rows.shape[1:]))})" if rows.ndim > 1 else "(n,)"
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"encoder_{name} does not take rows of {name}, {shape} of {rows.dtype}: {reason}") from error
    finally:
        encoder.train(training)
    if not isinstance(out, Tensor) or len(out) != 2 or not out.is_floating_point():
        made = str(tuple(out.shape)) if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(f"encoder_{name} makes {made} of two rows but must make one vector of numbers for each row")
    return out[0].numel()


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
    return climb((min(read_bound(stream_blocks(e, Bent(t, t * top)))[0] for e in parts),) for t in TEMPERATURES)[0]
