"""The paper's claims: which figures and tables can tell, and which of the `judges` asks them."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from mlcpc.reproduce.judges import (
    Evidence,
    Finding,
    above_log_m,
    binary_bound,
    binary_moments,
    capped,
    curricula,
    example,
    methods,
    overshoots,
    same_cost,
    smaller_alpha,
    stays_below,
    ten_of_thirteen,
)

__all__ = ["RULES", "Rule"]


class Rule(NamedTuple):
    """A claim, the targets that can tell, and how."""

    name: str
    text: str
    sources: tuple[str, ...]
    judge: Callable[[Evidence], Finding]


def _over(better: str, worse: str) -> Callable[[Evidence], Finding]:
    return partial(methods, better=(better,), worse=(worse,))


def _learns(better: str, worse: str, shortest: bool = True, divided: bool = True) -> Callable[[Evidence], Finding]:
    return partial(curricula, better=better, worse=worse, shortest=shortest, divided=divided)


BOTH = ("table1", "table2")
STEEP, FIXED, PLAIN = "J_10.0→J_0.1", "J_1.0→J_1.0", "L_1.0"
SMALL, LARGE = ("J_0.05", "J_0.01", "L_0.05", "L_0.01"), ("J_1.0", "J_0.5", "L_1.0", "L_0.5")
RULES = (
    Rule("example-1", "CPC with α = 0.5 reports 0.72 of log 2 nats at n = m = 3 (Example 1)", ("figure1",), example),
    Rule("binary-bound", "ML-CPC with α ≥ α_{m,n} never exceeds the truth of binary X = Y", ("figure1",), binary_bound),
    Rule(
        "less-bias",
        "ML-CPC at α_{m,n} has significantly less bias than CPC, at every m",
        ("figure2",),
        partial(binary_moments, moment="bias"),
    ),
    Rule(
        "more-variance",
        "ML-CPC at α_{m,n} has a slightly higher variance than CPC",
        ("figure2",),
        partial(binary_moments, moment="variance"),
    ),
    Rule("capped", "With α = 1 CPC and ML-CPC are capped at log m", ("figure3",), capped),
    Rule("above-log-m", "ML-CPC with a smaller α inside its guarantee passes log m", ("figure3",), above_log_m),
    Rule("cpc-overshoots", "CPC with a small α overshoots the truth", ("figure3",), overshoots),
    Rule(
        "ml-cpc-below",
        "ML-CPC with α ≥ α_{m,n} stays below the truth",
        ("figure3",),
        partial(stays_below, guaranteed=True),
    ),
    Rule(
        "ml-cpc-below-in-general",
        "ML-CPC stays below the truth in general, with α < α_{m,n} too",
        ("figure3",),
        partial(stays_below, guaranteed=False),
    ),
    Rule("bias-falls", "ML-CPC's bias falls with smaller α", ("figure3",), partial(smaller_alpha, falls=True)),
    Rule("variance-rises", "ML-CPC's variance rises with smaller α", ("figure3",), partial(smaller_alpha, falls=False)),
    Rule("same-cost", "An update of ML-CPC costs what one of CPC does", ("timing",), same_cost),
    *(
        Rule(
            f"{method}-over-CRD-{table}",
            f"Distillation, {words}: {method} is above CRD",
            (table,),
            _over(method, "CRD"),
        )
        for table, words in (("table1", "networks of one type"), ("table2", "of different types"))
        for method in ("J_0.05", "J_0.01")
    ),
    Rule(
        "ten-of-thirteen",
        "Distillation: a smaller α beats CRD on 10 of the 13 pairs of networks, if it is chosen for each",
        BOTH,
        ten_of_thirteen,
    ),
    Rule("CRD-over-L_1", "Distillation: with α = 1 CPC is generally below CRD", BOTH, _over("CRD", "L_1.0")),
    Rule("CRD-over-J_1", "Distillation: with α = 1 ML-CPC is generally below CRD", BOTH, _over("CRD", "J_1.0")),
    Rule("small-alpha-cpc", "Distillation: students of CPC are better with a smaller α", BOTH, _over("L_0.1", "L_1.0")),
    Rule(
        "small-alpha-ml-cpc",
        "Distillation: students of ML-CPC are better with a smaller α",
        BOTH,
        _over("J_0.05", "J_1.0"),
    ),
    Rule(
        "ml-cpc-over-cpc", "Distillation: with a small α ML-CPC is slightly above CPC", BOTH, _over("J_0.05", "L_0.1")
    ),
    Rule(
        "figure4",
        "Distillation: students are better at α ≤ 0.05 than at α ≥ 0.5",
        ("figure4",),
        partial(methods, better=SMALL, worse=LARGE),
    ),
    Rule(
        "ml-cpc-pretraining",
        f"Pretraining: ML-CPC with α = 1 is above CPC in most cases ({FIXED})",
        ("table3",),
        _learns(FIXED, PLAIN, shortest=False),
    ),
    Rule(
        "curriculum-over-cpc",
        f"Pretraining with a short budget: {STEEP} is above CPC",
        ("table3",),
        _learns(STEEP, PLAIN),
    ),
    Rule(
        "curriculum-over-fixed",
        f"Pretraining with a short budget: {STEEP} is above a fixed α ({FIXED})",
        ("table3",),
        _learns(STEEP, FIXED),
    ),
    Rule(
        "curriculum-as-printed",
        f"Pretraining with a short budget: {STEEP} is above CPC with the paper's loss, not divided by α as in its code",
        ("table3",),
        _learns(STEEP, PLAIN, divided=False),
    ),
    Rule("curriculum-imagenet", f"Pretraining on ImageNet: {STEEP} is above CPC", ("table4",), _learns(STEEP, PLAIN)),
)
