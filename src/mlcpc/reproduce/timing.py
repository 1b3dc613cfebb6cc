"""Section 5.1's claim that ML-CPC costs what CPC does: the time of 200 updates with each.

The paper, on a GTX 1080 Ti: 1.15 ± 0.06 s with CPC and 1.14 ± 0.04 s with ML-CPC. Here: one critic at a time, plain
autograd through the library's own losses, as a user would write it. The two objectives take turns every ten updates,
so that whatever else the machine does falls on both.

mlcpc reproduce timing         a few minutes on two cores
"""

import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from mlcpc import plots
from mlcpc.bounds import GuaranteeWarning
from mlcpc.mi.critics import Joint, Separable
from mlcpc.mi.tasks import correlated_gaussian, correlation
from mlcpc.objectives import loss
from mlcpc.reproduce.target import Check, Drawing, Result, Scale, Target, Tick
from mlcpc.runs import environment, write_json
from mlcpc.scores import in_batch

NAMES = {"cpc": "CPC", "ml_cpc": "ML-CPC"}
PUBLISHED = {"cpc": (1.15, 0.06), "ml_cpc": (1.14, 0.04)}
"""seconds for 200 updates on a GTX 1080 Ti, mean and standard deviation (Section 5.1)"""
KEPT = "checkpoint-repeats.json"


@dataclass(frozen=True)
class Timing:
    """What is timed: `repeats` × `updates` updates of every critic with either objective."""

    critics: tuple[str, ...] = ("separable", "joint")
    updates: int = 200
    repeats: int = 5
    turn: int = 10
    """updates before the other objective has its turn"""
    alpha: float = 0.01
    batch: int = 128
    dim: int = 20
    hidden: int = 256
    embedding: int = 32
    seed: int = 0


class _Trainer:
    """One critic, one objective, Adam."""

    def __init__(self, config: Timing, critic: str, objective: str) -> None:
        self.config, self.objective = config, objective
        self.generator = torch.Generator().manual_seed(config.seed)
        self.critic: Joint | Separable
        if critic == "joint":
            self.critic = Joint(1, config.dim, config.hidden, self.generator)
        else:
            self.critic = Separable(1, config.dim, config.hidden, config.embedding, self.generator)
        self.optimizer = torch.optim.Adam(self.critic.parameters())

    def update(self) -> None:
        config = self.config
        x, y = correlated_gaussian(config.batch, config.dim, correlation(4, config.dim), self.generator)
        self.optimizer.zero_grad()
        loss(in_batch(self.critic(x, y)[0]), self.objective, config.alpha).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def flops(self) -> int:
        """Of the matrix products of one update."""
        with FlopCounterMode(display=False) as counter:
            self.update()
        return int(counter.get_total_flops())

    def seconds(self, updates: int) -> float:
        started = time.perf_counter()
        for _ in range(updates):
            self.update()
        return time.perf_counter() - started


def compute(config: Timing, tick: Tick, folder: Path) -> Result:
    """Seconds of every repeat, by critic and objective. Finished repeats are kept in `folder` and not timed again."""
    rows = []
    here = {"environment": environment(), "threads": torch.get_num_threads()}
    seconds = _kept(folder, here)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuaranteeWarning)  # CPC below α = 1 is timed, not believed
        for critic in config.critics:
            trainers = {objective: _Trainer(config, critic, objective) for objective in NAMES}
            flops = {objective: trainer.flops() for objective, trainer in trainers.items()}
            mine = seconds.setdefault(critic, {objective: [] for objective in NAMES})
            while len(mine["cpc"]) < config.repeats:
                for objective, spent in _turns(config, trainers).items():
                    mine[objective].append(round(spent, 5))
                write_json(folder / KEPT, {**here, "seconds": seconds})
                tick(_share(config, seconds))
            rows += [
                {"critic": critic, "objective": name, "seconds": mine[name], "flops": flops[name]} for name in NAMES
            ]
    return {"rows": rows, "threads": here["threads"]}


def begun(config: Timing, folder: Path) -> float | None:
    """The share of its repeats that an interrupted run has done."""
    return _share(config, _kept(folder))


def _share(config: Timing, seconds: dict[str, dict[str, list[float]]]) -> float:
    return sum(len(mine["cpc"]) for mine in seconds.values()) / (len(config.critics) * config.repeats)


def _kept(folder: Path, here: dict[str, Any] | None = None) -> dict[str, dict[str, list[float]]]:
    """Seconds by critic and objective of finished repeats; none of another machine than `here`."""
    path = folder / KEPT
    kept = json.loads(path.read_text()) if path.exists() else {"seconds": {}}
    other = here is not None and any(kept.get(name) != value for name, value in here.items())
    found: dict[str, dict[str, list[float]]] = {} if other else kept["seconds"]
    return found


def _turns(config: Timing, trainers: dict[str, _Trainer]) -> dict[str, float]:
    """One repeat: the trainers alternate, and who goes first alternates too."""
    spent = dict.fromkeys(trainers, 0.0)
    order = list(trainers)
    for start in range(0, config.updates, config.turn):
        for name in order:
            spent[name] += trainers[name].seconds(min(config.turn, config.updates - start))
        order.reverse()
    return spent


def draw(result: Result, drawing: Drawing) -> list[Check]:
    """A bar per objective and critic, and the paper's two beside them."""
    config = result["config"]
    rows = [_row(row, config["updates"]) for row in result["rows"]]
    drawing.write_csv(rows)
    critics = config["critics"]
    with plots.style():
        figure = plots.figure(8, 3.2)
        panels = figure.subplots(1, len(critics) + 1, squeeze=False)[0]
        for panel, critic in zip(panels, critics, strict=False):
            bars = {r["objective"]: (r["mean_seconds"], r["sd_seconds"]) for r in rows if r["critic"] == critic}
            _bars(panel, bars, f"{critic} critic")
        _bars(panels[-1], PUBLISHED, "published, 1080 Ti", faint=True)
        panels[0].set_ylabel(f"seconds for {config['updates']} updates")
        panels[-1].set_ylabel("seconds for 200 updates")
        about = f"{config['repeats']} repeats, {result['threads']} thread(s), n = m = {config['batch']}"
        figure.suptitle(f"Mean ± standard deviation, {about} · scale: {drawing.scale}", fontsize=9, x=0.99, ha="right")
        plots.save(figure, drawing.folder, drawing.name)
    return _checks(result)


def _bars(panel: Any, bars: dict[str, tuple[float, float]], title: str, faint: bool = False) -> None:
    for place, (objective, (mean, sd)) in enumerate(bars.items()):
        colour = plots.shades(objective, 4)[0 if faint else 2]
        panel.bar(place, mean, yerr=sd, color=colour, width=0.6, ecolor=plots.INK, capsize=4)
        panel.text(place, mean + sd, f"{mean:.3g} ± {sd:.2g}", ha="center", va="bottom", fontsize=8)
    panel.set_xticks(range(len(bars)), [NAMES[name] for name in bars])
    panel.set_title(title)
    panel.margins(y=0.2)
    panel.grid(False, axis="x")
    panel.set_axisbelow(True)


def _row(row: Result, updates: int) -> dict[str, Any]:
    return {
        "critic": row["critic"],
        "objective": row["objective"],
        "updates": updates,
        "repeats": len(row["seconds"]),
        "mean_seconds": round(fmean(row["seconds"]), 5),
        "sd_seconds": round(stdev(row["seconds"]), 5),
        "flops_per_update": row["flops"],
        "published_mean_seconds": PUBLISHED[row["objective"]][0],
        "published_sd_seconds": PUBLISHED[row["objective"]][1],
    }


def _checks(result: Result) -> list[Check]:
    checks = []
    for critic in result["config"]["critics"]:
        cpc, ml_cpc = (row for row in result["rows"] if row["critic"] == critic)
        checks.append(
            Check(
                f"{critic} critic: an update of ML-CPC has the matrix products of one of CPC",
                cpc["flops"] == ml_cpc["flops"],
                f"{ml_cpc['flops'] / 1e9:.3g} and {cpc['flops'] / 1e9:.3g} GFLOP",
            )
        )
        ratios = [j / c for c, j in zip(cpc["seconds"], ml_cpc["seconds"], strict=True)]
        if result["config"]["updates"] * len(ratios) >= 200:  # of fewer the clock tells the machine's other business
            mean = fmean(ratios)
            checks.append(
                Check(
                    f"{critic} critic: and takes the same time, within 10 %",
                    abs(mean - 1) <= 0.1,
                    f"ratio {mean:.3f} ± {stdev(ratios):.3f} over {len(ratios)} repeats",
                )
            )
    return checks


TARGET = Target(
    name="timing",
    title="The time of 200 updates with CPC and with ML-CPC (Section 5.1)",
    section="timing",
    scales={
        "smoke": Scale(Timing(updates=4, repeats=2, turn=2, batch=32, hidden=32), "a second"),
        "paper": Scale(Timing(), "five minutes"),
    },
    compute=compute,
    draw=draw,
    sample=lambda config: f"{config.repeats} repeats of {config.updates} updates with either objective and each critic",
    begun=begun,
)
