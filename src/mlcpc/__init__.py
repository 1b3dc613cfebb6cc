"""Multi-label contrastive predictive coding: contrastive losses and mutual-information bounds with a higher ceiling.

>>> import mlcpc, torch
>>> loss = mlcpc.ContrastiveLoss("ml_cpc", alpha=0.1)
>>> loss(torch.randn(16, 8), torch.randn(16, 8)).shape
torch.Size([])
"""

from mlcpc.bounds import GuaranteeWarning, alpha_min, ceiling, is_lower_bound
from mlcpc.contrastive import ContrastiveLoss, contrastive_loss
from mlcpc.objectives import OBJECTIVES, cpc, loss, ml_cpc
from mlcpc.queues import MemoryBank, Queue
from mlcpc.schedules import constant, geometric, parse_alpha
from mlcpc.scores import Scores, from_logits, in_batch, paired

__version__ = "0.1.0"

__all__ = [
    "OBJECTIVES",
    "ContrastiveLoss",
    "GuaranteeWarning",
    "MemoryBank",
    "Queue",
    "Scores",
    "alpha_min",
    "ceiling",
    "constant",
    "contrastive_loss",
    "cpc",
    "from_logits",
    "geometric",
    "in_batch",
    "is_lower_bound",
    "loss",
    "ml_cpc",
    "paired",
    "parse_alpha",
]
