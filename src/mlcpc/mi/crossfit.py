"""Cross-fitting: each fold's critic is fitted on the other folds' rows, and all of them train as one batched program.

The rows of a fold are never seen by the critic that is read on them: not by its scales, its warm start, its early
stopping (validation rows, cut from the training side) or its temperature.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mlcpc.mi.features import MODES, Columns
from mlcpc.mi.held_out import HeldOut, clip_of, read_bound, stream_blocks, stream_shifts
from mlcpc.mi.networks import Critic, Embedded
from mlcpc.mi.prepare import TEMPERATURES, Encoders, Recipe, Split, Views, embed_rows, encoded, prepare, split_rows
from mlcpc.mi.train import keep, train

__all__ = ["JOINT_DIMS", "Fitted", "Reader", "aligned", "fit"]

Tick = Callable[[float], None]
JOINT_DIMS = 4  # up to so many columns in all, a critic of [x, y] beats a separable one


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
    seen: list[HeldOut]
    units: list[tuple[Tensor, Tensor]]
    """per fold, held-out log density ratios of true pairs and of pairs swapped two by two: (n/2, 2) each"""
    trial_units: list[tuple[Tensor, Tensor]]
    """the same on validation rows"""
    split: Split
    modes: list[str]
    recipe: Recipe


def fit(
    x: Tensor, y: Tensor, recipe: Recipe, encoders: Encoders = (None, None), tick: Tick = lambda done: None
) -> Fitted:
    """Fit on columns x (n, dx), y (n, dy), or on what the encoders take."""
    generator = torch.Generator().manual_seed(recipe.seed)
    split = split_rows(len(x), recipe, generator)
    by_encoder = any(encoder is not None for encoder in encoders)
    modes = list(MODES) if recipe.inputs == "auto" and not by_encoder else [recipe.inputs]
    if by_encoder:
        critic, views, columns = encoded(x, y, recipe, encoders, generator)
        names = ["encoder"] * recipe.folds
    else:
        views, columns, starts, names = prepare(x, y, split, modes)
        dims = (x.shape[1], y.shape[1])
        joint = sum(dims) <= JOINT_DIMS if recipe.joint is None else recipe.joint
        critic = Critic(dims, starts, joint, (64, 1) if joint else (recipe.width, recipe.embedding), generator)
        if len(starts) > recipe.folds:
            both = Split(*(part.repeat(2, 1) for part in (split.train, split.validation, split.test)))
            pilot = replace(recipe, steps=max(50, recipe.steps // 6))
            best = train(critic, views, both, pilot, generator, lambda done: tick(done / 4))
            runs = [max((k, k + recipe.folds), key=lambda r: best[r]) for k in range(recipe.folds)]
            keep(critic, runs)
            views, columns, names = views.keep(runs), [columns[r] for r in runs], [names[r] for r in runs]
    train(critic, views, split, recipe, generator, lambda done: tick(0.25 + 0.65 * done))
    fitted = _finish(critic, views, split, recipe, None if by_encoder else columns, names)
    tick(1.0)
    return fitted


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
    beside = split.beside
    own = reader.positives(views, split.validation)
    temperature, offset, cap = [], [], []
    for r in range(runs):
        held, t, top = _calibrate(reader, views, split, beside, r, own[r])
        temperature.append(t)
        offset.append(held.log_mean)
        cap.append(min(clip, top))
    held_out = [reader(views, split.test, r, temperature[r], cap[r], floor) for r in range(runs)]
    train = [reader(views, seen, r, temperature[r], cap[r], floor) for r in range(runs)]
    scale = torch.tensor(temperature)[:, None, None], torch.tensor(offset)[:, None, None]
    units, trial_units = (_units(critic, views, rows, *scale) for rows in (split.test, split.validation))
    return Fitted(critic, columns, temperature, cap, offset, held_out, train, units, trial_units, split, names, recipe)


def _calibrate(
    reader: "Reader", views: Views, split: Split, beside: Tensor, run: int, own: Tensor
) -> tuple[HeldOut, float, float]:
    """(validation rows as read, temperature, cap) that do best on validation rows.

    No score may pass the highest one that a true validation pair had, or a lower quantile where that does better: a
    network that meets something new may say anything, and one such pair would rule the sum over all negatives. As many
    training rows are read beside the validation rows, and the worse of the two counts: few rows may miss such a pair.
    """
    method = {"smile": "dv", "js": "nwj"}.get(reader.recipe.method, reader.recipe.method)

    def attempt(t: float, quantile: float) -> tuple[float, HeldOut, float, float]:
        cap = t * float(own.quantile(quantile))
        held, other = (reader(views, rows, run, t, cap) for rows in (split.validation, beside))
        return min(read_bound(h, method, split.alpha(h.m))[0] for h in (held, other)), held, t, cap

    found = max((attempt(t, 1.0) for t in TEMPERATURES), key=lambda trial: trial[0])
    found = max((found, *(attempt(found[2], q) for q in (0.98, 0.9))), key=lambda trial: trial[0])
    return found[1:]


def _units(critic: Critic, views: Views, rows: Tensor, scale: Tensor, offset: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Two rows at a time: f(a, a'), f(b, b') and, swapped, f(a, b'), f(b, a')."""
    even = rows[:, : rows.shape[1] // 2 * 2]
    swapped = even.view(len(even), -1, 2).flip(2).flatten(1)
    found = []
    for other in (even, swapped):
        parts = [
            aligned(critic, views(a)[0], views(b)[1])
            for a, b in zip(torch.split(even, 1000, 1), torch.split(other, 1000, 1), strict=True)
        ]
        found.append(torch.cat(parts, 1).view(len(even), -1, 2) * scale - offset)
    return list(zip(found[0], found[1], strict=True))


def aligned(critic: Critic, x: Tensor, y: Tensor) -> Tensor:
    """Scores of row i of x with row i of y, (R, n)."""
    return critic.pairs(critic.x.columns(x), critic.y.columns(y), [0])[:, 0]


class Reader:
    """Reads one critic of the batch on some rows: all pairs, or `negatives` shifts where it is joint.

    It keeps what it computed for the very tensors of row numbers that it was given.
    """

    def __init__(self, critic: Critic, recipe: Recipe) -> None:
        self.critic, self.recipe = critic, recipe
        self._separable: list[tuple[Tensor, Embedded]] = []
        self._joint: list[tuple[Tensor, Tensor]] = []

    def positives(self, views: Views, rows: Tensor) -> Tensor:
        """Scores of the pairs themselves, (R, n)."""
        if self.critic.residual is not None:
            return self.critic.pairs(*views(rows), [0])[:, 0]
        return embed_rows(self.critic, views, rows).pairs()

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
        groups = [shifts[i : i + 20] for i in range(0, count, 20)]
        return stream_shifts(lambda group: scores[[where[s] for s in group]], groups, cap, temperature, floor)

    def _embedded(self, views: Views, rows: Tensor) -> Embedded:
        for known, embedded in self._separable:
            if known is rows:
                return embedded
        self._separable.append((rows, embed_rows(self.critic, views, rows)))
        return self._separable[-1][1]

    def _scores(self, views: Views, rows: Tensor, shifts: list[int]) -> Tensor:
        for known, scores in self._joint:
            if known is rows:
                return scores
        x, y = views(rows)
        parts = [self.critic.pairs(x, y, shifts[i : i + 20]) for i in range(0, len(shifts), 20)]
        self._joint.append((rows, torch.cat(parts, 1)))
        return self._joint[-1][1]
