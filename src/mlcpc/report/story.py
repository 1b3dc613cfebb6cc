"""The paper in plain words. Every number here is computed from the formulas, none is typed."""

from mlcpc.bounds import alpha_min, ceiling
from mlcpc.report.content import Words

__all__ = ["LEADS", "LEDE", "PASSAGES", "TITLE", "TITLES"]

_M = 128
_LOW = alpha_min(_M, _M)

TITLE = "Seeing more than log m nats"
LEDE = Words(
    "Contrastive learning measures how much two things know of each other, and its usual yardstick is too short. "
    "Multi-label CPC (Song & Ermon, NeurIPS 2020) lengthens it at no cost. This page sets what the paper reports "
    "beside what this code measured."
)
PASSAGES = (
    (
        "What CPC cannot do",
        Words(
            "CPC shows a critic m candidates and asks: which one is real? However good the critic, a quiz with m "
            f"answers tells at most log m nats. With m = {_M} that is {ceiling(_M):.2f}. Data that share 10 nats look "
            "like data that share 5."
        ),
    ),
    (
        "What ML-CPC does",
        Words(
            "It asks one question over the whole batch: which n of these n·m pairs are real? And it gives the real "
            "ones a weight α. The ceiling becomes log(m/α), with the same negatives and the same work: "
            f"{ceiling(_M, 0.05):.2f} nats at α = 0.05."
        ),
    ),
    (
        "What is guaranteed",
        Words(
            "A longer yardstick must still be honest. Down to α_{m,n} = m / (n(m−1)+1), here "
            f"{_LOW:.4f} with a ceiling of {ceiling(_M, _LOW):.2f}, ML-CPC never reports more than the truth, whatever "
            "the critic, on average over batches. CPC with a small α gets the same ceiling, but no such promise: it "
            "overshoots. (The proof draws negatives independently of the positives.)"
        ),
    ),
)

TITLES = {
    "figure1": "A fair coin, known exactly",
    "figure2": "Less bias, a little more variance",
    "figure3": "Climbing from 2 to 10 nats",
    "figure4": "Which α teaches best",
    "table1": "Students that learn from teachers of their own kind",
    "table2": "Students that learn from teachers of another kind",
    "table3": "Features without labels, on CIFAR",
    "table4": "Features without labels, on ImageNet",
    "timing": "What it costs",
}
LEADS = {
    "figure1": Words(
        "Plain CPC stays under the truth. With a smaller α it shoots over it in small batches; ML-CPC with a "
        "guaranteed α comes closer from below and never crosses."
    ),
    "figure2": Words(
        "At its smallest safe α, ML-CPC's bias falls much faster with the batch than CPC's. The price is some variance."
    ),
    "figure3": Words(
        "Correlated Gaussians whose mutual information is known. Curves should follow the diagonal: plain CPC and "
        "plain ML-CPC flatten below log m, CPC with a small α rises into the shaded corner, ML-CPC inside its "
        "guarantee passes log m and stays out of it."
    ),
    "figure4": Words(
        "The paper's claim: with α = 1 or 0.5 students stay below CRD's; with a smaller α, down to 0.05 or 0.01, they "
        "pass them."
    ),
    "table1": Words(
        "A small network imitates a large one by a contrastive loss between their features. The paper's claim: "
        "ML-CPC with α = 0.05 or 0.01 beats CRD, at the time the best method, on most pairs."
    ),
    "table2": Words("The same across architectures, where imitation is harder."),
    "table3": Words(
        "An encoder is trained without labels, then a linear classifier reads its features. The paper's claim: "
        "letting α fall from 10 to 0.1 beats a fixed α when the budget is short."
    ),
    "table4": Words("The same with photographs. The paper's claim: small gains for every falling α."),
    "timing": Words(
        "The paper's claim: ML-CPC takes as long as CPC. The two should stand at the same place in each row."
    ),
}
