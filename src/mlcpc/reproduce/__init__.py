"""One module per figure and table of the paper; `mlcpc reproduce` lists them."""

from mlcpc.reproduce import claims, figure1, figure2, figure3, timing
from mlcpc.reproduce.distillation import FIGURE4_TARGET, TABLE1, TABLE2
from mlcpc.reproduce.representation import TABLE3, TABLE4
from mlcpc.reproduce.target import Check, Target, reproduce

__all__ = ["TARGETS", "Check", "Target", "reproduce"]

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        figure1.TARGET,
        figure2.TARGET,
        figure3.TARGET,
        FIGURE4_TARGET,
        TABLE1,
        TABLE2,
        TABLE3,
        TABLE4,
        timing.TARGET,
        claims.TARGET,
    )
}
