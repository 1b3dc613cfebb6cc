"""Cross-fitting: each fold's critic is fitted on the other folds' rows, and all of them train as one batched program.

The rows of a fold are never seen by the critic that is read on them: not by its scales, its warm start, its early
stopping (validation rows, cut from the training side) or its temperature.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from mlcpc.mi.features import MODES, Columns, Gaussian, fit_columns, fit_gaussian, modulated, radial
from mlcpc.mi.held_out import HeldOut, clip_of, read_bound, stream_blocks, stream_shifts
from mlcpc.mi.methods import objective
from mlcpc.mi.networks import Critic, Embedded

__all__ = ["Fitted", "Recipe", "fit"]

Tick = Callable[[float], None]
Encoders = tuple[nn.Module | None, nn.Module | None]
TEMPERATURES = (1.0, 0.97, 0.93, 0.88, 0.8, 0.7, 0.6, 0.5, 0.35, 0.2, 0.0)
JOINT_DIMS = 4  # up to so many columns in all, a critic of [x, y] beats a separable one


@dataclass(frozen=True)
class Recipe:
    """How critics are fitted. The defaults were tuned on seeds 0–9 of `mlcpc.mi.tasks`."""

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
    negatives: int = 200
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


@dataclass(frozen=True)
class Fitted:
    """The critics, what they need for new rows, and how they did on held-out and on training rows."""

    critic: Critic
    columns: list[tuple[Columns, Columns]] | None
    temperature: list[float]
    cap: list[float]
    offset: list[float]
    """log mean g over validation pairs: score − offset estimates the log density ratio"""
    held: list[HeldOut]
    train: list[HeldOut]
    units: list[tuple[Tensor, Tensor]]
    """per fold, held-out log density ratios of true pairs and of pairs swapped two by two: (n/2, 2) each"""
    trial_units: list[tuple[Tensor, Tensor]]
    """the same on validation rows"""
    split: Split
    modes: list[str]
    recipe: Recipe


def fit(x: Tensor, y: Tensor, recipe: Recipe, encoders: Encoders = (None, None), tick: Tick = lambda done: None) -> Fitted:
    """Fit on columns x (n, dx), y (n, dy), or on what the encoders take."""
    generator = torch.Generator().manual_seed(recipe.seed)
    split = _split(len(x), recipe, generator)
    encoded = any(encoder is not None for encoder in encoders)
    modes = list(MODES) if recipe.inputs == "auto" and not encoded else [recipe.inputs]
    if encoded:
        critic, views, columns = _encoded(x, y, recipe, encoders, generator)
        names = ["encoder"] * recipe.folds
    else:
        views, columns, starts, names = _prepare(x, y, split, modes)
        dims = (x.shape[1], y.shape[1])
        joint = sum(dims) <= JOINT_DIMS if recipe.joint is None else recipe.joint
        critic = Critic(dims, starts, joint, (64, 1) if joint else (recipe.width, recipe.embedding), generator)
        if len(starts) > recipe.folds:
            both = Split(*(part.repeat(2, 1) for part in (split.train, split.validation, split.test)))
            pilot = replace(recipe, steps=max(50, recipe.steps // 6))
            best = _train(critic, views, both, pilot, generator, lambda done: tick(done / 4))
            runs = [max((k, k + recipe.folds), key=lambda r: best[r]) for k in range(recipe.folds)]
            _keep(critic, runs)
            views, columns, names = views.keep(runs), [columns[r] for r in runs], [names[r] for r in runs]
    _train(critic, views, split, recipe, generator, lambda done: tick(0.25 + 0.65 * done))
    fitted = _finish(critic, views, split, recipe, columns if not encoded else None, names)
    tick(1.0)
    return fitted


def _split(n: int, recipe: Recipe, generator: torch.Generator) -> Split:
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


def _prepare(
    x: Tensor, y: Tensor, split: Split, modes: list[str]
) -> tuple[Views, list[tuple[Columns, Columns]], list[tuple[Gaussian, Tensor, Tensor]], list[str]]:
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
    sides = (torch.stack([pair[s] for pair in views]) for s in (0, 1))
    return Views(*sides, (False, False)), columns, starts, names


def _warm_start(zx: Tensor, zy: Tensor, train: Tensor, validation: Tensor) -> tuple[Gaussian, Tensor, Tensor]:
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
    with torch.no_grad():
        sides = (z[validation].expand(len(starts), -1, -1) for z in (zx, zy))
        embedded = trial.embed(*sides)
        values = [_best_value(embedded.rows(r)) - 0.02 * r for r in range(len(starts))]
    return starts[max(range(len(starts)), key=lambda r: values[r])]


def _encoded(
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
    critic = Critic((dims[0], dims[1]), starts, False, (recipe.width, recipe.embedding), generator, (filled[0], filled[1]))
    return critic, Views(x, y, (True, True)), []


def _train(critic: Critic, views: Views, split: Split, recipe: Recipe, generator: torch.Generator, tick: Tick) -> list[float]:
    """Adam with a cosine schedule; each critic ends at its own best validation step. Gives the best values."""
    rate = 1e-2 if critic.residual is not None else recipe.learning_rate
    optimizer = torch.optim.AdamW(_groups(critic, recipe, rate))
    top_rates = [float(group["lr"]) for group in optimizer.param_groups]
    runs, rows = split.train.shape
    batch = min(recipe.batch, rows // 2)
    best, kept = [-math.inf] * runs, {name: value.detach().clone() for name, value in critic.named_parameters()}
    order, at, stale = torch.zeros(0), rows, 0
    for step in range(recipe.steps + 1):
        if step % recipe.every == 0:
            values = _validate(critic, views, split.validation, recipe.method)
            better = [r for r in range(runs) if values[r] > best[r] + 1e-4]
            stale = 0 if better else stale + 1
            for r in better:
                best[r] = values[r]
                _copy_run(critic, kept, r)
            if stale >= recipe.patience or step == recipe.steps:
                break
            tick(step / recipe.steps)
        if at + batch > rows:
            order, at = torch.rand(runs, rows, generator=generator).argsort(1), 0
        chosen = split.train.gather(1, order[:, at : at + batch])
        at += batch
        scale = 0.5 * (1 + math.cos(math.pi * step / recipe.steps)) * min(1.0, (step + 1) / 20)
        for group, top in zip(optimizer.param_groups, top_rates, strict=True):
            group["lr"] = scale * top
        value = objective(recipe.method, *_scores(critic, *views(chosen), generator))
        optimizer.zero_grad()
        (-value.sum()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        for name, parameter in critic.named_parameters():
            parameter.copy_(kept[name])
    return best


def _groups(critic: Critic, recipe: Recipe, rate: float) -> list[dict[str, object]]:
    """The closed-form part moves slowly and does not decay; networks decay unless joint."""
    closed = [critic.w, critic.q, critic.x.directions, critic.y.directions]
    others = [p for p in critic.parameters() if all(p is not c for c in closed)]
    decay = 0.0 if critic.residual is not None else recipe.decay
    return [{"params": closed, "lr": rate / 10, "weight_decay": 0.0}, {"params": others, "lr": rate, "weight_decay": decay}]


@torch.no_grad()
def _copy_run(critic: Critic, kept: dict[str, Tensor], run: int) -> None:
    for name, parameter in critic.named_parameters():
        if ".encoders." not in name:
            kept[name][run] = parameter[run]
        elif f".encoders.{run}." in name:
            kept[name].copy_(parameter)


@torch.no_grad()
def _keep(critic: Critic, runs: list[int]) -> None:
    """Drop all critics but these."""
    for parameter in critic.parameters():
        parameter.data = parameter.data[runs].clone()
        parameter.grad = None
    for side in (critic.x, critic.y):
        side.centre, side.spread = side.centre[runs], side.spread[runs]


def _scores(critic: Critic, x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Positives (R, n) and negatives (R, m−1, n): all others of the batch, or a few shifts for a joint critic."""
    n = x.shape[1]
    if critic.residual is not None:
        shifts = (torch.randperm(n - 1, generator=generator)[:7] + 1).tolist()
        scores = critic.pairs(x, y, [0, *shifts])
        return scores[:, 0], scores[:, 1:]
    e = critic.embed(critic.x.columns(x), critic.y.columns(y))
    square = torch.baddbmm(e.from_x[:, :, None] + e.from_y[:, None], e.left, e.right.transpose(1, 2))
    others = square.flatten(1)[:, 1:].unflatten(1, (n - 1, n + 1))[..., :-1]
    return square.diagonal(dim1=1, dim2=2), others.reshape(len(square), n, n - 1).transpose(1, 2)


@torch.no_grad()
def _validate(critic: Critic, views: Views, rows: Tensor, method: str) -> list[float]:
    critic.eval()
    found = []
    if critic.residual is not None:
        x, y = views(rows)
        step = max(1, rows.shape[1] // 24)
        scores = critic.pairs(x, y, [0, *range(1, rows.shape[1], step)])
        found = objective(method, scores[:, 0], scores[:, 1:]).tolist()
    else:
        e = _embed(critic, views, rows)
        method = {"smile": "dv", "js": "nwj"}.get(method, method)
        found = [read_bound(stream_blocks(e.rows(r), math.inf), method)[0] for r in range(len(rows))]
    critic.train()
    return found


def _embed(critic: Critic, views: Views, rows: Tensor) -> Embedded:
    """In pieces, so an encoder never sees more than a thousand rows at once."""
    pieces = []
    for part in rows.split(1000, dim=1):
        x, y = views(part)
        pieces.append(critic.embed(critic.x.columns(x), critic.y.columns(y)))
    return Embedded(*(torch.cat(parts, 1) for parts in zip(*pieces, strict=True)))


def _best_value(e: Embedded) -> float:
    """The highest J over the temperatures; 0 nats at temperature 0, where the critic says nothing."""
    return max(read_bound(stream_blocks(e, math.inf, t))[0] for t in TEMPERATURES)


@torch.no_grad()
def _finish(
    critic: Critic,
    views: Views,
    split: Split,
    recipe: Recipe,
    columns: list[tuple[Columns, Columns]] | None,
    names: list[str],
) -> Fitted:
    """Calibrate on validation rows, then read the held-out rows, once."""
    critic.eval()
    runs = len(split.train)
    floor, clip = clip_of(recipe.method)
    reader = Reader(critic, recipe)
    seen = split.train[:, : split.test.shape[1]]
    tops = [float(v) for v in reader.positives(views, seen).max(1).values]
    method = {"smile": "dv", "js": "nwj"}.get(recipe.method, recipe.method)
    temperature, offset = [], []
    for r in range(runs):
        trials = [(reader(views, split.validation, r, t, tops[r] * t if tops[r] > 0 else math.inf), t) for t in TEMPERATURES]
        held, best = max(trials, key=lambda trial: read_bound(trial[0], method)[0])
        temperature.append(best)
        offset.append(held.log_mean)
    cap = [min(clip, t * top if top > 0 else math.inf) for t, top in zip(temperature, tops, strict=True)]
    held_out = [reader(views, split.test, r, temperature[r], cap[r], floor) for r in range(runs)]
    train = [reader(views, seen, r, temperature[r], cap[r], floor) for r in range(runs)]
    scale = torch.tensor(temperature)[:, None, None], torch.tensor(offset)[:, None, None]
    units, trial_units = (_units(critic, views, rows, *scale) for rows in (split.test, split.validation))
    return Fitted(
        critic, columns, temperature, cap, offset, held_out, train, units, trial_units, split, names, recipe
    )


def _units(critic: Critic, views: Views, rows: Tensor, scale: Tensor, offset: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Two rows at a time: f(a, a'), f(b, b') and, swapped, f(a, b'), f(b, a')."""
    even = rows[:, : rows.shape[1] // 2 * 2]
    swapped = even.unflatten(1, (-1, 2)).flip(2).flatten(1)
    found = []
    for other in (even, swapped):
        parts = [aligned(critic, views(a)[0], views(b)[1]) for a, b in zip(even.split(1000, 1), other.split(1000, 1), strict=True)]
        found.append(torch.cat(parts, 1).unflatten(1, (-1, 2)) * scale - offset)
    return list(zip(found[0], found[1], strict=True))


def aligned(critic: Critic, x: Tensor, y: Tensor) -> Tensor:
    """Scores of row i of x with row i of y, (R, n)."""
    return critic.pairs(critic.x.columns(x), critic.y.columns(y), [0])[:, 0]


class Reader:
    """Reads one critic of the batch on some rows: all pairs, or `negatives` shifts where it is joint."""

    def __init__(self, critic: Critic, recipe: Recipe) -> None:
        self.critic, self.recipe = critic, recipe
        self._cache: dict[int, Embedded | Tensor] = {}

    def positives(self, views: Views, rows: Tensor) -> Tensor:
        """Scores of the pairs themselves, (R, n)."""
        if self.critic.residual is not None:
            return self.critic.pairs(*views(rows), [0])[:, 0]
        return _embed(self.critic, views, rows).pairs()

    def __call__(
        self, views: Views, rows: Tensor, run: int, temperature: float, cap: float, floor: float = -math.inf
    ) -> HeldOut:
        """Rows (R, n) of run `run`."""
        if self.critic.residual is None:
            return stream_blocks(self._embedded(views, rows).rows(run), cap, temperature, floor)
        n = rows.shape[1]
        count = min(self.recipe.negatives, n - 1)
        shifts = [s * (n - 1) // count + 1 for s in range(count)]
        scores = self._scores(views, rows, [0, *shifts])[run]
        where = {s: k for k, s in enumerate([0, *shifts])}
        return stream_shifts(
            lambda group: scores[[where[s] for s in group]].clamp_min(floor / temperature if temperature else floor),
            [shifts[i : i + 20] for i in range(0, count, 20)],
            cap,
            temperature,
        )

    def _embedded(self, views: Views, rows: Tensor) -> Embedded:
        if id(rows) not in self._cache:
            self._cache = {id(rows): _embed(self.critic, views, rows)}
        found = self._cache[id(rows)]
        assert isinstance(found, Embedded)
        return found

    def _scores(self, views: Views, rows: Tensor, shifts: list[int]) -> Tensor:
        if id(rows) not in self._cache:
            x, y = views(rows)
            parts = [self.critic.pairs(x, y, shifts[i : i + 20]) for i in range(0, len(shifts), 20)]
            self._cache = {id(rows): torch.cat(parts, 1)}
        found = self._cache[id(rows)]
        assert isinstance(found, Tensor)
        return found
