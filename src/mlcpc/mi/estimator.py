"""`estimate_mi(x, y)`: how many nats do these two share?

Critics are cross-fitted (each is read only on rows that it has not seen, `mlcpc.mi.crossfit`) and the bound is J_α of
all pairs of a held-out fold at α = α_{m,n}, so its ceiling is log(n(m−1)+1).
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from mlcpc.bounds import alpha_min, is_lower_bound
from mlcpc.mi import baselines
from mlcpc.mi.crossfit import JOINT_DIMS, Fitted, Reader, aligned, fit
from mlcpc.mi.estimate import Estimate
from mlcpc.mi.held_out import read_bound
from mlcpc.mi.intake import FEWEST, intake, pair
from mlcpc.mi.methods import METHODS
from mlcpc.mi.prepare import Recipe, Views

__all__ = ["MutualInformationEstimator", "estimate_mi", "mutual_info"]

Tick = Callable[[float], None]


class MutualInformationEstimator:
    """A lower bound on I(X; Y) from paired rows, in scikit-learn's manner.

    method         "ml_cpc", or for comparison "cpc", "dv", "nwj", "smile", "js"
    inputs         "standard", "rank" (increasing maps of a column then change nothing), or "auto": as validation says
    alpha          the positives' weight; None is α_{m,n}. Outside [α_{m,n}, m/2] it is refused unless any_alpha
    missing        "refuse" rows with NaN, or "drop" them
    encoder_x, _y  modules that turn rows of any shape (images, tokens) into vectors; trained with the critic
    fast           a third of the folds and steps: three times faster, and lower
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
        max_rows: int = 100_000,
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
        if any(encoder is not None for encoder in encoders):
            left, right, warnings = _raw_pair(X, y)
        else:
            left, right, warnings = pair(X, y, self.missing)
        total = len(left)
        if total > self.max_rows:
            chosen = torch.randperm(total, generator=torch.Generator().manual_seed(self.seed))[: self.max_rows]
            left, right = left[chosen], right[chosen]
            warnings.append(f"a random sample of {self.max_rows} of {total} rows was used (max_rows)")
        self._check_alpha(recipe, len(left), left.flatten(1).shape[1] + right.flatten(1).shape[1])
        self._fitted = fit(left, right, recipe, encoders, tick)
        self.n_features_in_ = left.flatten(1).shape[1]
        self.result_ = self._report(self._fitted, left, right, warnings)
        return self

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """The bound, in nats, of the fitted critics on fresh rows: the mean over critics of J_α over all pairs."""
        views, fitted = self._views(X, y), self._ready()
        rows = torch.arange(views.x.shape[0 if views.raw[0] else 1])[: fitted.recipe.held_out]
        everyone = rows.expand(len(fitted.held), -1)
        reader = Reader(fitted.critic, fitted.recipe)
        with torch.no_grad():
            held = [reader(views, everyone, r, bent) for r, bent in enumerate(fitted.bent)]
        return sum(read_bound(h, fitted.recipe.method, self.alpha)[0] for h in held) / len(held)

    def pmi(self, X: Any, y: Any) -> Tensor:  # noqa: N803
        """log p(x, y) / p(x) p(y) of each row, as the critics have it, in nats: (n,)."""
        views, fitted = self._views(X, y), self._ready()
        n = views.x.shape[0 if views.raw[0] else 1]
        found = []
        for rows in torch.split(torch.arange(n), 4096):
            x, y_rows = views(rows.expand(len(fitted.held), -1))
            with torch.no_grad():
                scores = aligned(fitted.critic, x, y_rows)
            ratios = [bent(s) - zero for bent, s, zero in zip(fitted.bent, scores, fitted.offset, strict=True)]
            found.append(torch.stack(ratios).mean(0))
        return torch.cat(found)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change some of the constructor's arguments."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{name!r} is not a parameter: write one of {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = {k: v for k, v in self.get_params().items() if v is not defaults[k].default}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in changed.items())})"

    def _recipe(self) -> Recipe:
        method = self.method.replace("-", "_").lower()
        if method not in METHODS:
            raise ValueError(f"method is {self.method!r}, which is not known: write one of {', '.join(METHODS)}")
        if not (self.steps >= 1 and self.folds >= 2 and self.max_rows >= FEWEST):
            raise ValueError(
                f"steps = {self.steps}, folds = {self.folds}, max_rows = {self.max_rows}: there must be at least 1 "
                f"step, 2 folds and {FEWEST} rows"
            )
        recipe = Recipe(method, self.inputs, steps=self.steps, folds=self.folds, seed=self.seed)
        return replace(recipe, steps=max(1, self.steps // 3), folds=min(self.folds, 3)) if self.fast else recipe

    def _check_alpha(self, recipe: Recipe, total: int, dims: int) -> None:
        if self.alpha is None or self.any_alpha:
            return
        n = min(total // recipe.folds, recipe.held_out)
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
        seen = sum(read_bound(held, method, self.alpha)[0] for held in fitted.seen) / len(read)
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
        if fitted.columns is not None:
            result = replace(result, baselines=_baselines(x, y))
        return replace(
            result, warnings=(*warnings, *_doubts(result, seen, x.flatten(1).shape[1] * y.flatten(1).shape[1]))
        )

    def _ready(self) -> Fitted:
        if not hasattr(self, "_fitted"):
            raise ValueError("this estimator is not fitted yet: call fit(x, y) first")
        return self._fitted

    def _views(self, x: Any, y: Any) -> Views:
        fitted = self._ready()
        if fitted.columns is None:
            return Views(*_raw_pair(x, y)[:2], (True, True))
        sides = [intake(side, name) for side, name in ((x, "x"), (y, "y"))]
        if len(sides[0].values) != len(sides[1].values):
            raise ValueError(f"x has {len(sides[0].values)} rows and y {len(sides[1].values)}: they must be pairs")
        if any(side.missing.any() for side in sides):
            raise ValueError("there are missing values (NaN): leave those rows out")
        for side, name, k in zip(sides, "xy", (0, 1), strict=True):
            expected = len(fitted.columns[0][k].centre)
            if side.values.shape[1] != expected:
                raise ValueError(f"{name} has {side.values.shape[1]} columns but the critics were fitted on {expected}")
        scaled = [torch.stack([pair[k](sides[k].values) for pair in fitted.columns]) for k in (0, 1)]
        return Views(scaled[0], scaled[1], (False, False))


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
    """The bound for each column of X with y, as an array: a score function for scikit-learn's SelectKBest."""
    import numpy as np

    columns = intake(X, "X").values
    settings = {"fast": True} | params
    return np.array([max(0.0, estimate_mi(column, y, **settings).lower_bound) for column in columns.T])


def _raw_pair(x: Any, y: Any) -> tuple[Tensor, Tensor, list[str]]:
    left, right = (side if isinstance(side, Tensor) else torch.as_tensor(side) for side in (x, y))
    if len(left) != len(right):
        raise ValueError(f"x has {len(left)} rows and y {len(right)}: they must be pairs, row for row")
    if len(left) < FEWEST:
        raise ValueError(f"there are {len(left)} usable rows, but an estimate needs {FEWEST} or more")
    for side, name in ((left, "x"), (right, "y")):
        if side.is_floating_point() and not side.isfinite().all():
            raise ValueError(f"{name} has {int((~side.isfinite()).sum())} values that are NaN or infinite: clean them")
    return left, right, []


def _baselines(x: Tensor, y: Tensor) -> dict[str, float]:
    found = {"CCA": baselines.cca(x[:20_000], y[:20_000])}
    neighbours = baselines.ksg(x, y)
    return found if neighbours is None else found | {"KSG": neighbours}


def _doubts(result: Estimate, seen: float, entries: int) -> list[str]:
    """Reasons to hesitate; `entries` = dx·dy, as CCA is biased upwards by about dx·dy/2n."""
    doubts = []
    room = 4 * result.se + 0.05
    if result.lower_bound > result.max_detectable - 1:
        doubts.append(f"the bound is within 1 of its ceiling {result.max_detectable:.2f}: more rows may show more")
    if seen - result.lower_bound > max(0.1, 0.2 * abs(seen)):
        doubts.append(
            f"the critics do better on training rows ({seen:.2f}) than on held-out ones ({result.lower_bound:.2f}): "
            "more rows, or fewer columns, would raise the bound"
        )
    for name, value in result.baselines.items():
        bias = entries / (2 * min(result.n, 20_000)) if name == "CCA" else 0.0
        if value - 2 * bias > result.lower_bound + room:
            doubts.append(f"{name} says {value:.2f}, above the bound: the critics may have missed something")
    return doubts
