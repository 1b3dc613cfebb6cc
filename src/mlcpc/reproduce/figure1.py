"""Figure 1: what CPC and ML-CPC report of binary X = Y, against m, for several α.

mlcpc reproduce figure1        a second on a laptop; closed form, so no seeds and no error bars
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcpc import plots
from mlcpc.bounds import alpha_min, is_lower_bound
from mlcpc.exact import binary_moments, entropy
from mlcpc.objectives import label
from mlcpc.reproduce.target import Check, Drawing, Result, Scale, Target, Tick


@dataclass(frozen=True)
class Binary:
    """A grid of batch sizes n = m, of α (0 stands for α_{m,n}) and of objectives, at Pr(X = 1) = p."""

    sizes: tuple[int, ...] = tuple(dict.fromkeys(round(2 * 10 ** (i / 15)) for i in range(41)))
    alphas: tuple[float, ...] = (1.0, 0.5, 0.2, 0.1, 0.0)
    objectives: tuple[str, ...] = ("cpc", "ml_cpc")
    p: float = 0.5


def compute(config: Binary, tick: Tick, folder: Path) -> Result:
    """Mean and variance of the estimate of every cell of the grid; nothing is kept in `folder`, it takes a second."""
    rows = []
    for i, n in enumerate(config.sizes):
        for objective in config.objectives:
            for alpha in config.alphas:
                value = alpha or alpha_min(n, n)
                moments = binary_moments(n, value, objective, config.p)
                rows.append(
                    {
                        "objective": objective,
                        "n": n,
                        "alpha": value,
                        "alpha_is_min": alpha == 0,
                        "mean": moments.mean,
                        "variance": moments.variance,
                        "bias": moments.mean - entropy(config.p),
                        "lower_bound": is_lower_bound(value, n, n, objective),
                    }
                )
        tick((i + 1) / len(config.sizes))
    return {"truth": entropy(config.p), "rows": rows}


def draw(result: Result, drawing: Drawing) -> list[Check]:
    """One panel an objective, one line an α; dashed where the theorem gives no guarantee."""
    rows, truth = result["rows"], result["truth"]
    drawing.write_csv([{**row, "truth": truth} for row in rows])
    with plots.style():
        figure = plots.figure(10, 4)
        panels = figure.subplots(1, 2, sharey=True)
        for panel, objective, title in zip(
            panels, ("cpc", "ml_cpc"), ("CPC  $L_\\alpha$", "ML-CPC  $J_\\alpha$"), strict=True
        ):
            mine = [row for row in rows if row["objective"] == objective]
            lines = sorted(
                {(not r["alpha_is_min"], r["alpha"] if not r["alpha_is_min"] else 0) for r in mine}, reverse=True
            )
            for (fixed, alpha), colour in zip(lines, plots.shades(objective, len(lines)), strict=True):
                line = [r for r in mine if r["alpha_is_min"] != fixed and (not fixed or r["alpha"] == alpha)]
                _line(panel, line, f"α = {alpha:g}" if fixed else "α = α$_{m,n}$", colour, drawing)
            panel.axhline(drawing(truth), color=plots.TRUTH, lw=1, ls=":", zorder=1)
            panel.text(
                0.995,
                drawing(truth),
                f"truth, log 2 = {drawing(truth):.3f} ",
                va="bottom",
                ha="right",
                transform=panel.get_yaxis_transform(),
            )
            panel.set(
                title=title, xscale="log", xlabel="candidates m  (= batch size n)", ylim=(drawing(0.3), drawing(1.05))
            )
            panel.legend(loc="lower right", title="solid: guaranteed\ndashed: not", alignment="left")
        panels[0].set_ylabel(f"expected estimate ({drawing.unit})")
        figure.suptitle(
            f"Figure 1 · binary X = Y, best critic, closed form · scale: {drawing.scale}",
            fontsize=9,
            x=0.99,
            ha="right",
        )
        plots.save(figure, drawing.folder, drawing.name)
    return _checks(rows, truth)


def _line(panel, line, text, colour, drawing) -> None:  # type: ignore[no-untyped-def]
    for guaranteed, dash in ((True, "-"), (False, "--")):
        # A guaranteed point next to an unguaranteed one belongs to the dashed stretch too, so that the line has no gap.
        near = [line[max(0, i - 1) : i + 2] if not guaranteed else [row] for i, row in enumerate(line)]
        keep = [any(row["lower_bound"] == guaranteed for row in rows) for rows in near]
        values = [drawing(row["mean"]) if kept else math.nan for row, kept in zip(line, keep, strict=True)]
        if any(keep):
            shown = text if guaranteed or not any(row["lower_bound"] for row in line) else None
            panel.plot([row["n"] for row in line], values, dash, color=colour, label=shown)


def _checks(rows: list[dict[str, Any]], truth: float) -> list[Check]:
    inside = [row["mean"] - truth for row in rows if row["lower_bound"]]
    over = max((row for row in rows if row["objective"] == "cpc"), key=lambda row: row["mean"])
    cells = {(row["objective"], row["n"], row["alpha"]): row["mean"] for row in rows}
    jensen = max(cells["ml_cpc", n, a] - mean for (objective, n, a), mean in cells.items() if objective == "cpc")
    return [
        Check(
            "every estimate with a guarantee is at most log 2",
            max(inside) <= 1e-12,
            f"largest excess {max(inside):.1e} nats",
        ),
        Check(
            "CPC with α < 1 exceeds log 2",
            over["mean"] > truth,
            f"{label('cpc', str(round(over['alpha'], 4)))} = {over['mean']:.4f} > {truth:.4f} at m = {over['n']}",
        ),
        Check("J_α ≤ L_α at the same α (Jensen)", jensen <= 1e-12, f"largest J − L {jensen:.1e} nats"),
    ]


TARGET = Target(
    name="figure1",
    title="MI estimates of CPC and ML-CPC under different α (binary X = Y, closed form)",
    section="binary",
    scales={
        "smoke": Scale(Binary(sizes=(2, 3, 8, 32, 128)), "under a second"),
        "paper": Scale(Binary(), "a second"),
    },
    compute=compute,
    draw=draw,
    sample=lambda config: "closed form: exact expectations, nothing is drawn",
)
