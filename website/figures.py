"""The pictures of docs/alpha.md, made by the library's own functions: `python website/figures.py`, half a minute."""

import itertools
import math
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor

import mlcpc
from mlcpc import plots

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
SPAN = torch.logspace(-4, math.log10(64), 200).tolist()


def ceilings() -> Figure:
    """log(m/α) for three batch sizes; thick where the objective is a lower bound."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for axes, objective, title in ((left, "cpc", "CPC, L_α"), (right, "ml_cpc", "ML-CPC, J_α")):
        for n, colour in zip((16, 128, 1024), plots.shades(objective, 3), strict=True):
            top = [(alpha, mlcpc.ceiling(n, alpha)) for alpha in SPAN if alpha <= n / 2]
            safe = [pair for pair in top if mlcpc.is_lower_bound(pair[0], n, n, objective)]
            axes.plot(*zip(*top, strict=True), "--", lw=1, color=colour)
            axes.plot(*zip(*safe, strict=True), lw=3.5, color=colour, label=f"n = m = {n}")
        axes.set(title=title, xscale="log", xlabel="α", xlim=(SPAN[0], SPAN[-1]), ylim=(0, 17))
        axes.legend(loc="upper right")
    left.set_ylabel("the most it can report, nats")
    return figure


def scores(n: int, nats: float, generator: torch.Generator, pairs: int = 20) -> Tensor:
    """log p(x, y) / p(x)p(y) of all pairs in a batch of Gaussians."""
    rho2 = 1 - math.exp(-2 * nats / pairs)
    rho = math.sqrt(rho2)
    x = torch.randn(n, pairs, dtype=torch.float64, generator=generator)
    y = rho * x + math.sqrt(1 - rho2) * torch.randn(n, pairs, dtype=torch.float64, generator=generator)
    square = (x**2).sum(1)[:, None] + (y**2).sum(1)
    return nats + (rho * x @ y.T - rho2 * square / 2) / (1 - rho2)


def read(objective: str, alpha: float, seen: list[Tensor], temper: float, cap: float) -> Tensor:
    """What each batch reports with scores divided by a temperature and cut off."""
    score = getattr(mlcpc, objective)
    return torch.stack([score(mlcpc.in_batch((s / temper).clamp(max=cap)), alpha) for s in seen])


def trade(n: int = 64, batches: int = 150) -> Figure:
    """Mean and spread of one batch's estimate over α; temperature and cut are the best on other batches.

    For a finite batch the true density ratio is not the best critic; training finds such ones.
    """
    generator = torch.Generator().manual_seed(0)
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.6))
    alphas = [*SPAN[::14], n / 2]
    for axes, nats in zip(panels, (2, 5, 8), strict=True):
        tried, seen = ([scores(n, nats, generator) for _ in range(batches)] for _ in range(2))
        for objective, name in (("cpc", "CPC"), ("ml_cpc", "ML-CPC")):
            values = []
            for alpha in alphas:
                critics = itertools.product((0.8, 1.0, 1.3, 2.0), (mlcpc.ceiling(n, alpha), nats, math.inf))
                best = max(critics, key=lambda c: read(objective, alpha, tried, *c).mean().item())
                values.append(read(objective, alpha, seen, *best))
            mean, spread = torch.stack(values).mean(1), torch.stack(values).std(1)
            (colour,) = plots.shades(objective, 2)[1:]
            axes.plot(alphas, mean, color=colour, label=name)
            axes.fill_between(alphas, mean - spread, mean + spread, color=colour, alpha=0.2, lw=0)
        axes.axhline(nats, color=plots.TRUTH, lw=1, label="truth")
        axes.axvline(mlcpc.alpha_min(n, n), color=plots.INK, lw=1, ls=":", label="α_{m,n}")
        axes.set(title=f"{nats} nats, n = {n}", xscale="log", xlabel="α", ylim=(0, 12))
    panels[0].set_ylabel("nats reported by a batch")
    panels[0].legend(loc="upper right")
    return figure


def schedules() -> Figure:
    """α and the ceiling while training goes on."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
    at = [i / 200 for i in range(201)]
    for text, colour in zip(("10:0.1", "5:0.2", "1"), plots.shades("ml_cpc", 3)[::-1], strict=True):
        alpha = [mlcpc.parse_alpha(text)(progress) for progress in at]
        left.plot(at, alpha, color=colour, label=text)
        right.plot(at, [mlcpc.ceiling(128, value) for value in alpha], color=colour)
    low = mlcpc.alpha_min(128, 128)
    left.axhspan(low / 3, low, color="#f0d9d0", lw=0)
    left.text(0.02, low / 1.4, "below α_{m,n}: no guarantee", va="center", fontsize=9)
    left.set(yscale="log", xlabel="progress", ylabel="α", ylim=(low / 3, 20))
    right.set(xlabel="progress", ylabel="ceiling for m = 128, nats", ylim=(0, 8))
    left.legend(title='alpha="…"', loc="upper right")
    return figure


def main() -> None:
    with plots.style(), warnings.catch_warnings():
        warnings.simplefilter("ignore", mlcpc.GuaranteeWarning)
        for draw in (ceilings, trade, schedules):
            draw().savefig(FOLDER / f"{draw.__name__}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
