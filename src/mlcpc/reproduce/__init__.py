"""One module per figure and table of the paper; `mlcpc reproduce` lists them."""

from mlcpc.reproduce import figure1, figure2, figure3, timing
from mlcpc.reproduce.target import Check, Target, reproduce

__all__ = ["TARGETS", "Check", "Target", "reproduce"]

TARGETS: dict[str, Target] = {module.TARGET.name: module.TARGET for module in (figure1, figure2, figure3, timing)}
