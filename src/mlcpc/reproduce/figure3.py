"""Figure 3: what CPC and ML-CPC report while the mutual information of correlated Gaussians climbs a staircase.

mlcpc reproduce figure3 --scale demo     a minute on two cores: four methods, stairs of 1200 updates
"""

from statistics import fmean

from matplotlib.figure import Figure

from mlcpc import plots
from mlcpc.bounds import alpha_min
from mlcpc.mi.staircase import Staircase, climb
from mlcpc.objectives import label
from mlcpc.reproduce.target import Check, Drawing, Result, Scale, Target

_METHODS = (("cpc", 1.0), ("cpc", 0.01), ("ml_cpc", 1.0), ("ml_cpc", alpha_min(128, 128)))
NAMES = {"cpc": "CPC", "ml_cpc": "ML-CPC"}


def name(method: dict[str, object]) -> str:
    """L_0.01, J_0.00787."""
    return label(str(method["objective"]), f"{method['alpha']:.3g}")


def draw(result: Result, drawing: Drawing) -> list[Check]:
    """One panel an objective: each batch's estimate faintly, its running mean boldly, the truth and log m as lines."""
    config, methods = result["config"], result["methods"]
    levels, steps, n = config["levels"], config["steps"], config["batch"]
    drawing.write_csv(
        [
            {
                "objective": m["objective"],
                "alpha": m["alpha"],
                "mi_true": level,
                "plateau_mean": m["plateau_mean"][i],
                "plateau_std": m["plateau_std"][i],
                "ceiling": round(m["ceiling"], 4),
                "lower_bound": m["lower_bound"],
            }
            for m in methods
            for i, level in enumerate(levels)
        ]
    )
    with plots.style():
        figure = Figure(figsize=(10, 4))
        panels = figure.subplots(1, 2, sharey=True)
        for panel, objective in zip(panels, ("cpc", "ml_cpc"), strict=True):
            mine = [m for m in methods if m["objective"] == objective]
            for m, colour in zip(mine, plots.shades(objective, len(mine)), strict=True):
                panel.plot([drawing(v) for v in m["curve"]], color=colour, lw=0.4, alpha=0.25, rasterized=True)
                panel.plot(
                    *_smooth([drawing(v) for v in m["curve"]], max(1, steps // 10)),
                    color=colour,
                    label=f"${name(m)[0]}_{{{name(m)[2:]}}}$",
                )
            edges = [i * steps for i in range(len(levels) + 1)]
            panel.stairs(
                [drawing(level) for level in levels], edges, color=plots.TRUTH, lw=1.2, label="truth", baseline=None
            )
            log_m = drawing(min(m["ceiling"] for m in methods if m["alpha"] == 1))
            panel.axhline(log_m, color=plots.TRUTH, lw=1, ls=":")
            panel.text(0, log_m, f"log m = {log_m:.2f}", va="bottom", ha="left", fontsize=9)
            panel.set(title=NAMES[objective], xlabel="update", ylim=(drawing(-0.5), None))
            panel.legend(loc="upper left")
        panels[0].set_ylabel(f"estimate on each new batch ({drawing.unit})")
        about = f"Gaussians, d = {config['dim']}, n = m = {n}, separable critic, {steps} updates a stair"
        figure.suptitle(f"{about} · scale: {drawing.scale}", fontsize=9, x=0.99, ha="right")
        plots.save(figure, drawing.folder, drawing.name)
    checks = _checks(methods, levels)
    return checks if steps >= 500 else checks[:1]  # the others are about trained critics


def _smooth(values: list[float], window: int) -> tuple[list[float], list[float]]:
    """Means of consecutive windows, at their middles."""
    starts = range(0, len(values) - window + 1, window)
    return [i + window / 2 for i in starts], [fmean(values[i : i + window]) for i in starts]


def _checks(methods: list[Result], levels: list[float]) -> list[Check]:
    plain = [m for m in methods if m["alpha"] == 1]
    highest = max(max(m["curve"]) - m["ceiling"] for m in plain)
    above_log_m = [m for m in methods if m["objective"] == "ml_cpc" and m["lower_bound"] and m["alpha"] < 1]
    gain = max(m["plateau_mean"][-1] - plain[0]["ceiling"] for m in above_log_m)
    excess = {
        objective: max(
            v - level
            for m in methods
            if m["objective"] == objective
            for v, level in zip(m["plateau_mean"], levels, strict=True)
        )
        for objective in ("cpc", "ml_cpc")
    }
    return [
        Check("with α = 1 no batch reports more than log m", highest <= 1e-3, f"largest excess {highest:.3f} nats"),
        Check("ML-CPC with a guarantee rises above log m", gain > 0, f"by {gain:.2f} nats on the last stair"),
        Check("CPC with a small α exceeds the truth", excess["cpc"] > 0, f"by up to {excess['cpc']:.2f} nats"),
        Check("ML-CPC does not", excess["ml_cpc"] <= 0, f"it stays at least {-excess['ml_cpc']:.2f} nats below"),
    ]


TARGET = Target(
    name="figure3",
    title="Mutual information of correlated Gaussians, estimated while it climbs a staircase",
    section="staircase",
    scales={
        "smoke": Scale(Staircase(methods=_METHODS, levels=(2, 10), steps=20, hidden=32), "a second"),
        "demo": Scale(Staircase(methods=_METHODS, steps=1200), "a minute on two cores"),
    },
    compute=climb,
    draw=draw,
)
