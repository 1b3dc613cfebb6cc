"""What an estimator reports, and how it is shown."""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from mlcpc.mi import certificate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Estimate", "doubts"]

_Z = 1.959963984540054  # Φ⁻¹(0.975)


@dataclass(frozen=True)
class Estimate:
    """Mutual information (or a KL divergence) between two samples, in `unit`.

    lower_bound    the bound on held-out rows, averaged over folds: in expectation at most the truth
    se             its standard error over rows (not the critic's own shortfall, which only lowers the bound)
    point          the mean of the bound on training and on held-out rows: less biased, and *not* a bound
    alpha          the weight of the positives, α_{m,n} unless asked otherwise
    max_detectable the ceiling: what the held-out rows can show at most
    baselines      classic estimates of the same rows
    warnings       what to think of before believing the number
    """

    lower_bound: float
    se: float
    point: float
    alpha: float
    max_detectable: float
    n: int
    method: str = "ml_cpc"
    unit: str = "nats"
    what: str = "information"
    """or "divergence", of `estimate_kl`"""
    baselines: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    units: tuple[list[tuple[Tensor, Tensor]], list[tuple[Tensor, Tensor]]] | None = field(
        default=None, repr=False, compare=False
    )

    @property
    def ci_low(self) -> float:
        """lower_bound − 1.96 se, above the truth one time in forty at most, for large n."""
        return self.lower_bound - _Z * self.se

    @property
    def bits(self) -> "Estimate":
        """The same in bits.

        >>> Estimate(math.log(2), 0.0, 0.7, 0.1, 9.0, 100).bits.lower_bound
        1.0
        """
        if self.unit == "bits":
            return self
        scale = 1 / math.log(2)
        return replace(
            self,
            lower_bound=self.lower_bound * scale,
            se=self.se * scale,
            point=self.point * scale,
            max_detectable=self.max_detectable * scale,
            baselines={name: value * scale for name, value in self.baselines.items()},
            unit="bits",
        )

    def certified_low(self, confidence: float = 0.95) -> float:
        """A lower bound that holds with this confidence at any n: no asymptotics, but independent rows. 0 if none."""
        if self.units is None:
            raise ValueError("a certificate needs pairs of rows: it is there for estimates of mutual information")
        low = certificate.certified_low(*self.units, confidence)
        return low / math.log(2) if self.unit == "bits" else low

    def sentence(self, x: str = "x", y: str = "y") -> str:
        """One plain sentence.

        >>> Estimate(1.0, 0.03, 1.1, 0.1, 14.2, 5000).sentence()
        'x tells at least 0.94 nats about y, 95 % sure; the data can show at most 14.2.'
        """
        top = "" if math.isinf(self.max_detectable) else f"; the data can show at most {self.max_detectable:.1f}"
        if self.what == "divergence":
            x, y = ("p", "q") if (x, y) == ("x", "y") else (x, y)
            return f"{x} is at least {max(0.0, self.ci_low):.2f} {self.unit} from {y}, 95 % sure{top}."
        if self.ci_low < 0.005:
            return f"{x} and {y} may be independent: nothing above 0 {self.unit} is shown, 95 % sure{top}."
        return f"{x} tells at least {self.ci_low:.2f} {self.unit} about {y}, 95 % sure{top}."

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON; no ceiling is null."""
        names = ("lower_bound", "se", "ci_low", "point", "alpha", "max_detectable", "n", "method", "unit")
        plain = {name: getattr(self, name) for name in names}
        if math.isinf(self.max_detectable):
            plain["max_detectable"] = None
        return plain | {"baselines": dict(self.baselines), "warnings": list(self.warnings)}

    def plot(self) -> "Figure":
        """The bound with its one-sided interval, the point estimate, the baselines, and the ceiling."""
        from mlcpc import plots
        from mlcpc.plots import INK, shades

        with plots.style():
            rows = [("lower bound", self.lower_bound), ("point (no bound)", self.point), *self.baselines.items()]
            figure = plots.figure(6, 1.2 + 0.45 * len(rows))
            axes = figure.subplots()
            colours = [shades("ml_cpc", 2)[1], shades("ml_cpc", 2)[0], *["#b8bec6"] * len(self.baselines)]
            axes.barh([name for name, _ in rows], [value for _, value in rows], color=colours, height=0.6)
            axes.plot([self.ci_low, self.lower_bound], [0, 0], color=INK)
            axes.plot([self.ci_low], [0], "|", color=INK, markersize=14)
            if self.max_detectable < 3 * max(value for _, value in rows):
                axes.axvline(self.max_detectable, color=INK, linestyle="--")
            axes.invert_yaxis()
            axes.set_xlabel(self.unit)
            axes.set_title(self.sentence())
            axes.grid(axis="y", visible=False)
        return figure

    def __str__(self) -> str:
        """>>> print(Estimate(1.0, 0.03, 1.1, 0.1, 14.2, 5000))
        at least 1.000 ± 0.030 nats (95 % sure above 0.941; point 1.100, not a bound; ceiling 14.20; n = 5000)
        """
        return (
            f"at least {self.lower_bound:.3f} ± {self.se:.3f} {self.unit} (95 % sure above {self.ci_low:.3f}; "
            f"point {self.point:.3f}, not a bound; ceiling {self.max_detectable:.2f}; n = {self.n})"
        )


def doubts(result: Estimate, seen: float, entries: int) -> list[str]:
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
