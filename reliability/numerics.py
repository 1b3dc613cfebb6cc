"""Numbers: the losses and their gradients against 50 digits, on random problems made to be hard, and one of 10⁹ pairs.

The twin is Eq. 4 and 6 as printed, in mpmath, of the very numbers that the losses are given. An error is counted in
units of what rounding may do. The value's: eps · (|value| + Σ |x_i| |∂value/∂x_i|), what rounding the inputs alone
does, and for J eps · log n besides, as its positives' spread is a difference of such terms. The gradient's: eps ·
(1 + max |x|) times its largest term, as a softmax is exp(x − lse) and lse is rounded at its own size: where scores are
far above 1/eps no digit of a gradient is certain. `relative` tells plainly what is left. Scores of bf16 are summed in
float32: values are counted in float32's eps; gradients, which are stored in bf16, in bf16's too.
"""

import math
import random
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
import torch
from torch import Tensor

from mlcpc import GuaranteeWarning, contrastive_loss, from_logits, in_batch, loss, paired
from reliability.record import Deadline

__all__ = ["Problem", "errors", "problem", "run", "streamed", "twin"]

PROBLEMS = 100_000
LIMIT = 4.0
"""units; more is a defect"""
FORMATS = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
WAYS = ("in_batch", "from_logits", "paired")
PAIRS = 10**9
DIGITS = 50


@dataclass(frozen=True)
class Problem:
    """One loss of n × m scores, the positives in column 0."""

    seed: int
    way: str
    objective: str
    alpha: float
    kind: str
    """how the scores are spread"""
    scores: Tensor

    def __str__(self) -> str:
        n, m = self.scores.shape
        return f"{self.objective} α={self.alpha:.3g} {self.way} n={n} m={m} {self.kind} seed {self.seed}"


def run(minutes: float, folder: Path) -> dict[str, Any]:
    """PROBLEMS of them, or as many as there is time for; then the large one, smaller where time is short."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", GuaranteeWarning)
    deadline = Deadline(0.8 * minutes)
    worst: dict[str, dict[str, Any]] = defaultdict(dict)
    counts: dict[str, int] = defaultdict(int)
    failures: list[str] = []
    seed = 0
    while seed < PROBLEMS and not deadline.over:
        case = problem(seed)
        name = str(case.scores.dtype).removeprefix("torch.")
        counts[name] += 1
        units = errors(case)
        for what, unit in units.items():
            keep(worst[name], what, unit, case)
            keep(worst[name], f"{what}, {case.kind}", unit, case)
            if not what.endswith("relative") and not unit <= LIMIT:
                failures.append(f"{what} of {name} is off by {unit:.3g} units: {case}")
        seed += 1
    pairs = PAIRS if minutes >= 20 else PAIRS // 40
    large = streamed(math.isqrt(pairs))
    failures += [
        f"streamed {name}: {value:.3g}" for name, value in large["relative_errors"].items() if not value < 1e-4
    ]
    top = max((found["value"]["size"] for found in worst.values()), default=0.0)
    steep = max((found["gradient"]["size"] for found in worst.values()), default=0.0)
    return {
        "summary": f"{seed} problems, worst value {top:.2g} and gradient {steep:.2g} units; {large['pairs']:.2g} pairs",
        "problems": seed,
        "by_format": dict(counts),
        "worst": {name: dict(sorted(found.items())) for name, found in worst.items()},
        "streamed": large,
        "failures": failures[:50],
    }


def keep(worst: dict[str, Any], what: str, size: float, case: Problem) -> None:
    if not size <= worst.get(what, {"size": -1.0})["size"]:
        worst[what] = {"size": float(f"{size:.3g}"), "case": str(case)}


def problem(seed: int) -> Problem:
    """Small, and hard in one of several ways; the same for the same seed."""
    chance = random.Random(seed)
    dtype = chance.choice(list(FORMATS.values()))
    way, objective = chance.choice(WAYS), chance.choice(("cpc", "ml_cpc"))
    n = chance.randint(2 if way == "in_batch" else 1, 5)
    m = n if way == "in_batch" else chance.randint(2, 7)
    kind = chance.choice(list(SPREADS))
    rows = [[SPREADS[kind](chance, j == 0) for j in range(m)] for _ in range(n)]
    alpha = chance.choice((1.0, m / 2, math.exp(chance.uniform(math.log(1e-6), math.log(0.999 * m)))))
    scores = torch.tensor(rows, dtype=torch.float64).to(dtype)
    return Problem(seed, way, objective, alpha, kind, scores)


def _gap(chance: random.Random) -> float:
    """Of any size from 1e-30 to 1e30, either sign."""
    return chance.choice((-1, 1)) * 10 ** chance.uniform(-30, 30)


SPREADS: dict[str, Callable[[random.Random, bool], float]] = {
    "ordinary, ±10": lambda chance, positive: chance.gauss(3 if positive else 0, 3),
    "±700": lambda chance, positive: chance.uniform(-700, 700),
    "±1e5": lambda chance, positive: chance.uniform(-1e5, 1e5),
    "gaps 1e-30 … 1e30": lambda chance, positive: _gap(chance),
    "around 1e4, gaps of any size": lambda chance, positive: 1e4 + chance.choice((0, 1)) * _gap(chance),
    "a perfect critic, 30 … 300": lambda chance, positive: chance.uniform(30, 300) if positive else chance.gauss(0, 1),
    "ties": lambda chance, positive: float(chance.choice((0, 0, 1, -50))),
}
"""name → a score; the second argument: whether of a positive pair"""


def errors(case: Problem) -> dict[str, float]:
    """Units of value and gradient; inf where something is not finite."""
    scores = case.scores.clone().requires_grad_()
    value = loss(_made(scores, case.way), case.objective, case.alpha)
    value.backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    rows = case.scores.double().tolist()
    wide = max(map(max, rows)) - min(map(min, rows))
    with mpmath.workdps(DIGITS + int(min(wide, 1600) / math.log(10))):  # what is left after terms have cancelled
        wanted, gradient, slack, terms = twin(rows, case.objective, case.alpha)
    fine = torch.finfo(torch.float64 if scores.dtype == torch.float64 else torch.float32).eps
    coarse = torch.finfo(scores.dtype).eps
    got = value.item()
    if not math.isfinite(got) or not bool(scores.grad.isfinite().all()):
        return dict.fromkeys(("value", "gradient", "value, relative", "gradient, relative"), math.inf)
    tiny = torch.finfo(scores.dtype).tiny  # below it digits go
    natural = math.log(len(rows)) if case.objective == "ml_cpc" else 0.0
    off = abs(mpmath.mpf(got) - wanted)
    units = off / (fine * (abs(wanted) + slack + natural) + tiny)
    found = scores.grad.double().tolist()
    far = max(
        abs(mpmath.mpf(a) - b)
        for row, line in zip(found, gradient, strict=True)
        for a, b in zip(row, line, strict=True)
    )
    size = max(abs(b) for line in gradient for b in line)
    largest = max(abs(x) for row in rows for x in row)
    return {
        "value": float(units),
        "gradient": float(far / (coarse * size + fine * terms * (1 + largest) + tiny)),
        "value, relative": float(off / (abs(wanted) + tiny)),
        "gradient, relative": float(far / (size + tiny)),
    }


def _made(scores: Tensor, way: str) -> Any:
    if way == "from_logits":
        return from_logits(scores)
    if way == "paired":
        return paired(scores[:, 0], scores[:, 1:])
    n = len(scores)  # column 0 to the diagonal
    rows = [torch.cat([scores[i, 1 : i + 1], scores[i, :1], scores[i, i + 1 :]]) for i in range(n)]
    return in_batch(torch.stack(rows))


def twin(rows: list[Any], objective: str, alpha: float) -> tuple[Any, list[list[Any]], Any, Any]:
    """The distance to log(m/α) of Eq. 4 or 6, its gradient, Σ |x_i| |∂/∂x_i|, and the gradient's largest term."""
    rows = [[mpmath.mpf(x) for x in row] for row in rows]
    n, m, a = len(rows), len(rows[0]), mpmath.mpf(alpha)
    b = (m - a) / (m - 1)
    groups = (
        [[(i, j) for j in range(m)] for i in range(n)]
        if objective == "cpc"
        else [[(i, j) for i in range(n) for j in range(m)]]
    )
    value, terms = mpmath.mpf(0), mpmath.mpf(0)
    gradient = [[mpmath.mpf(0)] * m for _ in range(n)]
    for cells in groups:
        share = mpmath.mpf(1) / len(groups)
        top = max(rows[i][j] for i, j in cells)
        weights = {(i, j): (a if j == 0 else b) * mpmath.exp(rows[i][j] - top) for i, j in cells}
        total = mpmath.fsum(weights.values())
        owners = [i for i, j in cells if j == 0]
        mean = mpmath.fsum(rows[i][0] for i in owners) / len(owners)
        # log(m/α) − mean log( count·m·g / Σ ) = log(Σ/(α·count)) − mean log g
        value += share * (mpmath.log(total / (a * len(owners))) + top - mean)
        p = {cell: weight / total for cell, weight in weights.items()}
        for i, j in cells:
            gradient[i][j] += share * (p[i, j] - (mpmath.mpf(1) / len(owners) if j == 0 else 0))
            terms = max(terms, share * p[i, j], share / len(owners))
    slack = mpmath.fsum(abs(rows[i][j] * gradient[i][j]) for i in range(n) for j in range(m))
    return value, gradient, slack, terms


def streamed(n: int, d: int = 8) -> dict[str, Any]:
    """n × n pairs of float32 embeddings through tiles, against float64 row by row."""
    g = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(n, d, generator=g), dim=1)
    y = torch.nn.functional.normalize(x + 0.2 * torch.randn(n, d, generator=g), dim=1)
    found: dict[str, Any] = {"pairs": n * n, "n": n, "d": d, "relative_errors": {}, "seconds": {}}
    for objective in ("cpc", "ml_cpc"):
        queries, keys = x.clone().requires_grad_(), y.clone().requires_grad_()
        began = time.monotonic()
        value = contrastive_loss(queries, keys, objective=objective, alpha=0.1, temperature=0.07, normalize=False)
        value.backward()
        found["seconds"][objective] = round(time.monotonic() - began, 1)
        wanted, dx, dy = _by_rows(x.double(), y.double(), objective, 0.1, 0.07)
        assert queries.grad is not None
        assert keys.grad is not None
        told = {"value": abs(value.item() - wanted) / wanted}
        for name, got, right in (("queries", queries.grad, dx), ("keys", keys.grad, dy)):
            told[name] = float((got.double() - right).norm() / right.norm())
        found["relative_errors"] |= {f"{objective} {name}": float(f"{error:.2g}") for name, error in told.items()}
    return found


def _by_rows(x: Tensor, y: Tensor, objective: str, alpha: float, tau: float) -> tuple[float, Tensor, Tensor]:
    """The loss and its gradients in float64, some rows at a time, with the softmax written out."""
    n, some = len(x), max(1, 2**24 // len(x))
    odds = (n - alpha) / (n - 1)
    parts = torch.split(torch.arange(n), some)

    def weighted(rows: Tensor) -> Tensor:
        s = x[rows] @ y.T / tau
        s += math.log(odds)
        s[torch.arange(len(rows)), rows] += math.log(alpha) - math.log(odds)
        return s

    sums = torch.cat([weighted(rows).logsumexp(1) for rows in parts])
    own = (x * y).sum(1) / tau
    total = sums.logsumexp(0)
    value = (sums - own).mean() if objective == "cpc" else total - own.mean() - math.log(n)
    dx, dy = -y / (n * tau), -x / (n * tau)
    for rows in parts:
        p = weighted(rows).sub_(sums[rows][:, None] if objective == "cpc" else total).exp_()
        p /= n if objective == "cpc" else 1
        dx[rows] += p @ y / tau
        dy += p.T @ x[rows] / tau
    return float(value - math.log(alpha)), dx, dy
