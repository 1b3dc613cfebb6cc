"""How each claim of the paper is judged from the numbers that a scale of its figure or table left in OUT.

A judge says whether the claim holds there, or that what there is cannot tell, and what was measured. Differences of
accuracies count when a one-sided t-test finds them (p < 0.05); counts of steps, when a sign test does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from mlcpc.reproduce.paired import Cell, gain, sign_tail

__all__ = [
    "Evidence",
    "Finding",
    "above_log_m",
    "binary_bound",
    "binary_moments",
    "capped",
    "curricula",
    "example",
    "methods",
    "overshoots",
    "same_cost",
    "smaller_alpha",
    "stays_below",
    "ten_of_thirteen",
]

CHANCE = 0.05
Row = dict[str, str]


class Finding(NamedTuple):
    """What a judge says of one scale's numbers."""

    holds: bool | None
    """None: they cannot tell"""
    measured: str


@dataclass(frozen=True)
class Evidence:
    """One scale's numbers: the rows of each target that is there, and the configs they were computed with."""

    rows: dict[str, list[Row]]
    configs: dict[str, dict[str, Any]]


def example(e: Evidence) -> Finding:
    """Example 1: about 0.72 nats, of log 2."""
    cells = {(r["objective"], r["n"], r["alpha"]): r for r in e.rows["figure1"]}
    row = cells["cpc", "3", "0.5"]
    mean, truth = float(row["mean"]), float(row["truth"])
    return Finding(abs(mean - 0.72) < 0.005 and mean > truth, f"L_0.5 = {mean:.4f} nats, truth {truth:.4f}")


def binary_bound(e: Evidence) -> Finding:
    """Figure 1: the guarantee, in closed form."""
    rows = [r for r in e.rows["figure1"] if r["objective"] == "ml_cpc" and r["lower_bound"] == "True"]
    over = max(float(r["mean"]) - float(r["truth"]) for r in rows)
    sizes = {int(r["n"]) for r in rows}
    return Finding(
        over <= 1e-9, f"largest excess {over:.1e} nats over m = {min(sizes)} … {max(sizes)}, {len(rows)} cells"
    )


def binary_moments(e: Evidence, moment: str) -> Finding:
    """Figure 2: ML-CPC's bias below CPC's, its variance above, at every m."""
    cells = {(r["objective"], int(r["n"])): abs(float(r[moment])) for r in e.rows["figure2"]}
    pairs = [(cells["cpc", n], cells["ml_cpc", n]) for objective, n in cells if objective == "cpc"]
    if moment == "bias":
        ratios = [c / j if j else math.inf for c, j in pairs]
        return Finding(min(ratios) > 1, f"CPC's is at least {min(ratios):.2f} times larger, at {len(pairs)} sizes m")
    ratios = [math.sqrt(j / c) for c, j in pairs]
    text = f"its standard deviation is {min(ratios):.2f} to {max(ratios):.2f} times CPC's"
    return Finding(min(ratios) > 1, text)


def stairs(e: Evidence, objective: str, guaranteed: bool | None = None) -> list[dict[str, Any]]:
    """Figure 3's plateaus of one objective, as numbers; inside or outside the guarantee, or both."""
    texts = ("critic", "objective", "lower_bound", "scale", "difference", "published_mean", "published_std")
    rows = [r for r in e.rows["figure3"] if r["objective"] == objective]
    return [
        r | {name: float(value) for name, value in r.items() if name not in texts}
        for r in rows
        if guaranteed is None or (r["lower_bound"] == "True") == guaranteed
    ]


def capped(e: Evidence) -> Finding:
    """With α = 1 nothing above log m, though the truth is."""
    rows = [r for objective in ("cpc", "ml_cpc") for r in stairs(e, objective) if r["alpha"] == 1]
    top, most, truth = (max(r[name] for r in rows) for name in ("ceiling", "plateau_mean", "mi_true"))
    text = f"highest plateau {most:.2f} of log m = {top:.2f} nats, where the truth reaches {truth:g}"
    return Finding(most <= top if truth > top else None, text)


def above_log_m(e: Evidence) -> Finding:
    """ML-CPC inside the guarantee passes log m, by more than its batches scatter."""
    rows = stairs(e, "ml_cpc", True)
    log_m = min(r["ceiling"] for r in rows if r["alpha"] == 1)
    best = max(rows, key=lambda r: r["plateau_mean"])
    above = best["plateau_mean"] - log_m
    text = f"α = {best['alpha']:.2g}: {best['plateau_mean']:.2f} ± {best['plateau_std']:.2f} nats, log m = {log_m:.2f}"
    return Finding(above > best["plateau_std"], text)


def overshoots(e: Evidence) -> Finding:
    """CPC with α < 1 above the truth, by more than its batches scatter."""
    rows = [r for r in stairs(e, "cpc") if r["alpha"] < 1]
    worst = max(rows, key=lambda r: r["plateau_mean"] - r["mi_true"])
    over = worst["plateau_mean"] - worst["mi_true"]
    count = sum(r["plateau_mean"] > r["mi_true"] for r in rows)
    if not count:
        return Finding(False, f"all {len(rows)} plateaus at least {-over:.2f} nats below")
    text = f"by up to {over:.2f} nats on {count} of {len(rows)} plateaus; batches scatter by {worst['plateau_std']:.2f}"
    return Finding(over > worst["plateau_std"], text)


def stays_below(e: Evidence, guaranteed: bool) -> Finding:
    """No plateau of ML-CPC above the truth."""
    rows = stairs(e, "ml_cpc", guaranteed)
    if not rows:
        return Finding(None, "no such α there")
    over = max(r["plateau_mean"] - r["mi_true"] for r in rows)
    where = f"all {len(rows)} plateaus at least {-over:.2f} nats below" if over <= 0 else f"{over:.2f} nats above"
    return Finding(over <= 0, where)


def smaller_alpha(e: Evidence, falls: bool) -> Finding:
    """From one α of ML-CPC to the next smaller, on the same stair with the same critic."""
    counts = []
    for guaranteed in (True, None):
        rows = sorted(stairs(e, "ml_cpc", guaranteed), key=lambda r: (r["critic"], r["mi_true"], -r["alpha"]))
        pairs = [(a, b) for a, b in pairwise(rows) if (a["critic"], a["mi_true"]) == (b["critic"], b["mi_true"])]
        better = [
            abs(b["plateau_mean"] - b["mi_true"]) < abs(a["plateau_mean"] - a["mi_true"])
            if falls
            else b["plateau_std"] > a["plateau_std"]
            for a, b in pairs
        ]
        counts.append((sum(better), len(better)))
    (agree, total), (agree_all, total_all) = counts
    chance = sign_tail(agree, total)
    text = f"in {agree} of {total} steps to a smaller α inside the guarantee (sign test, p = {chance:.2g})"
    text += f"; outside in {agree_all - agree} of {total_all - total}" if total_all > total else ""
    return Finding(chance < CHANCE, text)


def same_cost(e: Evidence) -> Finding:
    """Equal matrix products, and equal time within 10 %; a handful of updates tells nothing."""
    cells = {(r["critic"], r["objective"]): r for r in e.rows["timing"]}
    holds, words = True, []
    for critic in dict.fromkeys(critic for critic, _ in cells):
        cpc, ml_cpc = cells[critic, "cpc"], cells[critic, "ml_cpc"]
        if int(cpc["updates"]) * int(cpc["repeats"]) < 200:
            return Finding(None, "too few updates to be timed")
        time = float(ml_cpc["mean_seconds"]) / float(cpc["mean_seconds"])
        products = float(ml_cpc["flops_per_update"]) / float(cpc["flops_per_update"])
        holds = holds and products == 1 and abs(time - 1) <= 0.1
        words.append(f"{critic} critic {time:.2f} × CPC's time, {products:g} × its products")
    return Finding(holds, f"{', '.join(words)}; {cpc['repeats']} repeats of {cpc['updates']} updates")


def judged(pairs: Sequence[tuple[Cell, Cell]], expected: int, seeds: int, what: str) -> Finding:
    """Whether the first of each pair is above the second on average, by a t-test; all asked for must be there."""
    runs = min((cell.runs for pair in pairs for cell in pair), default=0)
    if not pairs or runs < seeds or len(pairs) < expected:
        return Finding(None, f"{len(pairs)} of {expected} comparisons, {runs} of {seeds} seeds are there")
    found = gain(pairs)
    if math.isnan(found.p):
        return Finding(None, f"{found.mean:+.2f} points, one run each: no spread to judge it by")
    text = f"{found.mean:+.2f} ± {found.error:.2f} points, one-sided p = {found.p:.2g} ({found.basis}, {what})"
    if found.p < CHANCE:
        return Finding(True, text)
    return Finding(False, text + ("; the opposite holds" if 1 - found.p < CHANCE else "; no more than chance"))


def methods(e: Evidence, better: tuple[str, ...], worse: tuple[str, ...]) -> Finding:
    """Tables 1 and 2 and Figure 4: one method against another, on every pair of networks."""
    pairs = []
    for rows in e.rows.values():
        cells = {(r["pair"], r["method"]): _cell(r) for r in rows}
        for pair in dict.fromkeys(pair for pair, _ in cells):
            keys = [((pair, a), (pair, b)) for a, b in zip(better, worse, strict=True)]
            pairs += [(cells[a], cells[b]) for a, b in keys if a in cells and b in cells]
    networks = sum(len(config["pairs"]) for config in e.configs.values())
    seeds = max(config["seeds"] for config in e.configs.values())
    what = f"{networks} {'pair' if networks == 1 else 'pairs'} of networks"
    return judged(pairs, networks * len(better), seeds, what)


def ten_of_thirteen(e: Evidence) -> Finding:
    """The best of the small α above CRD, in ten of the thirteen pairs."""
    wins, total = 0, 0
    for rows in e.rows.values():
        cells = {(r["pair"], r["method"]): _cell(r) for r in rows}
        for pair in dict.fromkeys(pair for pair, _ in cells):
            means = [cells[pair, name].mean for name in ("CRD", "L_0.1", "J_0.05", "J_0.01")]
            total += not any(map(math.isnan, means))
            wins += max(means[1:]) > means[0]
    return Finding(wins >= 10 if total == 13 else None, f"{wins} of {total} pairs of networks")


def curricula(e: Evidence, better: str, worse: str, shortest: bool = True, divided: bool = True) -> Finding:
    """Tables 3 and 4: one row against another, on each data set; at the shortest budget, or at all.

    divided  whether the first's loss was divided by its α, which the published code does and the paper does not say
    """
    ((target, rows),) = e.rows.items()
    config = e.configs[target]
    cells = {(r["data"], r["epochs"], r["objective"], r["divided_by_alpha"]): _cell(r) for r in rows if r["epochs"]}
    budgets = sorted(config["epochs"])[: 1 if shortest else None]
    keys = [(data, str(epochs)) for data in config["data"] for epochs in budgets]
    both = [((*key, better, str(divided)), (*key, worse, "True")) for key in keys]
    pairs = [(cells[a], cells[b]) for a, b in both if a in cells and b in cells]
    what = f"{len(keys)} {'cell' if len(keys) == 1 else 'cells'} of the table"
    return judged(pairs, len(keys), config["seeds"], what)


def _cell(row: Row) -> Cell:
    return Cell(float(row["ours"]), float(row["sd"]), int(row["seeds"]))
