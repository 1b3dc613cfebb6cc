"""`estimate_mi(x, y)`: how many nats do these two share?

Critics are cross-fitted (each is read only on rows that it has not seen, `mlcpc.mi.crossfit`) and the bound is J_α of
all pairs of a held-out fold at α = α_{m,n}, so its ceiling is log(n(m−1)+1).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import torch
from torch import Tensor, nn

from mlcpc.bounds import alpha_min, is_lower_bound
from mlcpc.mi import baselines
from mlcpc.mi.columns import intake, raw, split, take
from mlcpc.mi.crossfit import JOINT_DIMS, Fitted, Reader, aligned, fit
from mlcpc.mi.estimate import Estimate, doubts
from mlcpc.mi.held_out import read_bound
from mlcpc.mi.intake import FEWEST, MAX_ROWS, is_constant, pair, refuse_infinite, same_length
from mlcpc.mi.manners import Params
from mlcpc.mi.methods import method_named
from mlcpc.mi.prepare import Recipe, Views

__all__ = ["MutualInformationEstimator", "estimate_mi", "mutual_info"]

Tick = Callable[[float], None]
_FEWEST_HELD = 10


class MutualInformationEstimator(Params):
    """A lower bound on I(X; Y) from paired rows, in scikit-learn's manner.

    method         "ml_cpc", or for comparison "cpc", "dv", "nwj", "smile", "js"
    inputs         "standard", "rank" (increasing maps of a column then change nothing), "unmixed" (ranks of independent
                   components), or "auto": as validation says
    alpha          the positives' weight; None is α_{m,n}. Outside [α_{m,n}, m/2] it is refused unless any_alpha
    missing        "refuse" rows with NaN, or "drop" them
    encoder_x, _y  modules that turn rows of any shape (images, tokens) into vectors; trained with the critic
    fast           three folds, a third of the steps, smaller batches: three times faster, and a little lower
    max_rows       a random sample of so many rows is used at most, so memory does not grow with n
    steps, folds   of training; the same seed gives the same number

    >>> from mlcpc.mi.tasks import pairs
    >>> x, y = pairs(2).sample(600, torch.Generator().manual_seed(0))
    >>> estimator = MutualInformationEstimator(fast=True, steps=50).fit(x, y)
    >>> estimator.result_.ci_low < pairs(2).mi
    True
    """

    def __init__(
        self,
        method: str = "ml_cpc",
        inputs: str = "auto",
        alpha: float | None = None,
        any_alpha: bool = False,
        missing: str = "refuse",
        encoder_x: nn.Module | None = None,
        encoder_y: nn.Module | None = None,
        fast: bool = False,
        max_rows: int = MAX_ROWS,
        steps: int = 600,
        folds: int = 5,
        seed: int = 0,
    ) -> None:
        self.method = method
        self.inputs = inputs
        self.alpha = alpha
        self.any_alpha = any_alpha
        self.missing = missing
        self.encoder_x = encoder_x
        self.encoder_y = encoder_y
        self.fast = fast
        self.max_rows = max_rows
        self.steps = steps
        self.folds = folds
        self.seed = seed

    def fit(self, X: Any, y: Any, tick: Tick = lambda done: None) -> Self:  # noqa: N803  (scikit-learn's name)
        """Fit critics on rows X and y and read the bound; `result_` has it. `tick` is told the share that is done."""
        recipe = self._recipe()
        encoders = (self.encoder_x, self.encoder_y)
        for encoder, name in zip(encoders, "xy", strict=True):
            if encoder is not None and not isinstance(encoder, nn.Module):
                raise TypeError(f"encoder_{name} is a {type(encoder).__name__} but must be a torch.nn.Module")
        encoded = encoders[0] is not None, encoders[1] is not None
        x, y_rows, warnings = pair(X, y, self.missing, self.max_rows, self.seed, encoded)
        left, right = (_typed(*side) for side in zip((x.values, y_rows.values), encoders, strict=True))
        self._check_alpha(recipe, len(left), left[0].numel() + right[0].numel())
        self._fitted = fit(left, right, recipe, encoders, tick)
        self._columns = x.columns, y_rows.columns
        self.n_features_in_ = left[0].numel() if encoded[0] else len(x.columns)
        self.result_ = self._report(self._fitted, left, right, warnings)
        return self

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """The bound, in nats, of the fitted critics on fresh rows: the mean of J_α over all pairs of up to 5000 rows.

        Of more than `max_rows` rows, the first are read.
        """
        fitted, n = self._ready(), same_length(X, y)
        if n < 2:
            raise ValueError(f"there are {n} rows: a bound needs two or more, as a row's negatives are the others")
        found = []
        used = min(n, self.max_rows)
        for part in torch.arange(used).tensor_split(math.ceil(used / fitted.recipe.held_out)):
            views = self._views(X, y, part)
            everyone = torch.arange(views.n).expand(len(fitted.bent), -1)
            reader = Reader(fitted.critic, fitted.recipe)
            with torch.no_grad():
                held = [reader(views, everyone, r, bent) for r, bent in enumerate(fitted.bent)]
            found += [read_bound(h, fitted.recipe.method, self.alpha)[0] for h in held]
        return sum(found) / len(found)

    def pmi(self, X: Any, y: Any) -> Tensor:  # noqa: N803
        """log p(x, y) / p(x) p(y) of each row, as the critics have it, in nats: (n,)."""
        fitted, n = self._ready(), same_length(X, y)
        found = []
        for part in torch.split(torch.arange(n), 4096):
            views = self._views(X, y, part)
            with torch.no_grad():
                scores = aligned(fitted.critic, *views(torch.arange(views.n).expand(len(fitted.bent), -1)))
            ratios = [bent(s) - zero for bent, s, zero in zip(fitted.bent, scores, fitted.offset, strict=True)]
            found.append(torch.stack(ratios).mean(0))
        return torch.cat(found)

    def _recipe(self) -> Recipe:
        method = method_named(self.method)
        for name, least in (("steps", 1), ("folds", 2), ("max_rows", FEWEST)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < least:
                raise ValueError(f"{name} is {value!r} but must be a whole number, {least} or more")
        if not isinstance(self.seed, Integral):
            raise ValueError(f"seed is {self.seed!r} but must be a whole number: the same one gives the same result")
        recipe = Recipe(method, self.inputs, steps=int(self.steps), folds=int(self.folds), seed=int(self.seed))
        if not self.fast:
            return recipe
        return replace(recipe, steps=max(1, self.steps // 3), folds=min(self.folds, 3), batch=192, negatives=50)

    def _check_alpha(self, recipe: Recipe, total: int, dims: int) -> None:
        n = recipe.together(total)
        if n < _FEWEST_HELD:
            most = total // _FEWEST_HELD
            raise ValueError(f"folds is {recipe.folds}, which leaves {n} of {total} rows in one: take at most {most}")
        if self.alpha is None or self.any_alpha:
            return
        joint = dims <= JOINT_DIMS and self.encoder_x is None and self.encoder_y is None
        m = min(recipe.negatives, n - 1) + 1 if joint else n
        if not is_lower_bound(self.alpha, m, n, "cpc" if recipe.method == "cpc" else "ml_cpc"):
            low = alpha_min(m, n) if recipe.method == "ml_cpc" else 1.0
            raise ValueError(
                f"alpha is {self.alpha} but is a lower bound only in [{low:.3g}, {m / 2:g}] (m = {m}, n = {n} held-out "
                "rows): take one inside, or write any_alpha=True"
            )

    def _report(self, fitted: Fitted, x: Tensor, y: Tensor, warnings: list[str]) -> Estimate:
        method = fitted.recipe.method
        read = [read_bound(held, method, self.alpha) for held in fitted.held]
        bound = sum(value for value, _, _ in read) / len(read)
        influence = torch.cat([psi - psi.mean() for _, psi, _ in read])
        seen = sum(read_bound(held, method, self.alpha)[0] for held in fitted.seen) / len(fitted.seen)
        result = Estimate(
            bound,
            float(influence.std()) / math.sqrt(len(influence)),
            (bound + seen) / 2,
            fitted.held[0].alpha if self.alpha is None else self.alpha,
            read[0][2],
            len(x),
            method,
            units=(fitted.units, fitted.trial_units),
        )
        if self.encoder_x is None and self.encoder_y is None:
            result = replace(result, baselines=_baselines(x, y))
        return replace(result, warnings=(*warnings, *doubts(result, seen, x[0].numel() * y[0].numel())))

    def _ready(self) -> Fitted:
        fitted: Fitted = self._once_fitted("_fitted")
        return fitted

    def _views(self, x: Any, y: Any, part: Tensor) -> Views:
        """Some fresh rows, as the critics see them: by the names and levels that the columns had when fitting."""
        fitted = self._ready()
        seen, encoders = [], (self.encoder_x, self.encoder_y)
        for k, (whole, name, encoder) in enumerate(zip((x, y), "xy", encoders, strict=True)):
            side = take(whole, part)
            rows = intake(side, name, self._columns[k]) if encoder is None else raw(side, name)
            if lost := int(rows.missing.sum()):
                raise ValueError(
                    f"{lost} of {len(rows.missing)} rows of {name} have missing values (NaN): leave them out"
                )
            refuse_infinite(rows, name)
            scales = [scale for pair in fitted.columns if (scale := pair[k]) is not None]
            plain = torch.stack([scale(rows.values) for scale in scales]) if scales else None
            seen.append(_typed(rows.values, encoder) if plain is None else plain)
        return Views(seen[0], seen[1], (encoders[0] is not None, encoders[1] is not None))


def estimate_mi(x: Any, y: Any, *, bits: bool = False, tick: Tick = lambda done: None, **params: Any) -> Estimate:
    """How much do x and y tell about each other: a lower bound on I(X; Y) in nats from paired rows.

    x and y are arrays, tensors, data frames or dictionaries of columns with one row for each pair; what else can be
    said is in `MutualInformationEstimator`, whose arguments these are.

    >>> x = torch.randn(400, generator=torch.Generator().manual_seed(0))
    >>> result = estimate_mi(x, x.roll(1), fast=True, steps=50)
    >>> result.ci_low < 0.05
    True
    """
    result = MutualInformationEstimator(**params).fit(x, y, tick).result_
    return result.bits if bits else result


def mutual_info(X: Any, y: Any, **params: Any) -> Any:  # noqa: N803
    """The bound for each column of X with y, as an array: a score function for scikit-learn's SelectKBest.

    Never below 0, and 0 for a constant column.
    """
    import numpy as np

    settings = {"fast": True} | params
    found = []
    for key, column in split(X, "X").items():
        alone = {key: column}
        constant = is_constant(intake(alone, "X").values)
        found.append(0.0 if constant else max(0.0, estimate_mi(alone, y, **settings).lower_bound))
    return np.array(found)


def _typed(rows: Tensor, encoder: nn.Module | None) -> Tensor:
    """Floating-point rows in the precision of their encoder's weights."""
    weights = [] if encoder is None else [p for p in encoder.parameters() if p.is_floating_point()]
    return rows.to(weights[0].dtype) if weights and rows.is_floating_point() else rows


def _baselines(x: Tensor, y: Tensor) -> dict[str, float]:
    found = {"CCA": baselines.cca(x[:20_000], y[:20_000])}
    neighbours = baselines.ksg(x, y)
    return found if neighbours is None else found | {"KSG": neighbours}
