"""The charts of a run: its estimate and ceiling, α, loss and accuracy, from the lines of metrics.jsonl."""

import math
from typing import Any

from mlcpc.report.content import Figure, Level, Line, Panel, Scale
from mlcpc.report.gather import Run, as_dict, column, dicts
from mlcpc.report.scales import number, place, short

__all__ = ["charts", "epochs"]

_POINTS = 160
"""of a curve; a page shows no more"""
_SCORES = (("top1", "test", "ml_cpc-4"), ("train_top1", "training batches", "plainly"), ("knn_top1", "k-NN", "kd"))


def epochs(run: Run) -> list[dict[str, Any]]:
    """The lines at the ends of epochs; what a result keeps of them where metrics.jsonl is gone."""
    return [row for row in run.rows if row.get("kind") == "epoch"] or dicts(run.result.get("curve"))


def charts(run: Run) -> Figure | None:
    """Whichever of them the run has numbers for."""
    curves = _Curves(run)
    panels = [panel for panel in (curves.nats(), curves.accuracy(), curves.alpha(), curves.loss()) if panel]
    words = "Bold: means of whole epochs. Faint: of a few steps." if curves.steps and len(curves.epochs) > 1 else ""
    return Figure(tuple(panels), words) if panels else None


class _Curves:
    """A run's lines, thinned to what a picture can show, and what an epoch is in steps."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.epochs = _thinned(epochs(run))
        self.steps = _thinned([row for row in run.rows if row.get("kind") == "step"])
        found = [number(row.get("step")) / (number(row.get("epoch")) + 1 or math.nan) for row in self.epochs]
        self.per_epoch = next((value for value in found if value > 0), math.nan)
        named = "epoch" if self.per_epoch > 0 or not self.steps else "step"
        self.across = Scale(named, low=0, stop=f"{named} {{}}", most=5)

    def line(self, name: str, key: str, tone: str, factor: float = 1.0, dash: bool = False) -> list[Line]:
        """Epochs boldly where there are two, steps faintly behind; steps alone otherwise."""
        unit = self.per_epoch if self.per_epoch > 0 else 1.0
        whole = _points((number(row.get("epoch")) + 1, factor * number(row.get(key))) for row in self.epochs)
        fine = _points((number(row.get("step")) / unit, factor * number(row.get(key))) for row in self.steps)
        if len(whole) < 2:
            points = fine or whole
            return [Line(name, tone, *_transposed(points), dash)] if points else []
        faint = [Line(name, tone, *_transposed(fine), dash, read=False)] if len(fine) > 1 else []
        return [*faint, Line(name, tone, *_transposed(whole), dash)]

    def known(self, key: str) -> list[float]:
        return [value for value in column([*self.steps, *self.epochs], key) if math.isfinite(value)]

    def nats(self) -> Panel | None:
        settings = self.run.config if self.run.section == "distill" else as_dict(self.run.config.get("settings"))
        tone = {"cpc": "cpc-4", "crd": "crd"}.get(str(settings.get("objective")), "ml_cpc-4")
        lines = self.line("estimate", "estimate", tone)
        ceilings, alphas = self.known("ceiling"), self.known("alpha")
        levels: tuple[Level, ...] = ()
        if ceilings and max(ceilings) - min(ceilings) < 1e-6:
            words = f", α = {short(round(alphas[0], 6))}" if alphas else ""
            levels = (Level(f"ceiling {ceilings[0]:.2f}{words}", ceilings[0]),)
        else:
            lines += [line for line in self.line("ceiling", "ceiling", "ink", dash=True) if line.read]
        title = "Estimate and its ceiling" if ceilings else "Estimate"
        return Panel(title, self.across, Scale("nats"), tuple(lines), (), levels, digits=2) if lines else None

    def alpha(self) -> Panel | None:
        """Nothing where it stays what it is."""
        known = [value for value in self.known("alpha") if value > 0]
        if not known or max(known) - min(known) < 1e-6:
            return None
        lines = [line for line in self.line("α", "alpha", "ml_cpc-3") if line.read]
        return Panel("α, the weight of the positives", self.across, Scale("", log=True), tuple(lines))

    def loss(self) -> Panel | None:
        lines = self.line("loss", "loss", "plainly")
        return Panel("Loss", self.across, Scale("what is minimised"), tuple(lines)) if lines else None

    def accuracy(self) -> Panel | None:
        lines = [line for key, name, tone in _SCORES for line in self.line(name, key, tone, 100.0) if line.read]
        if not lines:
            return None
        teacher = 100 * number(self.run.result.get("teacher_top1"))
        levels = (Level(f"teacher {place(teacher)}", teacher),) if math.isfinite(teacher) else ()
        return Panel("Top-1 accuracy", self.across, Scale("%"), tuple(lines), (), levels, digits=2)


def _thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """No more than a picture can show; the last one is always among them."""
    every = max(1, -(-len(rows) // _POINTS))
    return rows[::every] if (len(rows) - 1) % every == 0 else [*rows[::every], rows[-1]]


def _points(pairs: Any) -> list[tuple[float, float]]:
    return [(x, y) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]


def _transposed(points: list[tuple[float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(x for x, _ in points), tuple(y for _, y in points)
