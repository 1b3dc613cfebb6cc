"""A page of one run: its curves, its settings, its machine, and what is wrong with it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlcpc.objectives import label
from mlcpc.report.content import Block, Facts, Group, Listed, Page, Para, Section, Tiles
from mlcpc.report.curves import charts, epochs
from mlcpc.report.gather import Run, as_dict, column
from mlcpc.report.scales import number, place, short, wall_time
from mlcpc.report.staircase import climb

__all__ = ["Told", "run_page", "tell", "title"]

_SCORES = {
    "top1": "top-1",
    "best_top1": "best top-1",
    "knn_top1": "k-NN top-1",
    "knn": "k-NN top-1",
    "teacher_top1": "the teacher's top-1",
}
_SPARKS = ("top1", "knn_top1", "estimate", "loss")


@dataclass(frozen=True)
class Told:
    """A run in a line of the front page."""

    id: str
    title: str
    section: str
    status: str
    state: str
    score: str
    spark: tuple[float, ...]
    time: str
    machine: str
    href: str


def tell(run: Run, href: str, name: str) -> Told:
    """Its line, under the name that `title` found."""
    score = next((value for key in _SCORES if math.isfinite(value := number(run.result.get(key)))), math.nan)
    rows = epochs(run)
    curves = (tuple(value for value in column(rows, key) if math.isfinite(value)) for key in _SPARKS)
    curve = next((curve for curve in curves if len(curve) > 1), ())
    return Told(
        run.id,
        name,
        run.section,
        run.status,
        _state(run),
        f"{place(100 * score)} %" if math.isfinite(score) else "–",
        curve[:: max(1, len(curve) // 40)],
        wall_time(_seconds(run)),
        str(run.environment.get("device", "–")),
        href,
    )


def title(run: Run, known: Mapping[str, str]) -> str:
    """What a person calls it; its id where the settings do not say. A probe is called after its run, if `known`."""
    config = run.config
    try:
        if run.section == "train":
            words = [config["network"], config["data"]]
        elif run.section == "distill":
            words = [f"{config['teacher']} → {config['student']}", _method(config), config["data"]]
        elif run.section == "pretrain":
            settings = as_dict(config.get("settings"))
            method = _method(settings) + (" undivided" if settings.get("divide_by_alpha") is False else "")
            words = [config["network"], method, config["data"], f"{config['epochs']} epochs"]
        elif run.section == "probe":
            probed = str(config["run"]).rsplit("/", 1)[-1]
            words = [known.get(probed, probed) or f"{config['network']}, random weights", f"read on {config['data']}"]
        else:
            return f"{run.section} {run.id}"
    except (KeyError, TypeError):
        return run.id
    return ", ".join(map(str, words)) + (f", seed {config['seed']}" if "seed" in config else "")


def _method(config: dict[str, Any]) -> str:
    objective, alpha = str(config["objective"]), str(config["alpha"])
    if objective not in ("cpc", "ml_cpc"):
        return objective.upper()
    try:
        return label(objective, alpha)
    except ValueError:
        return f"{'J' if objective == 'ml_cpc' else 'L'} with α {alpha}"


def _state(run: Run) -> str:
    if run.status != "unfinished":
        done = "done, with remarks" if run.notes else "done"
        return {"done": done, "broken": "unreadable", "idle": "nothing written"}[run.status]
    total = number(run.config.get("epochs"))
    if not math.isfinite(total):
        return f"unfinished, {len(run.rows)} lines"
    ends = column((row for row in run.rows if row.get("kind") == "epoch"), "epoch")
    return f"unfinished, epoch {max([0.0, *(end + 1 for end in ends if math.isfinite(end))]):g} of {short(total)}"


def _seconds(run: Run) -> float:
    known = [number(run.result.get("seconds")), *column(run.rows[-1:], "seconds")]
    return next((value for value in known if math.isfinite(value)), math.nan)


def run_page(run: Run, name: str) -> Page:
    """The whole page, under the name that `title` found."""
    figure = climb(run.result) if run.section == "staircase" else charts(run)
    blocks: list[Block] = []
    if run.status != "done":
        blocks.append(Para(_unfinished(run), "warn"))
    if run.notes:
        blocks.append(Listed(run.notes, "warn"))
    if tiles := _tiles(run):
        blocks.append(Tiles(tiles))
    if figure:
        blocks.append(figure)
    elif run.status in ("done", "unfinished"):
        blocks.append(Para("It left no curve to draw.", "note"))
    facts: list[tuple[Block, ...]] = [(Facts(_flat(run.config), "Settings"),)] if run.config else []
    machine = [*((key, str(value)) for key, value in run.environment.items()), ("wall time", wall_time(_seconds(run)))]
    machine += [("last written", run.written), ("folder", str(run.folder))]
    facts.append((Facts(tuple((key, value) for key, value in machine if value), "Machine and files"),))
    told = Section("curves", "What it did", tuple(blocks), unseen=True)
    sections = (told, Section("facts", "What it was", (Group(tuple(facts)),), unseen=True))
    lede = "" if name == run.id else run.id
    return Page(name, f"Run · {run.section}", lede, sections, "", ("All runs", "../index.html#runs"))


def _unfinished(run: Run) -> str:
    if run.status == "idle":
        return "This run wrote nothing but its settings: it was stopped before its first line, or has only begun."
    if run.status == "broken":
        return "This run cannot be read."
    going = "it is still going on, or was stopped. The same command goes on from its last checkpoint"
    return f"This run is not finished ({_state(run).removeprefix('unfinished, ')}): {going}."


def _tiles(run: Run) -> tuple[tuple[str, str], ...]:
    """Numbers of the result; a best that is the last is not said twice."""
    shown: dict[str, str] = {}
    for key, name in _SCORES.items():
        value = number(run.result.get(key))
        if math.isfinite(value):
            shown.setdefault(f"{place(100 * value)} %", name)
    rows = epochs(run)
    estimate, most = (
        next((value for value in reversed(column(rows, key)) if math.isfinite(value)), math.nan)
        for key in ("estimate", "ceiling")
    )
    if math.isfinite(estimate):
        shown[f"{place(estimate)} nats"] = "estimate" + (f", of at most {place(most)}" if math.isfinite(most) else "")
    if math.isfinite(_seconds(run)):
        shown[wall_time(_seconds(run))] = "wall time"
    return tuple(shown.items())


def _flat(config: dict[str, Any], before: str = "") -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for name, value in config.items():
        if isinstance(value, dict) and before.count(".") < 5:
            found += _flat(value, f"{before}{name}.")
        else:
            text = str(value)
            found.append((f"{before}{name}", text if len(text) < 300 else f"{text[:300]}…"))
    return tuple(found)
