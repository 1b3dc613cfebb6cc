"""One look for every picture; each is written as SVG and PNG. matplotlib is loaded when something is drawn."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcpc.runs import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["INK", "TRUTH", "figure", "save", "shades", "style", "write"]

INK = "#24292f"
TRUTH = "#111111"
_HUES = {"cpc": "Oranges", "ml_cpc": "Blues"}


@contextmanager
def style() -> Iterator[None]:
    """Quiet axes, readable sizes, and SVG text that stays text and does not change from run to run."""
    import matplotlib as mpl

    with mpl.rc_context(
        {
            "font.size": 10,
            "axes.titlesize": 11,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": INK,
            "axes.labelcolor": INK,
            "axes.grid": True,
            "grid.color": "#e3e6ea",
            "grid.linewidth": 0.7,
            "lines.linewidth": 1.8,
            "legend.frameon": False,
            "figure.constrained_layout.use": True,
            "svg.fonttype": "none",
            "svg.hashsalt": "mlcpc",
        }
    ):
        yield


def figure(width: float, height: float) -> "Figure":
    """An empty one of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def shades(objective: str, count: int) -> list[Any]:
    """`count` colours of one hue, light to dark: CPC is orange, ML-CPC blue, in every picture."""
    import matplotlib as mpl

    colours = mpl.colormaps[_HUES[objective]]
    return [colours(0.4 + 0.55 * i / max(1, count - 1)) for i in range(count)]


def save(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """`name`.svg and `name`.png."""
    paths = [folder / f"{name}.svg", folder / f"{name}.png"]
    write(figure, paths[0], metadata={"Date": None}, dpi=72)  # of rasterised curves; the rest are vectors
    write(figure, paths[1], dpi=160)
    return paths


def write(figure: "Figure", path: Path, **how: Any) -> None:
    """The picture, whole or not at all; its kind by its ending."""
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower() or "png", **how)
