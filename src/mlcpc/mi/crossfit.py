"""Cross-fitting: each fold's critic is fitted on the other folds' rows, and all of them train as one batched program.

The rows of a fold are never seen by the critic that is read on them: not by its scales, its warm start, its early
stopping (validation rows, cut from the training side) or its temperature.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import itemgetter

import torch
from torch import Tensor

from mlcpc.mi.features import MODES
from mlcpc.mi.held_out import Bent, HeldOut, climb, read_bound, stream_blocks, stream_cut, stream_shifts
from mlcpc.mi.methods import SMILE_CLIP
from mlcpc.mi.networks import Critic, Embedded
from mlcpc.mi.prepare import (
    TEMPERATURES,
    Encoders,
    Recipe,
    Scales,
    Split,
    Views,
    embed_rows,
    encoded,
    prepare,
    split_rows,
)
from mlcpc.mi.train import keep, train

__all__ = ["JOINT_DIMS", "Fitted", "Reader", "aligned", "fit"]

Tick = Callable[[float], None]
JOINT_DIMS = 4  # up to so many columns in all, a critic of [x, y] beats a separable one


@dataclass(frozen=True)
class Fitted:
    """The critics, what they need for new rows, and how they did on held-out and on training rows."""

    critic: Critic
    columns: list[Scales]
    bent: list[Bent]
    offset: list[float]
    """log mean g over validation pairs: score − offset estimates the log density ratio"""
    held: list[HeldOut]
    """of each block of each fold"""
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
        critic, views, columns = encoded(x, y, split, recipe, encoders, generator)
        names = ["encoder"] * recipe.folds
    else:
        views, columns, starts, names = prepare(x, y, split, modes)
        dims = (x.shape[1], y.shape[1])
        joint = sum(dims) <= JOINT_DIMS if recipe.joint is None else recipe.joint
        critic = Critic(dims, starts, joint, (64, 1) if joint else (recipe.width, recipe.embedding), generator)
        if len(starts) > recipe.folds:
            modes_tried = len(starts) // recipe.folds
            both = split.keep(list(range(recipe.folds)) * modes_tried)
            pilot = replace(recipe, steps=max(50, recipe.steps // 6))
            best = train(critic, views, both, pilot, generator, lambda done: tick(done / 4))
            runs = [max(range(k, len(starts), recipe.folds), key=lambda r: best[r]) for k in range(recipe.folds)]
            keep(critic, runs)
            views, columns, names = views.keep(runs), [columns[r] for r in runs], [names[r] for r in runs]
    train(critic, views, split, recipe, generator, lambda done: tick(0.25 + 0.65 * done))
    fitted = _finish(critic, views, split, recipe, columns, names)
    tick(1.0)
    return fitted


@torch.no_grad()
def _finish(
    critic: Critic,
    views: Views,
    split: Split,
    recipe: Recipe,
    columns: list[Scales],
    names: list[str],
) -> Fitted:
    """Calibrate on validation rows, then read the held-out rows, once."""
    critic.eval()
    runs = len(split.train)
    reader = Reader(critic, recipe)
    blocks, rows = split.blocks, split.together
    seen = split.train[:, : rows if critic.residual is None else min(rows, 2000)]
    beside = split.beside
    own = reader.positives(views, split.validation)
    bent, offset = [], []
    for r in range(runs):
        found, best = _calibrate(reader, views, split, beside, r, own[r])
        bent.append(found)
        offset.append(best.log_mean)
    held_out = [reader(views, block, r, bent[r]) for block in blocks for r in range(runs)]
    trained = [reader(views, seen, r, bent[r]) for r in range(runs)]
    units, trial_units = (_units(critic, views, rows, bent, offset) for rows in (split.test, split.validation))
    return Fitted(critic, columns, bent, offset, held_out, trained, units, trial_units, split, names, recipe)


def _calibrate(
    reader: "Reader", views: Views, split: Split, beside: Tensor, run: int, own: Tensor
) -> tuple[Bent, HeldOut]:
    """How to read a critic, and the validation rows read so: what does best on validation rows.

    No score may pass the highest one that a true validation pair had, or a lower quantile where that does better: a
    network that meets something new may say anything, and one such pair would rule the sum over all negatives. As many
    training rows are read beside the validation rows, and the worse of the two counts: few rows may miss such a pair.
    """
    method = reader.recipe.method
    clip = SMILE_CLIP if method == "smile" else math.inf
    method = {"smile": "dv", "js": "nwj"}.get(method, method)

    def attempt(bent: Bent) -> tuple[float, Bent, HeldOut]:
        held, other = (reader(views, rows, run, bent) for rows in (split.validation, beside))
        return min(read_bound(h, method, split.alpha(h.m))[0] for h in (held, other)), bent, held

    tops = [float(own.quantile(q)) for q in (1.0, 0.98, 0.9)]
    trials = [climb(attempt(Bent(t, min(clip, t * tops[0]), -clip)) for t in TEMPERATURES)]
    if reader.critic.residual is None and method == "ml_cpc":
        for t in TEMPERATURES[:5]:
            bent = reader.cut(views, split, run, t)
            if bent.cap >= t * tops[0]:  # nor is the ceiling in reach of flatter scores
                break
            trials.append(attempt(bent))
    found = max(trials, key=itemgetter(0))
    bent = found[1]
    lower = [replace(bent, cap=min(bent.cap, bent.temperature * top)) for top in tops[1:]]
    return max([found, *map(attempt, lower)], key=itemgetter(0))[1:]


def _units(
    critic: Critic, views: Views, rows: Tensor, bent: list[Bent], offset: list[float]
) -> list[tuple[Tensor, Tensor]]:
    """Two rows at a time: f(a, a'), f(b, b') and, swapped, f(a, b'), f(b, a')."""
    even = rows[:, : rows.shape[1] // 2 * 2]
    swapped = even.view(len(even), -1, 2).flip(2).flatten(1)
    found = []
    for other in (even, swapped):
        parts = [
            aligned(critic, views(a)[0], views(b)[1])
            for a, b in zip(torch.split(even, 1000, 1), torch.split(other, 1000, 1), strict=True)
        ]
        raw = torch.cat(parts, 1).view(len(even), -1, 2)
        found.append([b(scores) - zero for b, scores, zero in zip(bent, raw, offset, strict=True)])
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

    def __call__(self, views: Views, rows: Tensor, run: int, bent: Bent) -> HeldOut:
        """Rows (R, n) of run `run`."""
        if self.critic.residual is None:
            return stream_blocks(self._embedded(views, rows).rows(run), bent)
        n = rows.shape[1]
        count = min(self.recipe.negatives, n - 1)
        shifts = [s * (n - 1) // count + 1 for s in range(count)]
        scores = self._scores(views, rows, [0, *shifts])[run]
        where = {s: k for k, s in enumerate([0, *shifts])}
        groups = [shifts[i : i + 20] for i in range(0, count, 20)]
        return stream_shifts(lambda group: scores[[where[s] for s in group]], groups, bent)

    def cut(self, views: Views, split: Split, run: int, temperature: float) -> Bent:
        """The cap at the ceiling of the test rows, by the validation rows' own log mean."""
        return stream_cut(self._embedded(views, split.validation).rows(run), split.ceiling, temperature)[1]

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
        self._joint.append((rows, self.critic.pairs(*views(rows), shifts)))
        return self._joint[-1][1]
