"""Figure 2: bias and variance of CPC and of ML-CPC at α_{m,n}, against m.

mlcpc reproduce figure2        a second on a laptop; closed form
"""

from mlcpc import plots
from mlcpc.reproduce import figure1
from mlcpc.reproduce.figure1 import Binary, compute
from mlcpc.reproduce.target import Check, Drawing, Result, Scale, Target

NAMES = {"cpc": "CPC, α = 1", "ml_cpc": "ML-CPC, α = α$_{m,n}$"}


def draw(result: Result, drawing: Drawing) -> list[Check]:
    """Two panels, two lines: lower is better in both."""
    lines = {
        "cpc": [row for row in result["rows"] if row["objective"] == "cpc" and row["alpha"] == 1],
        "ml_cpc": [row for row in result["rows"] if row["objective"] == "ml_cpc" and row["alpha_is_min"]],
    }
    drawing.write_csv([row for line in lines.values() for row in line])
    with plots.style():
        figure = plots.figure(8, 3.6)
        panels = figure.subplots(1, 2)
        for objective, line in lines.items():
            style = {"color": plots.shades(objective, 2)[1], "label": NAMES[objective]}
            sizes = [row["n"] for row in line]
            panels[0].plot(sizes, [drawing(abs(row["bias"])) for row in line], **style)
            panels[1].plot(sizes, [drawing(drawing(row["variance"])) for row in line], **style)
        panels[0].set(title="Bias (absolute)", ylabel=drawing.unit)
        panels[1].set(title="Variance of one batch's estimate", ylabel=f"{drawing.unit}²")
        for panel in panels:
            panel.set(xscale="log", yscale="log", xlabel="candidates m  (= batch size n)")
        panels[0].legend()
        figure.suptitle(
            f"Figure 2 · binary X = Y, closed form · scale: {drawing.scale}", fontsize=9, x=0.99, ha="right"
        )
        plots.save(figure, drawing.folder, drawing.name)
    return _checks(lines)


def _checks(lines: dict[str, list[dict[str, float]]]) -> list[Check]:
    pairs = list(zip(lines["cpc"], lines["ml_cpc"], strict=True))
    bias = min(abs(c["bias"]) / abs(j["bias"]) for c, j in pairs)
    spread = [(j["variance"] / c["variance"]) ** 0.5 for c, j in pairs]
    worst = max(j["bias"] for _, j in pairs)
    return [
        Check(
            "ML-CPC at α_{m,n} has less bias than CPC at every m",
            bias > 1,
            f"CPC's is at least {bias:.2f} times larger",
        ),
        Check("ML-CPC at α_{m,n} never exceeds the truth", worst <= 1e-12, f"largest bias {worst:.1e} nats"),
        Check(
            "its variance is slightly higher",
            min(spread) > 1,
            f"standard deviation {min(spread):.2f} to {max(spread):.2f} times CPC's",
        ),
    ]


_SIZES = tuple(dict.fromkeys(round(2 * 10 ** (i / 15)) for i in range(56)))  # 2 … 9283
TARGET = Target(
    name="figure2",
    title="Bias and variance of CPC and α_{m,n}-ML-CPC against m (binary X = Y, closed form)",
    section="binary",
    scales={
        "smoke": Scale(Binary(sizes=(2, 3, 8, 32, 128), alphas=(1.0, 0.0)), "under a second"),
        "paper": Scale(Binary(sizes=_SIZES, alphas=(1.0, 0.0)), "a second"),
    },
    compute=compute,
    draw=draw,
    sample=figure1.TARGET.sample,
)
